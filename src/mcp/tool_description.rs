//! Selects the tools of a server, renames them, and limits their descriptions.
//!
//! A list of tools is untrusted text that goes into every model request. So each part of it is limited; the rest is
//! truncated or left out, with a note.

use std::collections::HashSet;

use serde_json::Value;

use super::http::{self, MirroredArgument};
use super::settings::{ServerLimits, ServerSpec, ToolLimits};
use crate::types::{Digest, strip_terminal_codes};

/// A tool as described by a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedTool {
    /// The name on the server.
    pub remote: String,
    /// The description for the model.
    pub description: String,
    /// The schema of the arguments.
    pub schema: Value,
    /// The size of the schema in bytes.
    pub schema_size: usize,
    /// The server's claims about the effects.
    pub hints: ToolHints,
    /// With HTTP, the arguments that are repeated in headers.
    pub mirrors: Vec<MirroredArgument>,
}

/// A server's claims about the effects of a tool. They are not verified, and permissions do not depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolHints {
    /// Whether a call changes nothing.
    pub read_only: bool,
    /// Whether a second call with the same arguments has no further effect.
    pub idempotent: bool,
}

/// The maximum length of a name that all providers accept.
const MAX_NAME: usize = 64;

/// The maximum length of a name accepted from a server.
const MAX_REMOTE_NAME: usize = 128;

/// The number of omitted tools that are named.
const MAX_NAMED: usize = 3;

/// Returns the tools to use, in order, and notes about the others.
pub(super) fn select_tools(
    items: Vec<Value>,
    spec: &ServerSpec,
    caps: &ServerLimits,
) -> (Vec<ListedTool>, Vec<String>) {
    let most = if spec.may_defer { caps.deferrable_tools } else { caps.tools };
    let (mut tools, mut refused, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let (mut size, mut surplus) = (0, 0);
    for item in items {
        let name = item.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !name.is_empty() && !spec.tools.allows(&name) {
            continue;
        }
        match ListedTool::parse(item, &name, caps) {
            Err(why) => refused.push((name, why)),
            Ok(_) if seen.contains(&name) => refused.push((name, "its name occurs twice".into())),
            // The first tool that does not fit ends the list: tools are not selected by size.
            Ok(tool)
                if surplus > 0 || tools.len() == most.count || size + tool.size() > most.bytes =>
            {
                surplus += 1;
            }
            Ok(tool) => {
                seen.insert(name);
                size += tool.size();
                tools.push(tool);
            }
        }
    }
    let mut notes = Vec::new();
    if surplus > 0 {
        let used = tools.len();
        let ToolLimits { count, bytes } = most;
        let limits = format!("{count} tools with descriptions and schemas of {} KiB", bytes >> 10);
        let (limits, hint) = match spec.may_defer {
            true => (format!("a server may have {limits}"), ""),
            false => (
                format!("all of them go into every request, and a server may then have {limits}"),
                ", or set `defer` to \"auto\" or true",
            ),
        };
        notes.push(format!(
            "only the first {used} tools are used and {surplus} are left out: {limits}; choose with `enabled_tools`{hint}"
        ));
    }
    if !refused.is_empty() {
        let named = refused.iter().take(MAX_NAMED);
        let named: Vec<_> =
            named.map(|(name, why)| format!("{} ({why})", shorten_name(name))).collect();
        let more = match refused.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        notes.push(format!("these tools are left out: {}{more}", named.join(", ")));
    }
    (tools, notes)
}

impl ListedTool {
    fn parse(mut item: Value, name: &str, caps: &ServerLimits) -> Result<Self, String> {
        if name.is_empty() {
            return Err("it has no name".to_owned());
        }
        if name.len() > MAX_REMOTE_NAME || name.chars().any(char::is_control) {
            return Err("its name is too long or not printable".to_owned());
        }
        // Tasks are not announced as supported.
        if item["execution"]["taskSupport"].as_str() == Some("required") {
            return Err("it runs as a task only".to_owned());
        }
        let Some(Value::Object(mut schema)) = item.get_mut("inputSchema").map(Value::take) else {
            return Err("it has no schema for its arguments".to_owned());
        };
        match schema.entry("type").or_insert_with(|| "object".into()) {
            Value::String(kind) if kind == "object" => {}
            _ => return Err("its arguments are not an object".to_owned()),
        }
        let schema = Value::Object(schema);
        let schema_size = schema.to_string().len();
        if schema_size > caps.schema_bytes {
            return Err(format!("the schema of its arguments has {schema_size} bytes"));
        }
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(strip_terminal_codes);
        let description = text(item.get("description")).or_else(|| text(item.get("title")));
        Ok(Self {
            remote: name.to_owned(),
            description: truncate(description.unwrap_or_default(), caps.description_bytes),
            mirrors: http::mirrored_arguments(&schema)?,
            schema,
            schema_size,
            hints: ToolHints::from_annotations(item.get("annotations")),
        })
    }

    /// Returns the size of the tool's description for the model, in bytes.
    fn size(&self) -> usize {
        self.remote.len() + self.description.len() + self.schema_size
    }
}

/// Returns a unique name that all providers accept.
pub(super) fn unique_name(server: &str, remote: &str, taken: &mut HashSet<String>) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String =
        format!("mcp_{server}_{remote}").chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name = if name.len() > MAX_NAME || taken.contains(&name) {
        // The name has a readable start, and a digest that makes it unique.
        let digest = Digest::of(server).with_digest(Digest::of(remote)).to_string();
        let end = &digest[..digest.len().min(8)];
        format!("{}_{end}", &name[..name.len().min(MAX_NAME - end.len() - 1)])
    } else {
        name
    };
    taken.insert(name.clone());
    name
}

