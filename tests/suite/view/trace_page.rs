//! The trace as a page, in a browser. Its pictures are kept in `target/screenshots`.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use architect::machine::{CallPurpose, CloseReason, StateKind, StopReason};
use architect::types::{
    CallId, Decision, FileAction, FileChange, MessageOrigin, MicroUsd, ReplyFinish, RunTime,
    TimeSpan, Tokens, ToolStatus,
};
use architect::view::trace::{
    CallEnd, CallSpan, PhaseTime, SpanUsage, Speaker, StateTime, StepChange, SubagentSpan,
    SubagentTrace, ToolSpan, Trace, TraceMessage, TracePhase, TraceSubject, TransitionCount,
};
use serde_json::json;

use crate::kit::browser::{self, Browser};

/// A trace that grows step by step.
struct TraceBuilder {
    trace: Trace,
    now: u64,
}

const MILLISECOND: u64 = 1000;

impl TraceBuilder {
    fn new(model: &str, agent: &str, task: &str) -> Self {
        let subject = TraceSubject {
            session_id: "0199c2f4-7a31-7d52-b0aa-5d1c9f3e2b10".to_owned(),
            created: "2026-11-02T09:14:07Z".to_owned(),
            program: "architect 0.1.0".to_owned(),
            model: model.to_owned(),
            agent: agent.to_owned(),
            workspace: "/home/user/shop".to_owned(),
        };
        let trace = Trace {
            subject,
            state: StateKind::Done,
            stop_reason: Some(StopReason::LlmDone),
            duration: TimeSpan::ZERO,
            steps: 0,
            llm_calls: 0,
            tokens: Tokens::ZERO,
            cost: Some(MicroUsd::ZERO),
            states: Vec::new(),
            edges: Vec::new(),
            calls: Vec::new(),
            tools: Vec::new(),
            subagents: Vec::new(),
            messages: Vec::new(),
            changes: Vec::new(),
            subagent_traces: Vec::new(),
        };
        let mut builder = Self { trace, now: 0 };
        builder.say(Speaker::User { origin: MessageOrigin::Task }, 0, None, task);
        builder
    }

    fn say(&mut self, speaker: Speaker, request: usize, call: Option<&CallId>, text: &str) {
        let seq = self.trace.messages.len() as u64;
        let (at, call) = (RunTime(self.now), call.cloned());
        let text = text.into();
        self.trace.messages.push(TraceMessage { seq, at, request, call, speaker, text });
    }

    fn request(&mut self, millis: u64, step: Option<u32>, end: CallEnd) {
        let duration = TimeSpan::from_millis(millis);
        if let CallEnd::Replied { usage, .. } = &end {
            let tokens = usage.input_tokens + usage.output_tokens;
            self.trace.tokens = Tokens(self.trace.tokens.0 + tokens);
            self.trace.cost = self.trace.cost.zip(usage.cost).map(|(sum, cost)| sum + cost);
            self.trace.llm_calls += 1;
        }
        self.trace.calls.push(CallSpan {
            purpose: CallPurpose::Agent,
            attempt: 1,
            model: None,
            step,
            messages: u32::try_from(self.trace.messages.len()).unwrap(),
            started_at: RunTime(self.now),
            duration,
            encode: Some(TimeSpan(millis * 10)),
            first_byte: Some(TimeSpan(millis * 400)),
            end,
            charged: None,
        });
        self.now += duration.0;
    }

    /// Adds a request and a reply with this text.
    fn reply(&mut self, millis: u64, has_calls: bool, text: &str) {
        let finish = if has_calls { ReplyFinish::ToolCalls } else { ReplyFinish::Stop };
        let grown = 1200 + 400 * self.trace.calls.len().min(60) as u64;
        let usage = SpanUsage {
            input_tokens: grown,
            output_tokens: 90,
            cached_input_tokens: grown - 500,
            cost: Some(MicroUsd(grown * 2)),
        };
        self.trace.steps += u32::from(has_calls);
        let step = has_calls.then_some(self.trace.steps);
        self.request(millis, step, CallEnd::Replied { finish, usage });
        if !text.is_empty() {
            self.say(Speaker::Assistant, self.trace.calls.len() - 1, None, text);
        }
    }

