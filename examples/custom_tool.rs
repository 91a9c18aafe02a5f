//! An agent with a tool of its own: a function whose arguments are a type.

#![allow(clippy::print_stdout)] // an example shows what it does

use architect::{Agent, FunctionTool, Script};
use schemars::JsonSchema;
use serde::Deserialize;

/// The arguments of the tool. The model reads their doc comments.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WordCount {
    /// The text whose words are counted.
    text: String,
}

/// In place of a model, so that the example needs no key: `.model("anthropic/…")` takes a real one.
const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "count_words", arguments = { text = "one two three" } }]

[[turn]]
text = "The text has 3 words."
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count_words =
        FunctionTool::new("count_words", "Counts the words of a text.", |arguments: WordCount| {
            Ok(arguments.text.split_whitespace().count().to_string())
        });
    let workspace = tempfile::tempdir()?;
    let agent = Agent::builder()
        .scripted_model(Script::from_toml("script", SCRIPT)?)
        .workspace(workspace.path())
        .tool(count_words.read_only())
        .build()?;
    let result = agent.run("How many words has 'one two three'?")?;
    for call in &result.tools_used {
        println!("{}: {}", call.name, if call.success { "ok" } else { "failed" });
    }
    println!("{}", result.output);
    Ok(())
}
