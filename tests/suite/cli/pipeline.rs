//! `architect pipeline`: the steps of a file, in order.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit, wait_until};

/// A script that appends a line to `ran`, and then gives an answer.
fn script(answer: &str, delay_ms: u64) -> String {
    format!(
        "price = {{ input = 1.0, output = 10.0 }}\nmax_output = 100\n\
         [[turn]]\nusage = {{ input = 1000, output = 100 }}\n\
         calls = [{{ name = \"run_command\", arguments = {{ command = \"echo {answer} >> ran\" }} }}]\n\
         [[turn]]\ntext = \"{answer}\"\ndelay_ms = {delay_ms}\nusage = {{ input = 1000, output = 100 }}\n\
         [[turn]]\ntext = \"cut off\"\n[[turn]]\ntext = \"cut off\"\n"
    )
}

/// Plan, build until a check passes, review, and a fix that only some reviews need.
const STEPS: &str = r#"
[[steps]]
name = "plan"
prompt = "Make a plan."
model = "scripted/plan.toml"

[[steps]]
name = "build"
prompt = "Do this: {{steps.plan.output}}!"
checks = ["test $(grep -c built ran) -ge 2"]
repeat = 4

[[steps]]
name = "fix"
when = "{{steps.build.output}} contains BUG"
prompt = "Fix it."

[[steps]]
name = "describe"
prompt = "Describe {{steps.build.output}}, fixed: '{{steps.fix.output}}'."
"#;

struct PipelineFixture {
    cli: CliFixture,
}

impl PipelineFixture {
    fn new(steps: &str) -> Self {
        let cli = CliFixture::new();
        cli.write("steps.toml", steps).write("ran", "");
        cli.write("plan.toml", &script("planned", 0)).write("build.toml", &script("built", 0));
        Self { cli }
    }

    fn begin(&self, args: &[&str]) -> Child {
        let common = ["pipeline", "steps.toml", "--model", "scripted/build.toml", "--out", "out"];
        let args = [&common[..], &["--mode", "yolo", "--json"], args].concat();
        self.cli.command(&args).spawn().unwrap()
    }

    fn run(&self, args: &[&str]) -> CommandResult {
        wait_for_exit(self.begin(args))
    }

    fn ran(&self) -> Vec<String> {
        self.cli.read("ran").lines().map(str::to_owned).collect()
    }

    fn journal_lines(&self) -> usize {
        let text = fs::read_to_string(self.cli.path("out/workflow.jsonl")).unwrap_or_default();
        text.matches('\n').count()
    }

    /// Returns the messages that the sessions began with, in their order.
    fn messages(&self) -> Vec<String> {
        let folder = fs::read_dir(self.cli.path("out/sessions")).unwrap();
        let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
        files.sort();
        let first =
            |path: &PathBuf| fs::read_to_string(path).unwrap().lines().next().unwrap().into();
        files.iter().map(first).collect()
    }
}

fn stop(child: Child, signal: Signal) -> CommandResult {
    kill_process(Pid::from_child(&child), signal).unwrap();
    wait_for_exit(child)
}

