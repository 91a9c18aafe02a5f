//! The chart is checked by a program of others: Spin, where it is installed.

use std::path::Path;
use std::process::{Command, Output};

use architect::view::chart::{StatechartFormat, render};

/// Runs a program in a folder, and returns its output, or `None` if it isn't installed.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> Option<Output> {
    let ran = Command::new(program).args(arguments).current_dir(folder).output();
    ran.ok().inspect(|ran| {
        assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stdout));
    })
}

/// A property of the model, and how it is checked.
type Property = (&'static str, &'static [&'static str]);

const ENDS: Property = ("ends", &["-f"]);
const ABSORBING: Property = ("absorbing", &[]);

/// Checks a model, and returns those of these properties that it doesn't have, or `None` without Spin or a compiler.
fn violated(model: &str, properties: &[Property]) -> Option<Vec<Property>> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.pml"), model).unwrap();
    run(folder.path(), "spin", &["-a", "run.pml"])?;
    run(folder.path(), "cc", &["-w", "-o", "pan", "pan.c"])?;
    let mut violated = Vec::new();
    for (name, fairness) in properties {
        let arguments = [*fairness, &["-a", "-n", "-m100000", "-N", name]].concat();
        let pan = folder.path().join("pan");
        let output = run(folder.path(), pan.to_str().unwrap(), &arguments)?;
        let output = String::from_utf8(output.stdout).unwrap();
        let is_complete = !output.contains("max search depth too small");
        assert!(output.contains("State-vector") && is_complete, "{output}");
        let states = output.lines().find(|line| line.contains("states, stored")).unwrap_or("");
        let errors = output.lines().find(|line| line.contains("errors:")).unwrap();
        let count = errors.split("errors: ").nth(1).unwrap();
        println!("spin: {name} {fairness:?}: {count} errors ({})", states.trim());
        if count != "0" {
            violated.push((*name, *fairness));
        }
    }
    Some(violated)
}

#[test]
fn spin_finds_that_every_run_ends_and_closes_once() {
    let model = render(StatechartFormat::Promela).unwrap();
    let without_fairness: Property = ("ends", &[]);
    let others = [("closes_once", &[][..]), ("closing_leads_out", &[])];
    let properties = [&[ENDS, without_fairness, ABSORBING][..], &others].concat();
    let Some(found) = violated(&model, &properties) else {
        println!("skipped: spin and a compiler of C are needed");
        return;
    };
    // A sub-agent that reports its usage for ever is ended by the clock alone.
    assert_eq!(found, [without_fairness]);
    for counter in ["steps--", "repeats--", "models--", "attempts--", "calls--"] {
        let defective = model.replace(counter, "skip");
        assert_eq!(violated(&defective, &[ENDS]).unwrap(), [ENDS], "without {counter}");
    }
    let opened = model.replace("state == Done -> break", "state == Done -> state = Preparing");
    assert_eq!(violated(&opened, &[ABSORBING]).unwrap(), [ABSORBING]);
}
