//! `.mcp.json`, a file that many programs share.
//!
//! Unknown keys are ignored, since they may be for other programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use thiserror::Error;

use super::checked_file::{self, OwnerCheck};
use super::origin::{ConfigDocument, LayerRank, ValueOrigin};
use super::overrides::insert_at_path;
use super::problem::{ConfigNotice, ConfigProblem, NoticeCause, ProblemKind};
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};
use crate::exec::is_secret_variable;

#[derive(Deserialize)]
struct McpJson {
    #[serde(rename = "mcpServers", default)]
    servers: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct McpJsonServer {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

/// Looks up an environment variable.
pub(super) type VariableLookup<'a> = dyn Fn(&str) -> Option<&'a str> + 'a;

/// Looks up an environment variable that the file may use.
type AllowedVariableLookup<'a, 'b> = dyn Fn(&str) -> Result<Option<&'a str>, WithheldVariable> + 'b;

/// Why a file can't use a variable.
#[derive(Debug, Error)]
enum WithheldVariable {
    #[error("{0} is not set")]
    Unset(String),
    #[error(
        "{0} may hold a secret, and a file of the project gets none; declare the server in your own configuration, or \
         name this file with --mcp-config"
    )]
    Secret(String),
}

/// Returns the layer of a file; `None` if there is no such file.
pub(super) fn read_layer(
    path: &Path,
    rank: LayerRank,
    author: OwnerCheck,
    variables: &VariableLookup<'_>,
    notices: &mut Vec<ConfigNotice>,
) -> Result<Option<ConfigTable>, Vec<ConfigProblem>> {
    let open = |name: &str| match author {
        // A file that others can write must not send the user's keys to a server of their choice.
        OwnerCheck::Unchecked if is_secret_variable(name) => {
            Err(WithheldVariable::Secret(name.to_owned()))
        }
        OwnerCheck::Unchecked | OwnerCheck::NotWorldWritable | OwnerCheck::UserOrRoot => {
            Ok(variables(name))
        }
    };
    match checked_file::read_file(path, author) {
        Ok(None) => Ok(None),
        Ok(Some(document)) => parse_servers(&document, rank, &open, notices).map(Some),
        Err(error) => {
            Err(vec![ConfigProblem::new(ValueOrigin::DEFAULT, ProblemKind::Unreadable(error))])
        }
    }
}

