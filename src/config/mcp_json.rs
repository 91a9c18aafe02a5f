//! `.mcp.json`, the file that many programs share.
//!
//! What other programs put there and this one does not know is passed over: the file is not ours alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use thiserror::Error;

use super::file::{self, Author};
use super::origin::{Document, Origin, Rank};
use super::problem::{Notice, NoticeCause, Problem, Trouble};
use super::tree::{Node, Table, Value};
use super::typed::put;
use crate::exec::is_secret;

#[derive(Deserialize)]
struct McpJson {
    #[serde(rename = "mcpServers", default)]
    servers: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Server {
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

/// The variables of the environment, by name.
pub(super) type Variables<'a> = dyn Fn(&str) -> Option<&'a str> + 'a;

/// The variables of the environment that a file may have.
type Open<'a, 'b> = dyn Fn(&str) -> Result<Option<&'a str>, Withheld> + 'b;

/// Why a file doesn't get the value of a variable.
#[derive(Debug, Error)]
enum Withheld {
    #[error("{0} is not set")]
    Unset(String),
    #[error(
        "{0} may hold a secret, and a file of the project gets none; declare the server in your own configuration, or \
         name this file with --mcp-config"
    )]
    Secret(String),
}

/// Returns the layer that a file makes; none when there is no such file.
pub(super) fn of_file(
    path: &Path,
    rank: Rank,
    author: Author,
    variables: &Variables<'_>,
    notices: &mut Vec<Notice>,
) -> Result<Option<Table>, Vec<Problem>> {
    let open = |name: &str| match author {
        // Somebody else's file must not send the user's keys to a server of their choice.
        Author::Anybody if is_secret(name) => Err(Withheld::Secret(name.to_owned())),
        Author::Anybody | Author::NotEverybody | Author::Us => Ok(variables(name)),
    };
    match file::read(path, author) {
        Ok(None) => Ok(None),
        Ok(Some(document)) => parse(&document, rank, &open, notices).map(Some),
        Err(error) => Err(vec![Problem::new(Origin::DEFAULT, Trouble::Unreadable(error))]),
    }
}

fn parse(
    document: &Arc<Document>,
    rank: Rank,
    variables: &Open<'_, '_>,
    notices: &mut Vec<Notice>,
) -> Result<Table, Vec<Problem>> {
    let whole = Origin::file(rank, document, 0..0);
    let json: McpJson = serde_json::from_str(document.text()).map_err(|error| {
        let origin = Origin::file(rank, document, offset(document.text(), &error)..usize::MAX);
        vec![Problem::new(origin, Trouble::Syntax(without_place(&error)))]
    })?;
    let (mut servers, mut problems) = (Vec::new(), Vec::new());
    for (name, value) in json.servers {
        // A key that stands in the file word for word is found again; where it does not, the file itself is told.
        let origin = match document.text().find(&format!("\"{name}\"")) {
            Some(begin) => Origin::file(rank, document, begin..begin + name.len() + 2),
            None => whole.clone(),
        };
        let wrong = |what: String| {
            let what = format!("server `{name}`: {what}");
            Problem::new(origin.clone(), Trouble::Other(what))
        };
        match Server::deserialize(value) {
            Ok(server) if server.disabled => {}
            Ok(server) if server.kind.as_deref() == Some("sse") => {
                let message = format!(
                    "server `{name}` is left out: HTTP with SSE is outdated, give it as `http`"
                );
                notices.push(Notice { origin, message, cause: NoticeCause::Other });
            }
            Ok(server) => match server.table(&name, &origin, variables) {
                Ok(table) => servers.push(Node::new(Value::Table(table), origin)),
                Err(why) => {
                    let message = format!("server `{name}` is left out: {why}");
                    notices.push(Notice { origin, message, cause: NoticeCause::Other });
                }
            },
            Err(error) => problems.push(wrong(error.to_string())),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut table = Table::new();
    put(&mut table, "mcp.servers", Value::List(servers), &whole);
    Ok(table)
}

impl Server {
    /// Returns the server as an entry of `[[mcp.servers]]`; fails with a variable that it can't have.
    fn table(
        self,
        name: &str,
        origin: &Origin,
        variables: &Open<'_, '_>,
    ) -> Result<Table, Withheld> {
        let node = |value| Node::new(value, origin.clone());
        let text = |text: &str| Ok(node(Value::Text(expand(text, variables)?)));
        let pairs = |pairs: &BTreeMap<String, String>| {
            let pair = |(key, value): (&String, &String)| Ok((key.clone(), text(value)?));
            let table: Result<Table, Withheld> = pairs.iter().map(pair).collect();
            Ok::<_, Withheld>(node(Value::Table(table?)))
        };
        let mut table = Table::from([("name".to_owned(), node(Value::Text(name.to_owned())))]);
        let mut set = |key: &str, node| table.insert(key.to_owned(), node);
        if let Some(url) = &self.url {
            set("url", text(url)?);
            set("headers", pairs(&self.headers)?);
        } else {
            if let Some(command) = &self.command {
                set("command", text(command)?);
            }
            let args: Result<Vec<Node>, Withheld> = self.args.iter().map(|arg| text(arg)).collect();
            set("args", node(Value::List(args?)));
            set("env", pairs(&self.env)?);
        }
        Ok(table)
    }
}

/// Returns a text with the values of variables for `${NAME}` and `${NAME:-default}`; fails with the name of one that is
/// not set.
fn expand(text: &str, variables: &Open<'_, '_>) -> Result<String, Withheld> {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((inside, after)) = behind.split_once('}') else { break };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        expanded.push_str(before);
        expanded.push_str(
            variables(name)?.or(default).ok_or_else(|| Withheld::Unset(name.to_owned()))?,
        );
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn offset(text: &str, error: &serde_json::Error) -> usize {
    let before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    before.map(str::len).sum::<usize>() + error.column().saturating_sub(1)
}

/// Returns the message alone; the place is told by the origin.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or_else(|| text.clone(), |(message, _)| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, Vec<String>> {
        let document = Document::new(".mcp.json".into(), text);
        let mut notices = Vec::new();
        let variables = |name: &str| match name {
            "API_KEY" => Err(Withheld::Secret(name.to_owned())),
            name => Ok((name == "TOKEN").then_some("canary")),
        };
        match parse(&document, Rank::Project, &variables, &mut notices) {
            Ok(table) => {
                let table = Value::Table(table).to_string();
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
            .mcp.json:4:13: server `c` is left out: HTTP with SSE is outdated, give it as `http` \
            .mcp.json:5:13: server `e` is left out: NO is not set \
            .mcp.json:5:40: server `f` is left out: API_KEY may hold a secret, and a file of the project gets none; \
            declare the server in your own configuration, or name this file with --mcp-config";
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        assert_eq!(read("{\n  \"mcpServers\": 1\n}").unwrap_err().len(), 1);
        assert_eq!(read("{\n x").unwrap_err(), [".mcp.json:2:2: key must be a string"]);
    }
}
