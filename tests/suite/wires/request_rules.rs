//! Whether a provider would accept a request: its documented and enforced rules, independent of the code that writes
//! requests.

use std::collections::HashSet;

use serde_json::Value;

use super::recorded_streams::Wire;

/// Returns the reason for which a provider would reject a request; `None` for a valid one.
pub(crate) fn validate(wire: Wire, body: &Value) -> Vec<String> {
    let mut wrong = RuleViolations::default();
    match wire {
        Wire::Anthropic => anthropic(body, &mut wrong),
        Wire::Chat => chat(body, &mut wrong),
        Wire::Gemini => gemini(body, &mut wrong),
        Wire::Responses => responses(body, &mut wrong),
    }
    wrong.0
}

/// The additional rules of Mistral.
pub(crate) fn validate_mistral(body: &Value) -> Vec<String> {
    let mut wrong = RuleViolations::default();
    chat(body, &mut wrong);
    let messages = list(&body["messages"]);
    for (index, pair) in messages.windows(2).enumerate() {
        if pair[0]["role"] == "tool"
            && !["tool", "assistant"].iter().any(|r| pair[1]["role"] == **r)
        {
            wrong.add(&format!("messages.{}", index + 1), "comes after a tool's");
        }
    }
    for id in
        messages.iter().flat_map(|message| list(&message["tool_calls"])).map(|call| &call["id"])
    {
        let id = text(id);
        wrong.require(id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "id", id);
    }
    let last = messages.last().map_or("", |message| text(&message["role"]));
    wrong.require(["user", "tool"].contains(&last), "the last role", last);
    wrong.require(body.get("stream_options").is_none(), "stream_options", "is not known");
    wrong.0
}

#[derive(Default)]
struct RuleViolations(Vec<String>);

impl RuleViolations {
    fn add(&mut self, place: &str, what: &str) {
        self.0.push(format!("{place}: {what}"));
    }

    fn require(&mut self, is_right: bool, place: &str, what: &str) {
        if !is_right {
            self.add(place, what);
        }
    }

    /// Returns whether a value is a non-empty text.
    fn text(&mut self, value: &Value, place: &str) {
        let is_text = value.as_str().is_some_and(|text| !text.trim().is_empty());
        self.require(is_text, place, "is no text with something in it");
    }

    fn name(&mut self, name: &Value, place: &str) {
        let name = text(name);
        let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        self.require(fits && (1..=64).contains(&name.len()), place, "is no name of a tool");
    }

    /// Arguments as text, which some servers parse.
    fn arguments(&mut self, arguments: &Value, place: &str) {
        let read: Result<Value, _> = serde_json::from_str(text(arguments));
        self.require(read.is_ok_and(|value| value.is_object()), place, "is no object");
    }

