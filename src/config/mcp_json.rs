//! `.mcp.json`, a file that many programs share.
//!
//! Unknown keys are ignored, since they may be for other programs.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use super::checked_file::FileOwner;
use super::effective::ReadReport;
use super::origin::{ConfigDocument, ValueOrigin};
use super::problem::{NoticeCause, ProblemKind};
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue, insert_at_path};
use crate::exec::{has_address_password, is_secret_variable};

#[derive(Deserialize)]
struct McpJson {
    #[serde(rename = "mcpServers", default)]
    servers: Map<String, Value>,
}

/// Looks up an environment variable that the file may use.
type VariableLookup<'a, 'b> = dyn Fn(&str) -> Result<Option<&'a str>, WithheldVariable> + 'b;

/// An error in using a variable in the file.
#[derive(Debug, Error)]
enum WithheldVariable {
    #[error("{0} is not set")]
    Unset(String),
    #[error(
        "{0} may hold a secret, and a file of the project gets none; declare the server in your own configuration, or \
         name this file with --mcp-config"
    )]
    Secret(String),
    #[error(
        "{0} has a password, and a file of the project gets none; declare the server in your own configuration, or \
         name this file with --mcp-config"
    )]
    Password(String),
}

/// Returns the layer of a file.
pub(super) fn parse_layer<'a>(
    document: &Arc<ConfigDocument>,
    owner: FileOwner,
    variable: impl Fn(&str) -> Option<&'a str>,
    report: &mut ReadReport,
) -> Option<ConfigTable> {
    let lookup = |name: &str| match owner {
        // A file that others can write must not send the user's keys to a server that they choose.
        FileOwner::Project if is_secret_variable(name) => {
            Err(WithheldVariable::Secret(name.to_owned()))
        }
        FileOwner::Project if variable(name).is_some_and(has_address_password) => {
            Err(WithheldVariable::Password(name.to_owned()))
        }
        FileOwner::Project | FileOwner::Named | FileOwner::User => Ok(variable(name)),
    };
    let expand = |text: &str| expand_variables(text, &lookup);
    let text = document.text();
    let at = |span| ValueOrigin::in_file(owner.rank(), document, span);
    let json: McpJson = match serde_json::from_str(text) {
        Ok(json) => json,
        Err(error) => {
            let origin = at(byte_offset(text, &error)..usize::MAX);
            report.problem(origin, ProblemKind::Syntax(message_without_position(&error)));
            return None;
        }
    };
    let mut servers = Vec::new();
    for (name, server) in json.servers {
        // The position of a key is found by its text; otherwise the whole file is reported.
        let found = text.find(&format!("\"{name}\""));
        let origin = at(found.map_or(0..0, |begin| begin..begin + name.len() + 2));
        let Value::Object(mut server) = server else {
            let what = format!("server `{name}` must be an object");
            report.problem(origin, ProblemKind::Other(what));
            continue;
        };
        if server.get("disabled") == Some(&Value::Bool(true)) {
            continue;
        }
        let is_outdated = server.get("type").is_some_and(|kind| kind == "sse");
        let keys: &[&str] = match server.contains_key("url") {
            // Other programs have other keys in this table.
            true if server.get("oauth").is_some_and(|oauth| oauth.get("client_id").is_some()) => {
                &["url", "headers", "oauth"]
            }
            true => &["url", "headers"],
            false => &["command", "args", "env"],
        };
        server.retain(|key, value| keys.contains(&key.as_str()) && !value.is_null());
        server.insert("name".to_owned(), Value::String(name.clone()));
        let entry = match is_outdated {
            true => Err("HTTP with SSE is outdated, use `http`".to_owned()),
            false => ConfigValue::from_json(&Value::Object(server), &origin, &expand)
                .map_err(|why| why.to_string()),
        };
        match entry {
            Ok(entry) => servers.push(ConfigNode::new(entry, origin)),
            Err(why) => {
                let message = format!("server `{name}` is ignored: {why}");
                report.notice(origin, message, NoticeCause::Other);
            }
        }
    }
    let mut table = ConfigTable::new();
    insert_at_path(&mut table, "mcp.servers", ConfigValue::List(servers), &at(0..0));
    Some(table)
}

/// Expands `${NAME}` and `${NAME:-default}`; fails with a variable that is not set.
fn expand_variables(
    text: &str,
    variables: &VariableLookup<'_, '_>,
) -> Result<String, WithheldVariable> {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((inside, after)) = behind.split_once('}') else { break };
        let (name, default) =
            inside.split_once(":-").map_or((inside, None), |(name, text)| (name, Some(text)));
        let value = variables(name)?.or(default);
        expanded.push_str(before);
        expanded.push_str(value.ok_or_else(|| WithheldVariable::Unset(name.to_owned()))?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn byte_offset(text: &str, error: &serde_json::Error) -> usize {
    let before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    before.map(str::len).sum::<usize>() + error.column().saturating_sub(1)
}

/// Returns the message without the position, which is part of the origin.
fn message_without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or_else(|| text.clone(), |(message, _)| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, Vec<String>> {
        let document = ConfigDocument::new(".mcp.json".into(), text);
        let mut report = ReadReport::default();
        let variable = |name: &str| (name == "PLACE").then_some("canary");
        let table = parse_layer(&document, FileOwner::Project, variable, &mut report);
        if !report.problems.is_empty() {
            return Err(report.problems.iter().map(ToString::to_string).collect());
        }
        let table = ConfigValue::Table(table.unwrap()).to_string();
        Ok(report.notices.iter().fold(table, |text, notice| format!("{text} {notice}")))
    }

    #[test]
    fn servers_of_both_kinds_are_read_and_variables_put_in() {
        let text = r#"{"mcpServers": {
            "a": {"command": "x", "args": ["-y", ""], "env": {"T": "${PLACE}"}, "alwaysAllow": []},
            "b": {"type": "http", "url": "https://h/${PART:-mcp}", "headers": {"A": "B ${PLACE}"}},
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