fn parse_servers(
    document: &Arc<ConfigDocument>,
    rank: LayerRank,
    variables: &AllowedVariableLookup<'_, '_>,
    notices: &mut Vec<ConfigNotice>,
) -> Result<ConfigTable, Vec<ConfigProblem>> {
    let whole = ValueOrigin::in_file(rank, document, 0..0);
    let json: McpJson = serde_json::from_str(document.text()).map_err(|error| {
        let origin =
            ValueOrigin::in_file(rank, document, byte_offset(document.text(), &error)..usize::MAX);
        vec![ConfigProblem::new(origin, ProblemKind::Syntax(message_without_position(&error)))]
    })?;
    let (mut servers, mut problems) = (Vec::new(), Vec::new());
    for (name, value) in json.servers {
        // The position of a key is found by its text; otherwise the whole file is reported.
        let origin = match document.text().find(&format!("\"{name}\"")) {
            Some(begin) => ValueOrigin::in_file(rank, document, begin..begin + name.len() + 2),
            None => whole.clone(),
        };
        let wrong = |what: String| {
            let what = format!("server `{name}`: {what}");
            ConfigProblem::new(origin.clone(), ProblemKind::Other(what))
        };
        match McpJsonServer::deserialize(value) {
            Ok(server) if server.disabled => {}
            Ok(server) if server.kind.as_deref() == Some("sse") => {
                let message =
                    format!("server `{name}` is ignored: HTTP with SSE is outdated, use `http`");
                notices.push(ConfigNotice { origin, message, cause: NoticeCause::Other });
            }
            Ok(server) => match server.into_table(&name, &origin, variables) {
                Ok(table) => servers.push(ConfigNode::new(ConfigValue::Table(table), origin)),
                Err(why) => {
                    let message = format!("server `{name}` is ignored: {why}");
                    notices.push(ConfigNotice { origin, message, cause: NoticeCause::Other });
                }
            },
            Err(error) => problems.push(wrong(error.to_string())),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut table = ConfigTable::new();
    insert_at_path(&mut table, "mcp.servers", ConfigValue::List(servers), &whole);
    Ok(table)
}

impl McpJsonServer {
    /// Returns the server as an entry of `[[mcp.servers]]`; fails with a variable that it can't use.
    fn into_table(
        self,
        name: &str,
        origin: &ValueOrigin,
        variables: &AllowedVariableLookup<'_, '_>,
    ) -> Result<ConfigTable, WithheldVariable> {
        let node = |value| ConfigNode::new(value, origin.clone());
        let text = |text: &str| Ok(node(ConfigValue::Text(expand_variables(text, variables)?)));
        let pairs = |pairs: &BTreeMap<String, String>| {
            let pair = |(key, value): (&String, &String)| Ok((key.clone(), text(value)?));
            let table: Result<ConfigTable, WithheldVariable> = pairs.iter().map(pair).collect();
            Ok::<_, WithheldVariable>(node(ConfigValue::Table(table?)))
        };
        let mut table =
            ConfigTable::from([("name".to_owned(), node(ConfigValue::Text(name.to_owned())))]);
        let mut set = |key: &str, node| table.insert(key.to_owned(), node);
        if let Some(url) = &self.url {
            set("url", text(url)?);
            set("headers", pairs(&self.headers)?);
        } else {
            if let Some(command) = &self.command {
                set("command", text(command)?);
            }
            let args: Result<Vec<ConfigNode>, WithheldVariable> =
                self.args.iter().map(|arg| text(arg)).collect();
            set("args", node(ConfigValue::List(args?)));
            set("env", pairs(&self.env)?);
        }
        Ok(table)
    }
}

/// Expands `${NAME}` and `${NAME:-default}`; fails with a variable that is not set.
fn expand_variables(
    text: &str,
    variables: &AllowedVariableLookup<'_, '_>,
) -> Result<String, WithheldVariable> {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((inside, after)) = behind.split_once('}') else { break };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        expanded.push_str(before);
        expanded.push_str(
            variables(name)?.or(default).ok_or_else(|| WithheldVariable::Unset(name.to_owned()))?,
        );
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn byte_offset(text: &str, error: &serde_json::Error) -> usize {
    let before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    before.map(str::len).sum::<usize>() + error.column().saturating_sub(1)
}

/// Returns the message without the position, which the origin has.
fn message_without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or_else(|| text.clone(), |(message, _)| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, Vec<String>> {
        let document = ConfigDocument::new(".mcp.json".into(), text);
        let mut notices = Vec::new();
        let variables = |name: &str| match name {
            "API_KEY" => Err(WithheldVariable::Secret(name.to_owned())),
            name => Ok((name == "TOKEN").then_some("canary")),
        };
        match parse_servers(&document, LayerRank::Project, &variables, &mut notices) {
            Ok(table) => {
                let table = ConfigValue::Table(table).to_string();
                Ok(notices.iter().fold(table, |text, notice| format!("{text} {notice}")))
            }
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn servers_of_both_kinds_are_read_and_variables_put_in() {
        let text = r#"{"mcpServers": {
            "a": {"command": "x", "args": ["-y", ""], "env": {"T": "${TOKEN}"}, "alwaysAllow": []},
            "b": {"type": "http", "url": "https://h/${PART:-mcp}", "headers": {"A": "B ${TOKEN}"}},
            "c": {"type": "sse", "url": "https://h/"}, "d": {"command": "x", "disabled": true},
            "e": {"command": "${NO}"}, "f": {"url": "https://h/${API_KEY:-x}"}}}"#;
        let expected = "{ mcp = { servers = [\
            { args = [\"-y\", \"\"], command = \"x\", env = { T = \"canary\" }, name = \"a\" }, \
            { headers = { A = \"B canary\" }, name = \"b\", url = \"https://h/mcp\" }] } } \
            .mcp.json:4:13: server `c` is ignored: HTTP with SSE is outdated, use `http` \
            .mcp.json:5:13: server `e` is ignored: NO is not set \
            .mcp.json:5:40: server `f` is ignored: API_KEY may hold a secret, and a file of the project gets none; \
            declare the server in your own configuration, or name this file with --mcp-config";
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn problems_are_reported_with_their_position() {
        assert_eq!(read("{\n  \"mcpServers\": 1\n}").unwrap_err().len(), 1);
        assert_eq!(read("{\n x").unwrap_err(), [".mcp.json:2:2: key must be a string"]);
    }
}