    fn tool(
        &mut self,
        name: &str,
        arguments: &str,
        millis: u64,
        (status, output): (ToolStatus, &str),
    ) -> &mut ToolSpan {
        let id = CallId::from(&*format!("c{}", self.trace.tools.len()));
        let request = self.trace.calls.len() - 1;
        let name_of = || name.into();
        self.say(Speaker::ToolCall { name: name_of() }, request, Some(&id), arguments);
        let authorized_at = RunTime(self.now);
        self.now += millis * MILLISECOND;
        let speaker = Speaker::ToolResult { name: name_of(), status };
        self.say(speaker, request, Some(&id), output);
        let decision = match status {
            ToolStatus::Denied => Decision::deny("rule 3 of permissions.deny: git push *"),
            _ => Decision::allow("rule 1 of permissions.allow: cargo *"),
        };
        self.trace.tools.push(ToolSpan {
            call: id,
            request,
            name: name.into(),
            arguments: arguments.into(),
            authorized_at,
            started_at: (status != ToolStatus::Denied)
                .then(|| authorized_at.after(TimeSpan(millis * 50))),
            ended_at: RunTime(self.now),
            status: Some(status),
            decision: Some(decision),
            changes: Vec::new(),
        });
        self.trace.tools.last_mut().unwrap()
    }

    fn finish(mut self) -> Trace {
        self.trace.duration = TimeSpan(self.now);
        let phase = |phase, part| PhaseTime { phase, time: TimeSpan(self.now * part / 10) };
        let state = |state, part, of: TracePhase| StateTime {
            state,
            visits: self.trace.llm_calls,
            time: TimeSpan(self.now * part / 10),
            phases: vec![phase(of, part)],
        };
        self.trace.states = vec![
            state(StateKind::CallingSending, 6, TracePhase::FirstByte),
            state(StateKind::Executing, 4, TracePhase::Tools),
        ];
        let (from, to) = (StateKind::CallingSending, StateKind::Executing);
        let count = self.trace.steps;
        self.trace.edges = vec![TransitionCount { from, to, event: "REPLIED", count }];
        self.trace
    }
}

const PATCH: &str = "\
--- a/src/cart.rs
+++ b/src/cart.rs
@@ -12,7 +12,8 @@ impl Cart {
     pub fn total(&self) -> Money {
-        self.items.iter().map(|item| item.price).sum()
+        let prices = self.items.iter().map(|item| item.price * item.count);
+        prices.sum()
     }
 }
";