    fn tools<'a>(&mut self, tools: impl IntoIterator<Item = &'a Value>, schema: &str) {
        let mut names = HashSet::new();
        for tool in tools {
            self.name(&tool["name"], "tools");
            self.require(names.insert(text(&tool["name"])), "tools", "two have the same name");
            self.require(
                tool[schema]["type"] == "object",
                "tools",
                "takes something else than an object",
            );
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn anthropic(body: &Value, wrong: &mut RuleViolations) {
    wrong.text(&body["model"], "model");
    wrong.require(
        body["max_tokens"].as_u64().is_some_and(|most| most > 0),
        "max_tokens",
        "is missing",
    );
    wrong.tools(list(&body["tools"]), "input_schema");
    for block in list(&body["system"]) {
        wrong.text(&block["text"], "system");
    }
    let messages = list(&body["messages"]);
    wrong.require(
        messages.first().is_some_and(|m| m["role"] == "user"),
        "messages.0",
        "is not the user's",
    );
    let (mut ids, mut open): (HashSet<&str>, Vec<&str>) = Default::default();
    let mut before = "";
    for (index, message) in messages.iter().enumerate() {
        let place = format!("messages.{index}");
        let (role, blocks) = (text(&message["role"]), list(&message["content"]));
        wrong.require(["user", "assistant"].contains(&role), &place, "has no role");
        wrong.require(role != before, &place, "has the role of the one before");
        wrong.require(!blocks.is_empty(), &place, "is empty");
        before = role;
        let results = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let answered: Vec<_> = results.map(|block| text(&block["tool_use_id"])).collect();
        let mut sorted = (answered.clone(), std::mem::take(&mut open));
        sorted.0.sort_unstable();
        sorted.1.sort_unstable();
        wrong.require(
            sorted.0 == sorted.1,
            &place,
            "does not begin with an answer to each call before it",
        );
        for block in &blocks[answered.len()..] {
            match (text(&block["type"]), role) {
                ("text", _) => wrong.text(&block["text"], &place),
                ("tool_use", "assistant") => {
                    let id = text(&block["id"]);
                    wrong.name(&block["id"], &place);
                    wrong.name(&block["name"], &place);
                    wrong.require(
                        block["input"].is_object(),
                        &place,
                        "has a call without an object",
                    );
                    wrong.require(ids.insert(id), &place, "has a call whose id was there before");
                    open.push(id);
                }
                ("thinking", "assistant") => {
                    wrong.text(&block["signature"], &place);
                    wrong.require(
                        block["thinking"].is_string(),
                        &place,
                        "has a thought without text",
                    );
                    wrong.require(block.get("cache_control").is_none(), &place, "marks a thought");
                }
                ("redacted_thinking", "assistant") => wrong.text(&block["data"], &place),
                ("server_tool_use" | "brand_new_block", "assistant") => {}
                (kind, _) => {
                    wrong.add(&place, &format!("has a block '{kind}' that it cannot have"));
                }
            }
        }
        for result in &blocks[..answered.len()] {
            wrong.text(&result["content"], &place);
        }
        let ends = blocks.last().map_or("", |block| text(&block["type"]));
        wrong.require(!ends.ends_with("thinking"), &place, "ends with a thought");
    }
    wrong.require(open.is_empty(), "messages", "end with a call without a result");
    let defined = !list(&body["tools"]).is_empty();
    wrong.require(ids.is_empty() || defined, "tools", "are not defined, but were called");
    wrong.require(defined || body.get("tool_choice").is_none(), "tool_choice", "without tools");
    let marks = body.to_string().matches(r#""cache_control":{"#).count();
    wrong.require(marks <= 4, "cache_control", "stands in more than four places");
}

fn chat(body: &Value, wrong: &mut RuleViolations) {
    wrong.text(&body["model"], "model");
    wrong.tools(list(&body["tools"]).iter().map(|tool| &tool["function"]), "parameters");
    wrong.require(
        body.get("tools").is_none_or(|tools| !list(tools).is_empty()),
        "tools",
        "are none",
    );
    let streams = body["stream"] == true;
    wrong.require(
        streams || body.get("stream_options").is_none(),
        "stream_options",
        "without a stream",
    );
    let messages = list(&body["messages"]);
    wrong.require(
        messages.iter().any(|m| m["role"] == "user"),
        "messages",
        "have none of the user's",
    );
    let (mut ids, mut open): (HashSet<&str>, Vec<&str>) = Default::default();
    let mut before = "";
    for (index, message) in messages.iter().enumerate() {
        let (place, role) = (format!("messages.{index}"), text(&message["role"]));
        if role != "tool" {
            wrong.require(open.is_empty(), &place, "comes before each call is answered");
            open.clear();
        }
        match role {
            "system" => {
                wrong.require(index == 0, &place, "is a system prompt in the middle");
                wrong.text(&message["content"], &place);
            }
            "user" => {
                wrong.require(before != "user", &place, "is the second of the user's in a row");
                wrong.text(&message["content"], &place);
            }
            "tool" => {
                let id = text(&message["tool_call_id"]);
                let at = open.iter().position(|open| *open == id);
                wrong.require(at.is_some(), &place, "answers no call of the message before");
                at.map(|at| open.remove(at));
                wrong.text(&message["content"], &place);
            }
            "assistant" => {
                let calls = list(&message["tool_calls"]);
                match &message["content"] {
                    Value::Null => {
                        wrong.require(!calls.is_empty(), &place, "has neither text nor calls");
                    }
                    content => wrong.text(content, &place),
                }
                for call in calls {
                    let id = text(&call["id"]);
                    wrong.require(
                        !id.is_empty() && id.len() <= 64,
                        &place,
                        "has a call without an id",
                    );
                    wrong.require(ids.insert(id), &place, "has a call whose id was there before");
                    wrong.require(call["type"] == "function", &place, "has a call of no type");
                    wrong.name(&call["function"]["name"], &place);
                    wrong.arguments(&call["function"]["arguments"], &place);
                    open.push(id);
                }
            }
            other => wrong.add(&place, &format!("has the role '{other}'")),
        }
        before = role;
    }
    wrong.require(open.is_empty(), "messages", "end with a call without a result");
}

fn responses(body: &Value, wrong: &mut RuleViolations) {
    wrong.text(&body["model"], "model");
    wrong.require(body["store"] == false, "store", "is not off");
    wrong.require(
        body["max_output_tokens"].as_u64().is_none_or(|most| most >= 16),
        "max_output_tokens",
        "is too low",
    );
    wrong.tools(list(&body["tools"]), "parameters");
    let input = list(&body["input"]);
    wrong.require(!input.is_empty(), "input", "is empty");
    let (mut ids, mut open): (HashSet<&str>, HashSet<&str>) = Default::default();
    let mut waits = false;
    for (index, item) in input.iter().enumerate() {
        let place = format!("input.{index}");
        let kind = item["type"].as_str().unwrap_or("message");
        let is_models = kind != "function_call_output" && item["role"] != "user";
        wrong.require(is_models || !waits, &place, "comes where the item of a thought belongs");
        waits = kind == "reasoning";
        if kind != "function_call_output" && item["role"] == "user" {
            wrong.require(open.is_empty(), &place, "comes before each call is answered");
        }
        match kind {
            "message" => {
                let part = if item["role"] == "user" { "input_text" } else { "output_text" };
                wrong.require(!list(&item["content"]).is_empty(), &place, "is empty");
                for content in list(&item["content"]) {
                    wrong.require(
                        content["type"] == part,
                        &place,
                        "has a part that it cannot have",
                    );
                    wrong.text(&content["text"], &place);
                }
            }
            "reasoning" => wrong.text(&item["encrypted_content"], &place),
            "function_call" => {
                let id = text(&item["call_id"]);
                wrong.require((1..=64).contains(&id.len()), &place, "has no id");
                wrong.require(ids.insert(id), &place, "has an id that was there before");
                wrong.name(&item["name"], &place);
                wrong.arguments(&item["arguments"], &place);
                open.insert(id);
            }
            "function_call_output" => {
                let id = text(&item["call_id"]);
                wrong.require(open.remove(id), &place, "answers no call, or one a second time");
                wrong.text(&item["output"], &place);
            }
            "web_search_call" | "tool_search_call" | "tool_search_output" => {}
            other => wrong.add(&place, &format!("is of type '{other}'")),
        }
    }
    wrong.require(!waits, "input", "ends with a thought");
    wrong.require(open.is_empty(), "input", "has a call without a result");
}

fn gemini(body: &Value, wrong: &mut RuleViolations) {
    for tools in list(&body["tools"]) {
        wrong.tools(list(&tools["functionDeclarations"]), "parametersJsonSchema");
    }
    for part in list(&body["systemInstruction"]["parts"]) {
        wrong.text(&part["text"], "systemInstruction");
    }
    let contents = list(&body["contents"]);
    wrong.require(
        contents.first().is_some_and(|c| c["role"] == "user"),
        "contents.0",
        "is not the user's",
    );
    let mut before = "";
    for (index, content) in contents.iter().enumerate() {
        let (place, role) = (format!("contents.{index}"), text(&content["role"]));
        let parts = list(&content["parts"]);
        wrong.require(["user", "model"].contains(&role), &place, "has no role");
        wrong.require(!parts.is_empty(), &place, "is empty");
        for part in parts {
            let data = ["text", "functionCall", "functionResponse"];
            let count = data.iter().filter(|key| part.get(**key).is_some()).count();
            wrong.require(count == 1, &place, "has a part that is not one thing");
            let is_signed = part.get("thoughtSignature").is_some();
            if let Some(text) = part.get("text").filter(|_| !is_signed) {
                wrong.require(text != "", &place, "has a part without text");
            }
            wrong.require(
                role == "model" || part.get("functionCall").is_none(),
                &place,
                "calls, but is the user's",
            );
        }
        let calls: Vec<_> = parts.iter().filter_map(|part| part.get("functionCall")).collect();
        for (number, call) in calls.iter().enumerate() {
            wrong.name(&call["name"], &place);
            wrong.require(call["args"].is_object(), &place, "has a call without an object");
            let is_signed = parts.iter().any(|part| {
                part.get("functionCall") == Some(*call) && part.get("thoughtSignature").is_some()
            });
            wrong.require(number > 0 || is_signed, &place, "has a first call that is not signed");
        }
        if !calls.is_empty() {
            wrong.require(before == "user", &place, "calls, but does not come after the user");
            let next = contents.get(index + 1).map_or(&[][..], |next| list(&next["parts"]));
            let answers: Vec<_> = next.iter().map(|part| &part["functionResponse"]).collect();
            let names = |list: &[&Value]| -> Vec<String> {
                list.iter().map(|call| format!("{} {}", call["name"], call["id"])).collect()
            };
            wrong.require(names(&calls) == names(&answers), &place, "is not answered call by call");
        }
        let answers = parts.iter().filter(|part| part.get("functionResponse").is_some()).count();
        let called = match index.checked_sub(1).map(|before| list(&contents[before]["parts"])) {
            Some(parts) => parts.iter().filter(|part| part.get("functionCall").is_some()).count(),
            None => 0,
        };
        wrong.require(answers == called, &place, "has not as many answers as there were calls");
        before = role;
    }
}
