//! `architect demo`: a whole run on a throw-away workspace.

use architect::app::World;
use architect::app::demo::Demo;

use crate::cli::args::DemoArgs;
use crate::cli::error::Failure;
use crate::cli::output;
use crate::cli::task::{self, Way};

pub(crate) fn run(args: &DemoArgs, world: World) -> Result<u8, Failure> {
    let demo = Demo::new(world)?;
    let say = |text: &str| {
        if !args.output.quiet {
            output::complain(text);
        }
    };
    say(&format!("A throw-away workspace with a failing test: {}", demo.workspace().display()));
    if test(&demo, "before", &say)? {
        return Err(Failure::failed("the test passes before anything was done"));
    }
    let code = task::run(&demo.setup, demo.order()?, Way::Straight, &args.output)?;
    let passes = test(&demo, "after", &say)?;
    if args.keep {
        say(&format!("The workspace stays at {}", demo.keep().display()));
    }
    match (code, passes) {
        (0, false) => Err(Failure::failed("the test still fails")),
        (code, _) => Ok(code),
    }
}

/// Runs the test, and says what it printed.
fn test(demo: &Demo, when: &str, say: &impl Fn(&str)) -> Result<bool, Failure> {
    let (passes, said) = demo.test()?;
    let verdict = if passes { "passes" } else { "fails" };
    say(&format!("\n$ {}   # {when}: it {verdict}", demo.test_command()));
    for line in said.lines() {
        say(&format!("  {line}"));
    }
    say("");
    Ok(passes)
}
