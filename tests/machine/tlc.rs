//! The chart is checked by a program of others: TLC, if Java is installed and `TLA2TOOLS` names its archive.

use std::env;
use std::process::Command;

use architect::view::chart::{StatechartFormat, render};

/// The properties of the model.
const PROPERTIES: [&str; 3] = ["Ends", "Absorbing", "ClosesOnce"];

/// Returns those of these properties that a model does not have, or `None` without TLC.
fn violated<'a>(model: &str, properties: &[&'a str]) -> Option<Vec<&'a str>> {
    let archive = env::var_os("TLA2TOOLS")?;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.tla"), model).unwrap();
    let constants = "STEPS = 2  REPEATS = 2  MODELS = 2  RETRIES = 2  CALLS = 3  COMMANDS = 1";
    let mut violated = Vec::new();
    for property in properties {
        let config = format!("SPECIFICATION Spec\nCONSTANTS {constants}\nPROPERTIES {property}\n");
        std::fs::write(folder.path().join("run.cfg"), config).unwrap();
        let mut tlc = Command::new("java");
        tlc.arg("-XX:+UseParallelGC").arg("-cp").arg(&archive).arg("tlc2.TLC");
        let ran = tlc.args(["-deadlock", "-config", "run.cfg", "run.tla"]);
        let ran = ran.current_dir(folder.path()).output().ok()?;
        let output = String::from_utf8_lossy(&ran.stdout);
        let count = output.lines().find(|line| line.contains("distinct states found,"));
        let has_ended = output.contains("No error has been found");
        assert!(has_ended || output.contains("properties were violated"), "{output}");
        println!("tlc: {property}: {has_ended} ({})", count.unwrap_or("").trim());
        if !has_ended {
            violated.push(*property);
        }
    }
    Some(violated)
}

#[test]
fn tlc_finds_that_every_run_ends_and_closes_once() {
    let model = render(StatechartFormat::Tla).unwrap();
    let Some(found) = violated(&model, &PROPERTIES) else {
        println!("skipped: Java is needed, and TLA2TOOLS");
        return;
    };
    assert!(found.is_empty(), "{found:?}");
    // In TLA+, the end of a tool call that is not counted is a step that changes nothing, which is no step.
    for counter in ["steps", "repeats", "models", "attempts"] {
        let used_up = format!("{counter}' = {counter} - 1");
        assert!(model.contains(&used_up), "{counter}");
        let defective = model.replace(&used_up, &format!("{counter}' = {counter}"));
        assert_eq!(violated(&defective, &["Ends"]).unwrap(), ["Ends"], "without {counter}");
    }
    let begin = "Environment ==\n";
    let rest = "steps, repeats, models, attempts, calls, commands, closings, closing_calls";
    let out =
        format!("    \\/ state = \"Done\" /\\ state' = \"Preparing\" /\\ UNCHANGED <<{rest}>>\n");
    let opened = model.replace(begin, &format!("{begin}{out}"));
    assert_eq!(violated(&opened, &["Absorbing"]).unwrap(), ["Absorbing"]);
}
