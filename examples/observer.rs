//! An observer: the events of a run, as they happen.

#![allow(clippy::print_stdout)] // an example shows what it does

use architect::port::RunEvent;
use architect::{Agent, Script};

const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "read_file", arguments = { path = "notes.txt" } }]

[[turn]]
text = "The notes say: buy milk."
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workspace = tempfile::tempdir()?;
    std::fs::write(workspace.path().join("notes.txt"), "Buy milk.\n")?;
    let agent = Agent::builder()
        .scripted_model(Script::from_toml("script", SCRIPT)?)
        .workspace(workspace.path())
        .on_event(|event| match event {
            RunEvent::Handled { output, .. } => {
                for change in &output.transitions {
                    println!("{:?} -> {:?}", change.from, change.to);
                }
            }
            RunEvent::Ended { .. } => println!("ended"),
            RunEvent::Started { .. } | RunEvent::ReplyDelta { .. } | RunEvent::Notice { .. } => {}
        })
        .build()?;
    println!("{}", agent.run("What do the notes say?")?.output);
    Ok(())
}