/// Returns the names of the steps of the iterations that have run.
fn steps(result: &CommandResult) -> Vec<String> {
    let workflow = &result.json()["workflow"];
    let name = |it: &Value| it["step"].as_str().unwrap().to_owned();
    workflow["iterations"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn steps_run_in_order_with_the_answers_of_those_before() {
    let pipeline = PipelineFixture::new(STEPS);
    let ran = pipeline.run(&[]);
    assert_eq!(ran.outcome(), (0, "llm_done".to_owned(), "success".to_owned()), "{}", ran.err);
    assert_eq!(steps(&ran), ["plan", "build", "build", "describe"]);
    assert_eq!(pipeline.ran(), ["planned", "built", "built", "built"]);
    assert_eq!(ran.json()["output"], "built");
    assert!(ran.err.contains("fix: skipped"), "{}", ran.err);
    let messages = pipeline.messages();
    assert!(messages[1].contains("Do this: planned!"), "{}", messages[1]);
    assert!(messages[2].contains("fails") && messages[2].contains("Notes of the last iteration"));
    assert!(messages[3].contains("Describe built, fixed: ''."), "{}", messages[3]);
    // Finished steps do not run again.
    let again = pipeline.run(&[]);
    assert_eq!((again.code, pipeline.ran().len()), (0, 4), "{}", again.err);
    assert!(again.err.contains("warn: nothing was run: this pipeline had ended"), "{}", again.err);
    assert!(!ran.err.contains("nothing was run"), "{}", ran.err);
}

#[test]
fn a_condition_decides_whether_a_step_runs_and_how_often() {
    let steps_text = "[[steps]]\nname = \"a\"\nprompt = \"x\"\nrepeat = 2\nuntil = \"{{steps.a.output}} contains never\"\n\
                      [[steps]]\nname = \"b\"\nprompt = \"x\"\n";
    let pipeline = PipelineFixture::new(steps_text);
    let ran = pipeline.run(&[]);
    assert_eq!(ran.outcome(), (2, "checks_failed".to_owned(), "partial".to_owned()), "{}", ran.err);
    assert_eq!((steps(&ran).len(), pipeline.ran().len()), (2, 2));
    let again = pipeline.run(&[]);
    assert_eq!((again.code, pipeline.ran().len()), (2, 2), "{}", again.err);
    let pipeline = PipelineFixture::new(&steps_text.replace("never", "built"));
    assert_eq!(steps(&pipeline.run(&[])), ["a", "b"]);
    let pipeline =
        PipelineFixture::new(&steps_text.replace("until", "when").replace("a.output", "b.output"));
    assert_eq!(pipeline.run(&[]).code, 3);
}

/// A list, a session for each of its items, and a step with all their answers.
const ITEMS: &str = r#"
[[steps]]
name = "list"
prompt = "List."
model = "scripted/list.toml"

[[steps]]
name = "each"
foreach = "{{steps.list.output}}"
prompt = "Do '{{item}}'."
checks = ["test $(grep -c built ran) -ne $FAILS"]

[[steps]]
name = "all"
prompt = "Describe '{{steps.each.output}}'."
"#;

fn items_fixture(list: &str, fails_after: &str) -> PipelineFixture {
    let pipeline = PipelineFixture::new(&ITEMS.replace("$FAILS", fails_after));
    pipeline.cli.write("list.toml", &format!("[[turn]]\ntext = {list:?}\n"));
    pipeline
}

#[test]
fn each_item_of_a_list_has_a_session_in_order() {
    let pipeline = items_fixture("- one\n\n2. {{item}}\n* three", "9");
    let ran = pipeline.run(&[]);
    assert_eq!(ran.outcome(), (0, "llm_done".to_owned(), "success".to_owned()), "{}", ran.err);
    assert_eq!(steps(&ran), ["list", "each", "each", "each", "all"]);
    assert_eq!(ran.json()["workflow"]["iterations"][3]["item"], "three");
    assert!(ran.err.contains("each: item 2 of 3: {{item}}"), "{}", ran.err);
    let messages = pipeline.messages();
    for (message, item) in messages[1..4].iter().zip(["one", "{{item}}", "three"]) {
        assert!(message.contains(&format!("Do '{item}'.")), "{message}");
        assert!(!message.contains("Iteration") && !message.contains("Notes"), "{message}");
    }
    assert!(messages[4].contains(r"Describe 'built\n\nbuilt\n\nbuilt'."), "{}", messages[4]);
    assert_eq!((pipeline.run(&[]).code, pipeline.ran().len()), (0, 4));
}

#[test]
fn a_list_may_be_empty_and_must_not_be_too_long() {
    let ran = items_fixture(" \n- ", "9").run(&[]);
    assert_eq!(
        (ran.code, steps(&ran)),
        (0, vec!["list".to_owned(), "all".to_owned()]),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("each: skipped"), "{}", ran.err);
    let pipeline = items_fixture(&"- x\n".repeat(101), "9");
    for _ in 0..2 {
        let ran = pipeline.run(&[]);
        assert_eq!((ran.code, steps(&ran)), (2, vec!["list".to_owned()]), "{}", ran.err);
        let why = "the list of a step has 101 items; at most 100 are possible";
        assert!(ran.json()["error"] == why && ran.err.contains(why), "{}{}", ran.out, ran.err);
    }
}

/// The step ends there. The same command runs the checks again, and continues after that item.
#[test]
fn an_item_that_fails_its_checks_is_checked_again() {
    let pipeline = items_fixture("one\ntwo\nthree", "2");
    for _ in 0..2 {
        let ran = pipeline.run(&[]);
        assert_eq!(
            ran.outcome(),
            (2, "checks_failed".to_owned(), "partial".to_owned()),
            "{}",
            ran.err
        );
        assert_eq!(
            (pipeline.ran().len(), &ran.json()["workflow"]["end"]),
            (2, &"item_failed".into())
        );
    }
    pipeline.cli.write("ran", "built\nbuilt\nbuilt\n");
    let ran = pipeline.run(&[]);
    assert_eq!((ran.code, steps(&ran).len(), pipeline.ran().len()), (0, 5, 5), "{}", ran.err);
}

#[test]
fn a_killed_step_with_items_continues_at_its_item() {
    for lines in 3..=12 {
        let pipeline = items_fixture("one\ntwo\nthree", "9");
        let child = pipeline.begin(&[]);
        wait_until("the journal grows", || pipeline.journal_lines() >= lines);
        std::thread::sleep(std::time::Duration::from_millis(lines as u64 * 7 % 23));
        stop(child, Signal::KILL);
        let again = pipeline.run(&[]);
        assert_eq!((again.code, steps(&again).len()), (0, 5), "after {lines} lines: {}", again.err);
        assert!(pipeline.ran().len() <= 4, "after {lines} lines: {:?}", pipeline.ran());
    }
}

/// The cost of a killed evaluation counts like any other.
#[test]
fn a_killed_evaluation_is_paid() {
    let script = |delay: u64| {
        format!(
            "price = {{ input = 1.0, output = 10.0 }}\nmax_output = 100\n[[turn]]\ndelay_ms = {delay}\n\
             text = '{{\"completed\": true, \"confidence\": 0.9}}'\nusage = {{ input = 1000, output = 100 }}\n"
        )
    };
    let steps = "[[steps]]\nname = \"a\"\nprompt = \"x\"\n";
    let pipeline = PipelineFixture::new(steps);
    pipeline.cli.write("build.toml", &script(0));
    let args = ["--self-eval", "basic"];
    assert_eq!(pipeline.run(&args).json()["cost"], 0.004);

    let pipeline = PipelineFixture::new(steps);
    pipeline.cli.write("build.toml", &script(2000));
    let child = pipeline.begin(&args);
    let sessions = || fs::read_dir(pipeline.cli.path("out/sessions")).into_iter().flatten();
    let journals = || {
        let paths = sessions().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect::<Vec<_>>()
    };
    let is_calling = || {
        let mut journals = journals();
        journals.sort();
        let evaluation = journals.get(1).map(|path| fs::read_to_string(path).unwrap());
        evaluation.is_some_and(|text| text.contains("prepared"))
    };
    wait_until("the evaluation runs", is_calling);
    stop(child, Signal::KILL);
    pipeline.cli.write("build.toml", &script(0));
    let again = pipeline.run(&args);
    let cost = again.json()["cost"].as_f64().unwrap();
    // The two calls with replies, and the input of the other one.
    assert!(again.code == 0 && cost > 0.004, "{cost}: {}", again.err);
    assert_eq!(journals().len(), 3);
}

/// After a kill at any moment, no step and no command runs twice.
#[test]
fn a_killed_pipeline_continues_where_it_was() {
    for lines in 1..=14 {
        let pipeline = PipelineFixture::new(STEPS);
        let child = pipeline.begin(&[]);
        wait_until("the journal grows", || pipeline.journal_lines() >= lines);
        std::thread::sleep(std::time::Duration::from_millis(lines as u64 * 5 % 23));
        stop(child, Signal::KILL);
        let again = pipeline.run(&[]);
        assert_eq!(again.code, 0, "after {lines} lines: {}", again.err);
        let run = pipeline.ran();
        // A command that was killed before it did anything is not repeated.
        assert!(run.len() <= 4 && steps(&again).len() <= 5, "after {lines} lines: {run:?}");
        assert!(run.iter().filter(|line| *line == "planned").count() <= 1, "{run:?}");
    }
}

#[test]
fn a_pipeline_that_is_stopped_in_a_session_resumes_it() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::KILL, -1)] {
        let pipeline = PipelineFixture::new(STEPS);
        pipeline.cli.write("build.toml", &script("built", 600_000));
        let child = pipeline.begin(&[]);
        wait_until("the second step runs", || pipeline.ran().len() == 2);
        assert_eq!(stop(child, signal).code, code);
        pipeline.cli.write("build.toml", &script("built", 0));
        let again = pipeline.run(&[]);
        assert_eq!((again.code, steps(&again).len()), (0, 4), "{}", again.err);
        assert_eq!(pipeline.ran(), ["planned", "built", "built", "built"]);
    }
}