fn shorten_name(name: &str) -> String {
    match name {
        "" => "one".to_owned(),
        name => format!("`{}`", name.chars().take(40).collect::<String>().escape_debug()),
    }
}

/// Truncates a text to `most` bytes.
pub(super) fn truncate(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

impl ToolHints {
    /// Parses annotations; missing ones default to the worst case.
    fn from_annotations(annotations: Option<&Value>) -> Self {
        let says = |name: &str| annotations?.get(name)?.as_bool();
        Self {
            read_only: says("readOnlyHint").unwrap_or(false),
            idempotent: says("idempotentHint").unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::settings::{Necessity, ServerTransport, ToolFilter};
    use super::*;

    fn tool(name: &str) -> Value {
        json!({ "name": name, "description": "d", "inputSchema": { "type": "object" } })
    }

    fn spec(tools: ToolFilter) -> ServerSpec {
        ServerSpec {
            name: "s".to_owned(),
            transport: ServerTransport::Stdio {
                command: String::new(),
                args: Vec::new(),
                env: Vec::new(),
            },
            timeout: Duration::from_secs(1),
            tools,
            may_defer: false,
            necessity: Necessity::Optional,
        }
    }

    fn names(items: Vec<Value>, caps: &ServerLimits) -> (Vec<String>, Vec<String>) {
        let (tools, notes) = select_tools(items, &spec(ToolFilter::default()), caps);
        (tools.into_iter().map(|tool| tool.remote).collect(), notes)
    }

    /// Fault M10.
    #[test]
    fn hostile_tools_are_left_out_with_a_note() {
        let mut long = tool("long");
        long["inputSchema"]["description"] = "x".repeat(100_000).into();
        let items = vec![
            tool("good"),
            tool("good"),
            json!({ "name": "bare" }),
            json!({ "name": "list", "inputSchema": { "type": "array" } }),
            json!({ "name": "task", "inputSchema": {}, "execution": { "taskSupport": "required" } }),
            tool("\u{1b}[31m"),
            tool(""),
            json!("no tool"),
            long,
        ];
        let (names, notes) = names(items, &ServerLimits::default());
        assert_eq!(names, ["good"]);
        let expected = "these tools are left out: `good` (its name occurs twice), `bare` (it has no schema for its \
                        arguments), `list` (its arguments are not an object), and 5 more";
        assert_eq!(notes, [expected]);
    }

    /// The schema keeps its dialect.
    #[test]
    fn a_schema_keeps_its_dialect() {
        let mut tool = tool("a");
        tool["inputSchema"]["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        let schema = tool["inputSchema"].clone();
        let spec = spec(ToolFilter::default());
        let (tools, _) = select_tools(vec![tool], &spec, &ServerLimits::default());
        assert_eq!(tools[0].schema, schema);
    }

    /// Fault M10.
    #[test]
    fn tools_and_descriptions_are_limited() {
        let items = (0..10_000).map(|n| tool(&format!("t{n}"))).collect();
        let (used, notes) = names(items, &ServerLimits::default());
        assert_eq!(used.len(), 256);
        assert!(notes[0].contains("9744 are left out"), "{notes:?}");
        let long = |name: String| {
            let mut tool = tool(&name);
            tool["description"] = "x".repeat(4 << 10).into();
            tool
        };
        let items = (0..100).map(|n| long(format!("t{n}"))).chain([tool("small")]).collect();
        let (used, notes) = names(items, &ServerLimits::default());
        assert_eq!((used.len(), used.last().unwrap().as_str()), (63, "t62"));
        assert!(notes[0].contains("38 are left out"), "{notes:?}");
        let mut wordy = tool("wordy");
        wordy["description"] = "é".repeat(5 << 20).into();
        let spec = spec(ToolFilter::default());
        let (tools, _) = select_tools(vec![wordy], &spec, &ServerLimits::default());
        assert_eq!(tools[0].description.len(), (4 << 10) + "…".len());
    }

    /// Fault M10.
    #[test]
    fn tools_that_requests_may_leave_out_have_a_higher_limit() {
        let items: Vec<Value> = (0..5_000).map(|n| tool(&format!("t{n}"))).collect();
        let select = |may_defer| {
            let spec = ServerSpec { may_defer, ..spec(ToolFilter::default()) };
            let (tools, notes) = select_tools(items.clone(), &spec, &ServerLimits::default());
            (tools.len(), notes.concat())
        };
        let (count, note) = select(false);
        assert!(
            count == 256 && note.contains("every request") && note.contains("`defer`"),
            "{note}"
        );
        let (count, note) = select(true);
        assert!(count == 4_096 && !note.contains("every request"), "{note}");
        assert!(note.contains("904 are left out: a server may have 4096 tools"), "{note}");
    }

    #[test]
    fn a_filtered_tool_does_not_count() {
        let filter = ToolFilter { enabled: Some(vec!["b*".to_owned()]), disabled: Vec::new() };
        let tools = ToolLimits { count: 1, ..ServerLimits::default().tools };
        let caps = ServerLimits { tools, ..ServerLimits::default() };
        let (tools, notes) = select_tools(vec![tool("a"), tool("b1")], &spec(filter), &caps);
        assert_eq!((tools[0].remote.as_str(), notes.len()), ("b1", 0));
    }

    /// Fault M10.
    #[test]
    fn names_are_plain_short_and_unique() {
        let mut taken = HashSet::new();
        let mut named = |server: &str, tool: &str| unique_name(server, tool, &mut taken);
        assert_eq!(named("git", "log"), "mcp_git_log");
        assert_eq!(named("git", "a.b c"), "mcp_git_a_b_c");
        let others = [
            named("git", "a_b_c"),
            named("a", "b_c"),
            named("a_b", "c"),
            named("x", &"y".repeat(100)),
            named("x", &"y".repeat(101)),
        ];
        assert!(others.iter().all(|name| name.len() <= 64 && name.is_ascii()), "{others:?}");
        assert_eq!(taken.len(), 7);
    }
}
