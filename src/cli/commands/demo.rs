//! `architect demo`: a complete run on a temporary workspace.

use architect::app::ProcessEnv;
use architect::app::demo::Demo;

use crate::cli::args::DemoArgs;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::task::{self, RunMode, TaskRun};

pub(crate) fn run(args: &DemoArgs, world: ProcessEnv) -> Result<u8, CliError> {
    let demo = Demo::new(world)?;
    let say = |text: &str| {
        if !args.output.quiet {
            output::print_stderr(text);
        }
    };
    say(&format!("A temporary workspace with a failing test: {}", demo.workspace().display()));
    if run_test(&demo, "before", &say)? {
        return Err(CliError::failed("the test passes before anything was done"));
    }
    let task = TaskRun { request: demo.run_request()?, mode: RunMode::Direct, evaluations: &[] };
    let code = task::run(&demo.setup, task, &args.output, None)?;
    let passes = run_test(&demo, "after", &say)?;
    if args.keep {
        output::print_stderr(&format!(
            "The workspace stays at {}",
            demo.keep_workspace().display()
        ));
    }
    match (code, passes) {
        (0, false) => Err(CliError::failed("the test still fails")),
        (code, _) => Ok(code),
    }
}

/// Runs the test, and shows its output.
fn run_test(demo: &Demo, when: &str, say: &impl Fn(&str)) -> Result<bool, CliError> {
    let (passes, printed) = demo.run_test()?;
    let result = if passes { "passes" } else { "fails" };
    say(&format!("\n$ {}   # {when}: it {result}", demo.test_command()));
    for line in printed.lines() {
        say(&format!("  {line}"));
    }
    say("");
    Ok(passes)
}