/// All counts of the result cover the workflow, and not only its last process.
#[test]
fn the_result_counts_what_earlier_processes_did() {
    let pipeline = PipelineFixture::new(STEPS);
    pipeline.cli.write("build.toml", &script("built", 600_000));
    let child = pipeline.begin(&[]);
    wait_until("the second step runs", || pipeline.ran().len() == 2);
    stop(child, Signal::KILL);
    pipeline.cli.write("build.toml", &script("built", 0));
    let [again, nothing_left] = [pipeline.run(&[]).json(), pipeline.run(&[]).json()];
    // Four iterations with two calls each; one more if the process had sent it before it was killed.
    let calls = again["llm_calls"].as_u64().unwrap();
    assert!(again["steps"] == 4 && (8..=9).contains(&calls), "{again}");
    let models = again["models"].as_array().unwrap().iter();
    assert_eq!(models.map(|model| model["calls"].as_u64().unwrap()).sum::<u64>(), calls, "{again}");
    let by_source = again["costs"]["by_source"].as_object().unwrap().values();
    let sum: f64 = by_source.map(|cost| cost.as_f64().unwrap()).sum();
    assert!((sum - again["cost"].as_f64().unwrap()).abs() < 1e-9, "{again}");
    for count in ["cost", "costs", "usage", "llm_calls", "steps"] {
        assert_eq!(nothing_left[count], again[count], "{count}");
    }
}

