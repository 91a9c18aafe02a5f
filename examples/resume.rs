//! Resuming: a stored session continues with another message, also in another process.

#![allow(clippy::print_stdout)] // an example shows what it does

use architect::{Agent, Script};

const SCRIPT: &str = r#"
[[turn]]
text = "What should the function be called?"

[[turn]]
text = "Then it is called parse_date."
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (workspace, sessions) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let agent = || {
        Agent::builder()
            .scripted_model(Script::from_toml("script", SCRIPT)?)
            .workspace(workspace.path())
            .sessions(sessions.path())
            .build()
    };
    let first = agent()?.run("Name the function that parses dates.")?;
    println!("{}", first.output);
    let session = first.session_id.ok_or("the run has no session")?;
    let second = agent()?.resume(&session, Some("Choose a name yourself."))?;
    println!("{}", second.output);
    Ok(())
}