/// A session as they usually are: a failed request, an edit, a failed command, a denied one, and a sub-agent.
fn usual() -> Trace {
    let mut b = TraceBuilder::new(
        "anthropic/claude-sonnet-5",
        "build",
        "The total of a cart ignores how many of each item there are. Fix it and add a test.",
    );
    let reason = "529 overloaded: the provider asks for another attempt".into();
    b.request(900, None, CallEnd::Failed { reason });
    b.reply(2400, true, "I look at the cart first.");
    b.tool("read_file", r#"{"path": "src/cart.rs"}"#, 4, (ToolStatus::Ok, "12\tpub fn total"));
    b.tool(
        "search_code",
        r#"{"pattern": "fn total", "path": "src"}"#,
        31,
        (ToolStatus::Ok, "src/cart.rs:13"),
    );
    b.reply(1800, true, "");
    let task = r#"{"agent": "review", "task": "Which callers rely on the total?"}"#;
    let dispatched = b.now;
    let mut child = TraceBuilder::new("anthropic/claude-haiku-5", "review", "Which callers?");
    child.reply(1100, true, "");
    child.tool("grep", r#"{"text": "total("}"#, 22, (ToolStatus::Ok, "src/invoice.rs:40"));
    child.reply(900, false, "Only the invoice does.");
    let child = child.finish();
    let call = b.tool("dispatch_subagent", task, 2300, (ToolStatus::Ok, "Only the invoice does."));
    let (call, started_at) = (Some(call.call.clone()), call.started_at.unwrap());
    for reply in &child.calls {
        let CallEnd::Replied { usage, .. } = reply.end else { continue };
        let at = RunTime(dispatched).after(reply.started_at.since(RunTime::START));
        b.trace.subagents.push(SubagentSpan { at, usage });
        b.trace.cost = b.trace.cost.zip(usage.cost).map(|(sum, cost)| sum + cost);
    }
    b.trace.llm_calls += child.llm_calls;
    b.trace.tokens = Tokens(b.trace.tokens.0 + child.tokens.0);
    b.trace.subagent_traces.push(SubagentTrace { call, started_at, trace: child });
    b.reply(3100, true, "Now the fix.");
    let edit = r#"{"path": "src/cart.rs", "old_str": "self.items.iter().map(|item| item.price).sum()",
        "new_str": "let prices = self.items.iter().map(|item| item.price * item.count);\n        prices.sum()"}"#;
    let tool = b.tool("edit_file", edit, 12, (ToolStatus::Ok, "Edited src/cart.rs."));
    let change =
        |path: &str, action| FileChange { path: path.into(), action, added: 2, removed: 1 };
    tool.changes.push(change("src/cart.rs", FileAction::Modified));
    let step = b.trace.steps;
    let change = StepChange {
        step,
        path: "src/cart.rs".into(),
        added: 2,
        removed: 1,
        patch: PATCH.to_owned(),
    };
    b.trace.changes.push(change);
    let failed = "running 14 tests\ntest cart::counts_items ... FAILED\n\nerror: test failed";
    b.tool(
        "run_command",
        r#"{"command": "cargo test --lib cart"}"#,
        4200,
        (ToolStatus::Failed, failed),
    );
    b.reply(2700, true, "The test expects cents.");
    b.tool(
        "run_command",
        r#"{"command": "cargo test"}"#,
        3900,
        (ToolStatus::Ok, "test result: ok"),
    );
    b.tool(
        "run_command",
        r#"{"command": "git push origin main"}"#,
        1,
        (ToolStatus::Denied, "Denied by a rule."),
    );
    b.reply(
        1500,
        false,
        "The total counts each item as often as it is in the cart, and a test shows it.",
    );
    b.finish()
}

fn long(steps: usize) -> Trace {
    let mut b = TraceBuilder::new("openai/gpt-6", "build", "A task of many steps.");
    let output = "error[E0308]: mismatched types in src/lib.rs\n".repeat(12);
    for step in 0..steps {
        b.reply(900, true, "A short remark before the call.");
        let text = format!("result of step {step}\n{output}");
        let command = json!({ "command": format!("cargo test --test part_{step}") }).to_string();
        b.tool("run_command", &command, 400, (ToolStatus::Ok, &text));
    }
    b.reply(900, false, "Done.");
    b.finish()
}

/// Texts that would run, load something, or end the element that they are in.
const HOSTILE: &str = "</script></style></title></pre></details></main><script>window.ran=1</script>\
    <img src=http://127.0.0.1:9/i onerror=window.ran=2><svg onload=window.ran=3><iframe srcdoc='<script>parent.ran=4</script>'>\
    </iframe><a href=javascript:window.ran=5>x</a>\" onclick=\"window.ran=6\" autofocus onfocus='window.ran=7' style=x:expression(1) \
    <meta http-equiv=refresh content=0;url=http://127.0.0.1:9/m><base href=http://127.0.0.1:9/><form action=http://127.0.0.1:9/>\
    <link rel=stylesheet href=http://127.0.0.1:9/c> url(http://127.0.0.1:9/u) ]]> --> <!-- {{x}} ${x} \u{202e}\u{0}\u{1b}[2J\r\n&lt;script&gt;";

/// A session in which every text is hostile.
fn hostile() -> Trace {
    let mut b = TraceBuilder::new(HOSTILE, HOSTILE, HOSTILE);
    b.trace.subject = TraceSubject {
        session_id: HOSTILE.to_owned(),
        created: HOSTILE.to_owned(),
        program: HOSTILE.to_owned(),
        workspace: HOSTILE.to_owned(),
        ..b.trace.subject
    };
    b.trace.stop_reason = Some(StopReason::Closed(CloseReason::MaxSteps));
    b.request(100, None, CallEnd::Failed { reason: HOSTILE.into() });
    b.reply(100, true, HOSTILE);
    b.trace.calls[1].end = match b.trace.calls[1].end.clone() {
        CallEnd::Replied { usage, .. } => {
            CallEnd::Replied { usage, finish: ReplyFinish::Other(HOSTILE.into()) }
        }
        end => end,
    };
    let path = |path: &str| FileChange {
        path: path.into(),
        action: FileAction::Created,
        added: 1,
        removed: 0,
    };
    for arguments in [HOSTILE.to_owned(), json!({ HOSTILE: HOSTILE, "a": [HOSTILE] }).to_string()] {
        let tool = b.tool(HOSTILE, &arguments, 50, (ToolStatus::Ok, HOSTILE));
        tool.decision = Some(Decision::deny(HOSTILE));
        tool.changes.push(path(HOSTILE));
        tool.call = CallId::from(HOSTILE);
    }
    for tool in ["read_file", "run_command", "apply_patch", "edit_file"] {
        let fields = ["path", "command", "patch", "old_str", "new_str"]
            .map(|it| (it.to_owned(), json!(HOSTILE)));
        let arguments = serde_json::Value::Object(fields.into_iter().collect()).to_string();
        b.tool(tool, &arguments, 50, (ToolStatus::Failed, HOSTILE));
    }
    for step in [1, 77] {
        let (path, patch) = (HOSTILE.into(), format!("+{HOSTILE}\n-{HOSTILE}\n@@{HOSTILE}\n"));
        b.trace.changes.push(StepChange { step, path, added: 1, removed: 1, patch });
    }
    for origin in [MessageOrigin::Steering, MessageOrigin::Summary] {
        b.say(Speaker::User { origin }, 9, None, HOSTILE);
    }
    b.say(Speaker::Partial, 1, None, HOSTILE);
    let (call, trace) = (Some(CallId::from("c3")), b.trace.clone());
    b.trace.subagent_traces.push(SubagentTrace { call, started_at: RunTime(1), trace });
    b.finish()
}

/// Keeps a page in `target/screenshots`.
fn page(name: &str, html: &str) -> PathBuf {
    let path = browser::artefacts().join(format!("{name}.html"));
    std::fs::write(&path, html).unwrap();
    path
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

const NOT_SHOWN: &str = "return [...document.querySelectorAll('details:not([open])')].length";

#[test]
fn a_click_opens_what_happened_and_a_search_finds_it() {
    let Some(browser) = Browser::start(1280, 860) else { return };
    let path = page("trace", &usual().html());
    browser.open(&path);
    browser.keep_screenshot("trace-light");
    // Everything is on the first screen: the session, the cost, and the beginning of the waterfall.
    let first =
        "return document.querySelector('.step').getBoundingClientRect().top < innerHeight / 2";
    assert_eq!(browser.run(first), json!(true));
    // A click on a bar opens the call with its decision, its arguments, its change and its output.
    let edit = ".step:nth-of-type(3) > .at:has(.patch)";
    let text = || browser.run(&format!("return document.querySelector('{edit}').innerText"));
    let before = text().as_str().unwrap().len();
    browser.click(&format!("{edit} > summary .track"));
    let opened = text().as_str().unwrap().to_owned();
    assert!(opened.len() > before, "{opened}");
    for shown in [
        "allowed",
        "rule 1 of permissions.allow",
        "old_str",
        "item.price * item.count",
        "Edited src/cart.rs.",
    ] {
        assert!(opened.contains(shown), "{shown}: {opened}");
    }
    browser.keep_screenshot("trace-open");
    browser.emulate("screen", "dark");
    browser.keep_screenshot("trace-dark");
    browser.emulate("screen", "light");
    // The sub-agent is in the same picture, and its steps are within its call.
    let bars = "const box = e => e.getBoundingClientRect();\
        const sub = document.querySelector('.sub'), call = box(sub.previousElementSibling.querySelector('.track i:last-child'));\
        const all = [...sub.querySelectorAll(':scope > .row .track i, :scope > .step > .row .track i')].map(box);\
        return [all.length, all.every(b => b.left >= call.left - 1 && b.right <= call.right + 4)]";
    assert_eq!(browser.run(bars), json!([4, true]));
    // A search keeps only the steps that contain the text, opens them, and marks it.
    browser.type_into("#search", "counts_items");
    browser.wait_for("document.getElementById('found').value == '1 of 5'");
    let seen =
        "return [...document.querySelectorAll('.many:not([hidden]) > .step:not([hidden])')].length";
    assert_eq!(browser.run(seen), json!(1));
    browser.type_into("#search", "\u{e007}");
    browser.wait_for("CSS.highlights.get('found').size == 1");
    browser.wait_for("[...CSS.highlights.get('found')][0].getClientRects().length == 1");
    browser.keep_screenshot("trace-search");
    browser.type_into("#search", "\u{e00c}");
    browser.wait_for("document.querySelectorAll('.step[hidden],.many[hidden]').length == 0");
    // Keys move between the rows that can be seen, and open and close them.
    let closed = browser.run(NOT_SHOWN);
    browser.press("j");
    browser.press("\u{e015}");
    let focused = "return document.activeElement.innerText.split('\\n')[0]";
    assert_eq!(browser.run(focused), json!("task"));
    browser.press("\u{e014}");
    assert_eq!(browser.run(NOT_SHOWN).as_u64(), closed.as_u64().map(|all| all - 1));
    browser.press("\u{e012}");
    browser.press("\u{e012}");
    assert_eq!(browser.run(focused), json!("Step 1"));
    browser.press("/");
    assert_eq!(browser.run("return document.activeElement.id"), json!("search"));
    // The scale of a step instead of that of the run.
    browser.click("#zoom");
    let wide = "return document.querySelector('.step > .at:nth-of-type(2) .track i:last-child').getBoundingClientRect().width > 50";
    assert_eq!(browser.run(wide), json!(true));
    browser.keep_screenshot("trace-zoom");
    browser.run("document.querySelector('.chart').scrollIntoView({block: 'center'})");
    browser.keep_screenshot("trace-chart");
    assert!(browser.print().starts_with(b"%PDF"));
    assert_eq!(browser.take_messages(), [""; 0]);
    assert_eq!(browser.take_requests(), [url(&path)]);
}

#[test]
fn a_page_fits_a_narrow_window() {
    let Some(browser) = Browser::start(500, 800) else { return };
    let path = page("trace-narrow", &usual().html());
    browser.open(&path);
    browser.keep_screenshot("trace-narrow");
    let fits = "return document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(browser.run(fits), json!(true));
}

#[test]
fn nothing_from_a_session_runs_or_loads_anything() {
    let Some(browser) = Browser::start(1280, 860) else { return };
    let html = hostile().html();
    let path = page("trace-hostile", &html);
    browser.open(&path);
    browser.run("for (const group of document.querySelectorAll('details')) group.open = true");
    browser.type_into("#search", "<script>window");
    browser.wait_for("document.getElementById('found').value.includes(' of ')");
    browser.type_into("#search", "\u{e007}");
    browser.wait_for("CSS.highlights.get('found').size > 10");
    browser.keep_screenshot("trace-hostile");
    let made = "return [...document.querySelectorAll('img,iframe,object,embed,base,link,form,svg[onload],script,a')]\
        .map(e => e.localName)";
    assert_eq!(browser.run(made), json!(["a", "script"]));
    let handlers = "return [...document.querySelectorAll('*')].flatMap(e => [...e.attributes])\
        .filter(a => a.name.startsWith('on') || /javascript:/.test(a.value)).length";
    assert_eq!(browser.run(handlers), json!(0));
    assert_eq!(browser.run("return window.ran ?? null"), json!(null));
    assert_eq!(browser.take_messages(), [""; 0]);
    assert_eq!(browser.take_requests(), [url(&path)]);
    // Even if a text got into the page unescaped, the policy of the page would keep it from doing anything.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (before, after) = html.split_once("<main>").unwrap();
    let loud = format!(
        "<script>window.ran=1</script><img src=http://{address}/i onerror=window.ran=2>\
        <p onclick=window.ran=3 id=p>x</p><iframe srcdoc='<script>parent.ran=4</script>'></iframe>\
        <link rel=stylesheet href=http://{address}/c>"
    );
    let path = page("trace-unescaped", &format!("{before}<main>{loud}{after}"));
    browser.open(&path);
    browser.click("#p");
    assert_eq!(browser.run("return window.ran ?? null"), json!(null));
    let refused = browser.take_messages();
    for kind in ["img-src", "script-src", "style-src"] {
        assert!(refused.iter().any(|message| message.contains(kind)), "{kind}: {refused:#?}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn ten_thousand_steps_stay_usable() {
    let Some(browser) = Browser::start(1280, 860) else { return };
    let (begun, html) = (Instant::now(), long(10_000).html());
    let rendered = begun.elapsed();
    let path = page("trace-long", &html);
    let begun = Instant::now();
    browser.open(&path);
    let loaded = begun.elapsed();
    browser.keep_screenshot("trace-long");
    let begun = Instant::now();
    browser.type_into("#search", "result of step 9876");
    browser.wait_for("document.getElementById('found').value == '1 of 10001'");
    browser.type_into("#search", "\u{e007}");
    browser.wait_for("CSS.highlights.get('found').size == 1");
    let found = begun.elapsed();
    browser.type_into("#search", "\u{e00c}");
    let begun = Instant::now();
    browser.run("scrollTo(0, document.body.scrollHeight / 2)");
    browser.run(
        "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))",
    );
    let scrolled = begun.elapsed();
    println!(
        "{} MB, rendered in {rendered:?}, loaded in {loaded:?}, found in {found:?}, scrolled in {scrolled:?}",
        html.len() >> 20
    );
    assert!(loaded.as_secs() < 60);
}