#[test]
fn the_budget_is_that_of_all_steps() {
    let pipeline = PipelineFixture::new(STEPS);
    let ran = pipeline.run(&["--budget", "0.012"]);
    assert_eq!(
        ran.outcome(),
        (2, "budget_exceeded".to_owned(), "partial".to_owned()),
        "{}",
        ran.err
    );
    assert!(ran.json()["cost"].as_f64().unwrap() <= 0.012, "{}", ran.out);
    let again = pipeline.run(&["--budget", "1"]);
    assert_eq!(again.code, 0, "{}", again.err);
}

#[test]
fn every_mistake_is_reported_and_nothing_is_started() {
    let pipeline = PipelineFixture::new(
        "[[steps]]\nname = \"a\"\nprompt = \"x\"\nmodle = \"m\"\nagent = \"unknown\"\n\
         [[steps]]\nname = \"b\"\nprompt = \"{{steps.c.output}}\"\nrepeat = true\n",
    );
    let ran = pipeline.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    for part in [
        "4 mistakes",
        "steps.toml:1: unknown agent `unknown`",
        "steps.toml:4: unknown key `modle`",
        "steps.toml:6: `prompt` uses `c`, which is not an earlier step",
        "steps.toml:9: `repeat` has to be a whole number",
        "nothing was started",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    pipeline.cli.write(
        "steps.toml",
        "[[steps]]\nname = \"a\"\nprompt = \"x\"\nagent = \"unknown\"\n\n\
         [[steps]]\nname = \"b\"\nprompt = \"x\"\nmodel = \"nothing/x\"\n",
    );
    let ran = pipeline.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    for part in
        ["steps.toml:1: unknown agent `unknown`", "steps.toml:6: unknown provider 'nothing'"]
    {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert!(pipeline.ran().is_empty() && !pipeline.cli.path("out").exists());
    let missing = pipeline.cli.run(&["pipeline", "none.toml"]);
    assert_eq!(missing.code, 3, "{}", missing.err);
}
