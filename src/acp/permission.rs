//! Requests for permission, sent to the client in place of a question on the terminal.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionId, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::call_content::diff_block;
use super::client_connection::{ClientConnection, RequestFailure};
use super::run_updates::{ShownCalls, call_id};
use crate::policy::{
    CallKind, ConfirmationAnswer, ConfirmationRequest, Confirmer, Elicitation, ElicitationAnswer,
};
use crate::port::{EffectContext, lock};
use crate::tools::describe;
use crate::types::CallId;

const ONCE: &str = "once";
const SESSION: &str = "session";
const NO: &str = "no";
const ABORT: &str = "abort";

/// Keys of the calls that the user has allowed for the rest of a session.
pub(super) type SessionApprovals = Arc<Mutex<HashSet<String>>>;

/// Asks the user for confirmation through the client.
pub(super) struct PermissionRequests {
    pub(super) connection: ClientConnection,
    pub(super) session: SessionId,
    pub(super) shown: ShownCalls,
    pub(super) approvals: SessionApprovals,
    /// Whether the client can show forms.
    pub(super) has_forms: bool,
}

impl Confirmer for PermissionRequests {
    fn confirm(
        &self,
        question: &ConfirmationRequest<'_>,
        scope: &EffectContext,
    ) -> ConfirmationAnswer {
        let key = approval_key(question);
        if key.as_ref().is_some_and(|key| lock(&self.approvals).contains(key)) {
            return ConfirmationAnswer::Yes;
        }
        let fields = lock(&self.shown).get(question.call).cloned();
        let fields = fields.unwrap_or_else(|| subagent_call(question));
        let fields = fields.status(ToolCallStatus::Pending);
        let call = ToolCallUpdate::new(call_id(question.call), fields);
        let request = RequestPermissionRequest::new(self.session.clone(), call, options(question));
        let method = CLIENT_METHOD_NAMES.session_request_permission;
        let answer = self.connection.request(method, &request, &scope.cancel, None);
        match answer.map(|answer: RequestPermissionResponse| answer.outcome) {
            Ok(RequestPermissionOutcome::Selected(chosen)) => match &*chosen.option_id.0 {
                ONCE => ConfirmationAnswer::Yes,
                SESSION => {
                    lock(&self.approvals).extend(key);
                    ConfirmationAnswer::Yes
                }
                ABORT => ConfirmationAnswer::Abort,
                // An id that was not among the options is no permission.
                _ => ConfirmationAnswer::No,
            },
            Ok(_) | Err(RequestFailure::Cancelled | RequestFailure::TimedOut) => {
                ConfirmationAnswer::Abort
            }
            Err(RequestFailure::Refused(error)) => {
                log::warn!("the client can't ask for permission: {}", error.message);
                ConfirmationAnswer::Unavailable
            }
        }
    }

    fn can_answer(&self) -> bool {
        self.has_forms
    }

    fn answer(
        &self,
        question: &Elicitation,
        call: &CallId,
        scope: &EffectContext,
    ) -> ElicitationAnswer {
        let message = format!("{} (from the MCP server {})", question.message, question.server);
        let request = json!({
            "sessionId": self.session, "toolCallId": call_id(call), "mode": "form", "message": message,
            "requestedSchema": question.schema,
        });
        let method = CLIENT_METHOD_NAMES.elicitation_create;
        match self.connection.request::<FormAnswer>(method, &request, &scope.cancel, None) {
            Ok(answer) if answer.action == "accept" => {
                ElicitationAnswer::Accept(answer.content.unwrap_or_default())
            }
            Ok(answer) if answer.action == "decline" => ElicitationAnswer::Decline,
            Ok(_) | Err(RequestFailure::Cancelled | RequestFailure::TimedOut) => {
                ElicitationAnswer::Cancel
            }
            Err(RequestFailure::Refused(error)) => {
                log::warn!("the client can't ask a question of a server: {}", error.message);
                ElicitationAnswer::Decline
            }
        }
    }
}

/// The client's answer to a form.
#[derive(Deserialize)]
struct FormAnswer {
    action: String,
    content: Option<Map<String, Value>>,
}

/// Returns the fields of a sub-agent's call, which the client does not know from an update.
fn subagent_call(question: &ConfirmationRequest<'_>) -> ToolCallUpdateFields {
    let ConfirmationRequest { tool, summary, diff, .. } = question;
    let fields = ToolCallUpdateFields::new().title(format!("{tool} → {summary}"));
    match diff.is_empty() {
        true => fields,
        false => fields.content(vec![diff_block(diff.trim_end()).into()]),
    }
}

fn options(question: &ConfirmationRequest<'_>) -> Vec<PermissionOption> {
    let mut options = vec![PermissionOption::new(ONCE, "Yes", PermissionOptionKind::AllowOnce)];
    if let Some(rule) = question.rule {
        let name = format!("Yes, for the rest of this session: {rule}");
        options.push(PermissionOption::new(SESSION, name, PermissionOptionKind::AllowAlways));
    }
    options.push(PermissionOption::new(NO, "No", PermissionOptionKind::RejectOnce));
    let stop = "No, and stop";
    options.push(PermissionOption::new(ABORT, stop, PermissionOptionKind::RejectOnce));
    options
}

/// Returns the key of an approval for the rest of the session: the rule, and for a command also its summary, which
/// shows the folder and the variables.
fn approval_key(question: &ConfirmationRequest<'_>) -> Option<String> {
    let rule = question.rule?;
    let is_command = describe(question.tool).is_some_and(|tool| tool.kind() == CallKind::Command);
    Some(if is_command { format!("{rule}\n{}", question.summary) } else { rule.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tool: &str, summary: &str, rule: &str) -> Option<String> {
        let call = CallId::from("c");
        let (reason, rule) = ("", Some(rule));
        let (diff, findings, arguments, edit_error) = ("", &[][..], "", None);
        approval_key(&ConfirmationRequest {
            call: &call,
            tool,
            summary,
            reason,
            diff,
            findings,
            arguments,
            rule,
            edit_error,
        })
    }

    #[test]
    fn a_command_is_allowed_in_its_folder_and_a_file_whatever_is_written() {
        let rule = "run_command(make)";
        assert_ne!(key("run_command", "make", rule), key("run_command", "make (in sub)", rule));
        let rule = "write_file(a)";
        assert_eq!(key("write_file", "a (1 line)", rule), key("write_file", "a (2 lines)", rule));
    }
}
