//! The tools of servers among the others: names, permissions, results.

use std::sync::Arc;

use architect::mcp::{CallResult, ServerSpec, ServerTool, ToolFilter};
use architect::policy::{CallKind, ConfirmMode, NoConfirmer};
use architect::port::{AuthorizationOutcome, CancellationToken, ToolSpec, Toolbox};
use architect::tools::{CallContext, ToolInvocation, ToolOutput, ToolRegistry, ToolSettings};
use architect::types::{CallAccess, ToolCall, ToolStatus};
use serde_json::{Map, Value, json};

use super::fixture::{McpFixture, StartedServers};
use crate::kit::effect::scope_with;

/// A tool of a server as one of the registry's.
struct Foreign(ServerTool);

struct ForeignCall(ServerTool, Map<String, Value>);

impl architect::tools::Tool for Foreign {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        Ok(Box::new(ForeignCall(self.0.clone(), self.0.parse_arguments(arguments)?)))
    }
}

impl ToolInvocation for ForeignCall {
    fn kind(&self) -> CallKind {
        CallKind::External
    }

    fn access(&self) -> CallAccess {
        CallAccess::Exclusive
    }

    fn summary(&self) -> String {
        format!("{} {}", self.0.remote_name(), Value::Object(self.1.clone()))
    }

    fn time_limit(&self) -> architect::types::TimeSpan {
        self.0.timeout()
    }

    fn run(self: Box<Self>, context: &CallContext<'_>) -> ToolOutput {
        let CallResult { status, text, .. } =
            self.0.call(self.1, context.call, context.scope, &NoConfirmer);
        ToolOutput::new(status, text)
    }
}

fn registry(started: &StartedServers, mode: ConfirmMode) -> ToolRegistry {
    let foreign = started.servers.tools().iter().cloned();
    let tools = foreign.map(|tool| Box::new(Foreign(tool)) as Box<dyn architect::tools::Tool>);
    ToolRegistry::new(tools.collect(), ToolSettings { mode, ..ToolSettings::default() })
}

fn call(registry: &ToolRegistry, tool: &str, arguments: &Value) -> (ToolStatus, Arc<str>) {
    let call = ToolCall::new("call-7".into(), tool, &arguments.to_string());
    let scope = scope_with(&CancellationToken::new());
    let result = match registry.prepare(&call).authorize(&scope) {
        AuthorizationOutcome::Approved { call: job, .. } => job(&scope),
        AuthorizationOutcome::Rejected(result) => result,
        AuthorizationOutcome::Abort | AuthorizationOutcome::Edited { .. } => panic!("aborted"),
    };
    (result.status, result.text)
}

#[test]
fn a_tool_of_a_server_is_authorized_like_any_other() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    let text = json!({ "text": "hello" });
    let allowed = call(&registry(&started, ConfirmMode::Yolo), "mcp_s_echo", &text);
    assert_eq!(allowed, (ToolStatus::Ok, "hello".into()));
    let asked = call(&registry(&started, ConfirmMode::ConfirmSensitive), "mcp_s_echo", &text);
    assert_eq!(asked.0, ToolStatus::Denied);
}

/// Arguments that do not fit the server's schema are reported to the model, and not sent.
#[test]
fn arguments_that_do_not_fit_the_schema_never_reach_the_server() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    let registry = registry(&started, ConfirmMode::Yolo);
    let (status, text) = call(&registry, "mcp_s_echo", &json!({ "text": 5 }));
    assert_ne!(status, ToolStatus::Ok);
    assert!(text.contains("Invalid arguments for mcp_s_echo: /text: "), "{text}");
    assert!(text.contains("\"string\""), "{text}");
    assert!(!world.log("s").contains(&"tools/call".to_owned()), "{:?}", world.log("s"));
    let big = started.servers.tools()[0]
        .parse_arguments("{\"text\": \"5\", \"n\": 18446744073709551616}");
    assert!(big.unwrap_err().contains("the integer 18446744073709551616 has more than 64 bits"));
    let (status, text) = call(&registry, "mcp_s_echo", &json!({ "text": "5" }));
    assert_eq!((status, &*text), (ToolStatus::Ok, "5"));
    assert!(world.log("s").contains(&"tools/call".to_owned()));
}

#[test]
fn a_tool_that_failed_says_why() {
    let world = McpFixture::new();
    let started = world.start_one("legacy");
    let yolo = registry(&started, ConfirmMode::Yolo);
    let result = |tool: &str| call(&yolo, tool, &json!({}));
    assert_eq!(result("mcp_s_fail"), (ToolStatus::Failed, "it did not work".into()));
    assert_eq!(result("mcp_s_refuse"), (ToolStatus::Failed, "text is missing".into()));
}

#[test]
fn a_server_can_recognize_a_repeated_call() {
    let world = McpFixture::new();
    let meta: Value = serde_json::from_str(&world.start_one("modern").ok("meta", "")).unwrap();
    assert_eq!(meta["architect/callId"], "call-7");
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
}

#[test]
fn only_the_tools_that_were_chosen_are_there() {
    let world = McpFixture::new();
    let list = |patterns: &[&str]| patterns.iter().map(|text| (*text).to_owned()).collect();
    let tools = ToolFilter { enabled: Some(list(&["e*", "f*"])), disabled: list(&["flood"]) };
    let started = world.start([ServerSpec { tools, ..world.test_server("s", "modern") }]);
    assert_eq!(started.names(), ["mcp_s_echo", "mcp_s_fail"]);
}

#[test]
fn the_order_of_tools_is_that_of_the_servers() {
    let world = McpFixture::new();
    let tools = ToolFilter { enabled: Some(vec!["echo".to_owned()]), ..ToolFilter::default() };
    let server =
        |name, behaviour| ServerSpec { tools: tools.clone(), ..world.test_server(name, behaviour) };
    let started = world.start([server("z", "silent"), server("a", "modern")]);
    assert_eq!(started.names(), ["mcp_z_echo", "mcp_a_echo"]);
}

/// Fault M9.
#[test]
fn the_tools_of_a_run_stay_what_they_are() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    let before: Vec<String> = started.names().iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(started.ok("change", ""), "changed");
    assert_eq!(started.names(), before);
    assert_eq!(world.log("s").iter().filter(|word| *word == "tools/list").count(), 1);
}

/// Fault M9.
#[test]
fn a_list_that_leads_in_a_circle_ends() {
    let world = McpFixture::new();
    let started = world.start([world.test_server("s", "modern,circle")]);
    assert_eq!(started.names(), ["mcp_s_first", "mcp_s_second"]);
    let expected = "of the MCP server `s`, the list of tools repeats a page";
    assert_eq!(started.problems(), [expected]);
}
