//! The present activity of a run, as lines of a status area below the log.
//!
//! The log updates the status with the events of a run, and the drawing thread reads its lines ten times a second. Only
//! the newest state is kept, so that nothing queues up.

use std::sync::{Arc, Mutex};

use super::color::{DIM, Painter, WARNING};
use crate::port::{Clock, lock};
use crate::types::{
    CallId, EffectId, Language, MicroUsd, RunLimits, RunTime, TimeSpan, Tokens, Usage,
};
use crate::view::catalogue::text;
use crate::view::sanitize;
use crate::view::sink::ServerState;

/// The area below the log.
pub(super) trait LiveArea: Send {
    /// Returns whether there is anything to draw.
    fn is_active(&self) -> bool;

    /// Returns the lines for a terminal of this width: `most` at most, and none wider than the terminal.
    fn lines(&mut self, frame: usize, columns: usize, most: usize) -> Vec<String>;
}

impl LiveArea for Arc<Mutex<LiveStatus>> {
    fn is_active(&self) -> bool {
        lock(self).is_active()
    }

    fn lines(&mut self, frame: usize, columns: usize, most: usize) -> Vec<String> {
        lock(self).lines(frame, columns, most)
    }
}

/// The present activity of a run.
pub(super) struct LiveStatus {
    lang: Language,
    painter: Painter,
    clock: Arc<dyn Clock>,
    began: RunTime,
    model_call: Option<LiveModelCall>,
    /// The time of the next attempt, and the reason for it.
    retry: Option<(RunTime, String)>,
    /// The end of the model's reasoning so far.
    reasoning: String,
    calls: Vec<LiveCall>,
    servers: Vec<(String, ServerState)>,
    totals: Option<LiveTotals>,
}

struct LiveModelCall {
    text: &'static str,
    since: RunTime,
}

/// A tool call that has not ended.
struct LiveCall {
    id: CallId,
    effect: Option<EffectId>,
    title: String,
    since: RunTime,
    /// The last lines of its output.
    output: Vec<String>,
    progress: Option<String>,
    /// The usage of its sub-agent: model calls, tokens and cost.
    subagent: Option<(u32, Tokens, Option<MicroUsd>)>,
}

/// The running totals of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveTotals {
    pub(super) limits: RunLimits,
    pub(super) step: u32,
    pub(super) usage: Usage,
    /// The cost of the session so far, if the model has a price.
    pub(super) cost: Option<MicroUsd>,
    pub(super) context: Tokens,
    pub(super) window: Tokens,
}

pub(super) const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Limit of the kept reasoning, in bytes.
const MAX_REASONING: usize = 2_000;

/// The number of shown lines of reasoning, or of the output of a call that runs alone.
const TAIL_LINES: usize = 3;

/// The maximum number of shown calls.
const MAX_CALLS: usize = 8;

impl LiveStatus {
    pub(super) fn new(lang: Language, painter: Painter, clock: Arc<dyn Clock>) -> Self {
        Self {
            lang,
            painter,
            began: clock.now(),
            clock,
            model_call: None,
            retry: None,
            reasoning: String::new(),
            calls: Vec::new(),
            servers: Vec::new(),
            totals: None,
        }
    }

    /// Returns whether any activity is in progress.
    pub(super) fn is_active(&self) -> bool {
        let is_starting = self.servers.iter().any(|(_, state)| *state == ServerState::Starting);
        self.model_call.is_some() || self.retry.is_some() || !self.calls.is_empty() || is_starting
    }

    pub(super) fn begin_run(&mut self, limits: RunLimits) {
        self.began = self.clock.now();
        self.servers.clear();
        self.totals.get_or_insert_default().limits = limits;
    }

    /// Ends all activities.
    pub(super) fn end_run(&mut self) {
        self.end_model_call();
        self.retry = None;
        self.calls.clear();
        self.servers.clear();
    }

    pub(super) fn totals(&mut self) -> &mut LiveTotals {
        self.totals.get_or_insert_default()
    }

    pub(super) fn begin_model_call(&mut self) {
        let text = self.lang.pick(["waiting for the LLM", "esperando al LLM"]);
        self.retry = None;
        self.reasoning.clear();
        self.model_call = Some(LiveModelCall { text, since: self.clock.now() });
    }

    pub(super) fn end_model_call(&mut self) {
        self.model_call = None;
        self.reasoning.clear();
    }

    pub(super) fn retry_in(&mut self, wait: TimeSpan, why: String) {
        self.retry = Some((self.clock.now().after(wait), why));
    }

    pub(super) fn add_reasoning(&mut self, text: &str) {
        self.reasoning.push_str(text);
        if let Some(call) = &mut self.model_call {
            call.text = self.lang.pick(["the LLM is thinking", "el LLM está pensando"]);
        }
        if self.reasoning.len() > MAX_REASONING {
            let cut = self.reasoning.len() - MAX_REASONING / 2;
            let cut = (cut..=self.reasoning.len()).find(|at| self.reasoning.is_char_boundary(*at));
            let cut = cut.unwrap_or_default();
            self.reasoning.drain(..cut);
        }
    }

    pub(super) fn begin_text(&mut self) {
        self.reasoning.clear();
        if let Some(call) = &mut self.model_call {
            call.text = self.lang.pick(["the LLM is writing", "el LLM está escribiendo"]);
        }
    }

    pub(super) fn begin_call(&mut self, id: &CallId, title: String) {
        self.calls.push(LiveCall {
            id: id.clone(),
            effect: None,
            title,
            since: self.clock.now(),
            output: Vec::new(),
            progress: None,
            subagent: None,
        });
    }

    pub(super) fn end_call(&mut self, id: &CallId) {
        self.calls.retain(|call| call.id != *id);
    }

    /// Begins the time of a call when it runs, since its authorization may have waited for the user.
    pub(super) fn run_call(&mut self, id: &CallId, effect: EffectId) {
        let now = self.clock.now();
        if let Some(call) = self.call(id) {
            (call.effect, call.since) = (Some(effect), now);
        }
    }

    pub(super) fn set_output(&mut self, id: &CallId, text: &str) {
        if let Some(call) = self.call(id) {
            call.output = text.lines().map(|line| sanitize::line(line).into_owned()).collect();
        }
    }

    pub(super) fn set_progress(&mut self, effect: EffectId, text: &str) {
        let text = sanitize::headline(text, 200);
        if let Some(call) = self.calls.iter_mut().find(|call| call.effect == Some(effect)) {
            call.progress = Some(text);
        }
    }

    pub(super) fn add_subagent_usage(&mut self, id: &CallId, usage: Usage, cost: Option<MicroUsd>) {
        if let Some(call) = self.call(id) {
            let (calls, tokens, total) = call.subagent.get_or_insert((0, Tokens::ZERO, None));
            *calls += 1;
            tokens.0 += usage.total().0;
            if let Some(cost) = cost {
                *total = Some(MicroUsd(total.unwrap_or_default().0 + cost.0));
            }
        }
    }

    pub(super) fn set_server(&mut self, name: &str, state: ServerState) {
        let name = sanitize::headline(name, 40);
        match self.servers.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = state,
            None => self.servers.push((name, state)),
        }
    }

    fn call(&mut self, id: &CallId) -> Option<&mut LiveCall> {
        self.calls.iter_mut().find(|call| call.id == *id)
    }

    /// Returns the lines for a terminal of this width: `most` at most, and none wider than the terminal.
    pub(super) fn lines(&self, frame: usize, columns: usize, most: usize) -> Vec<String> {
        if !self.is_active() {
            return Vec::new();
        }
        let now = self.clock.now();
        let area = StatusLines {
            spinner: FRAMES[frame % FRAMES.len()],
            painter: self.painter,
            columns,
            now,
            lines: Vec::new(),
        };
        let mut lines = self.activity(area).lines;
        let totals = self.totals_line(now, columns);
        lines.truncate(most.saturating_sub(1).max(1));
        lines.extend(totals.map(|line| self.painter.paint(DIM, &line)));
        lines.truncate(most.max(1));
        lines
    }

    fn activity(&self, mut area: StatusLines) -> StatusLines {
        for (name, state) in &self.servers {
            let text = match state {
                ServerState::Starting => {
                    text!(
                        self.lang,
                        "MCP server {name}: starting",
                        "servidor MCP {name}: arrancando"
                    )
                }
                ServerState::Ready => {
                    text!(self.lang, "MCP server {name}: ready", "servidor MCP {name}: listo")
                }
                ServerState::Failed => {
                    text!(self.lang, "MCP server {name}: failed", "servidor MCP {name}: falló")
                }
            };
            match state {
                ServerState::Starting => area.timed(&text, self.began),
                ServerState::Ready => area.plain("✓", &text),
                ServerState::Failed => area.plain("✗", &text),
            }
        }
        if let Some((due, why)) = &self.retry {
            let left = due.since(area.now).0.div_ceil(1_000_000);
            let text =
                text!(self.lang, "retrying in {left} s: {why}", "se reintenta en {left} s: {why}");
            let text = fit(&text, area.columns.saturating_sub(3));
            area.lines.push(format!("{} {}", area.spinner, self.painter.paint(WARNING, &text)));
        } else if let Some(call) = &self.model_call {
            area.timed(call.text, call.since);
            let reasoning = sanitize::multiline(&self.reasoning).replace('\t', " ");
            let lines = wrap(reasoning.trim_end(), area.columns.saturating_sub(4));
            area.details(lines.iter().map(String::as_str), TAIL_LINES);
        }
        let tail = if self.calls.len() > 1 { 1 } else { TAIL_LINES };
        for call in self.calls.iter().take(MAX_CALLS) {
            area.timed(&call.title, call.since);
            let lang = self.lang;
            let used = call.subagent.as_ref().map(|(calls, tokens, cost)| {
                let calls = lang.count(*calls, ["LLM call", "LLM calls"], ["llamada", "llamadas"]);
                let cost = cost.map_or(String::new(), |cost| format!(" · {}", dollars(cost)));
                format!("{calls} · {} tokens{cost}", short(*tokens))
            });
            let progress: Vec<String> = call.progress.iter().cloned().chain(used).collect();
            if !progress.is_empty() {
                area.details([progress.join(" · ").as_str()].into_iter(), 1);
            }
            area.details(call.output.iter().map(String::as_str), tail);
        }
        if let Some(more) = self.calls.len().checked_sub(MAX_CALLS).filter(|more| *more > 0) {
            let text = text!(self.lang, "… and {more} more", "… y {more} más");
            area.details([text.as_str()].into_iter(), 1);
        }
        area
    }

    /// Returns the most important totals that fit.
    fn totals_line(&self, now: RunTime, columns: usize) -> Option<String> {
        let totals = self.totals.as_ref()?;
        let LiveTotals { limits, step, usage, cost, context, window } = totals;
        let step_name = self.lang.pick(["step", "paso"]);
        let mut parts = vec![format!("{step_name} {step}/{}", limits.max_steps)];
        let time = minutes(now.since(self.began));
        parts.push(match limits.timeout {
            Some(limit) => format!("{time}/{}", minutes(limit)),
            None => time,
        });
        match (cost, limits.budget) {
            (Some(cost), Some(budget)) => {
                parts.push(format!("{}/{}", dollars(*cost), dollars(budget)));
            }
            (Some(cost), None) => parts.push(dollars(*cost)),
            (None, _) => {}
        }
        if let Some(percent) = (context.0 * 100).checked_div(window.0) {
            let percent = percent.min(100);
            let full = usize::try_from(percent.div_ceil(10)).unwrap_or(10);
            parts.push(format!("ctx {}{} {percent}%", "█".repeat(full), "░".repeat(10 - full)));
        }
        let mut tokens = format!("↑{} ↓{}", short(usage.input), short(usage.output));
        if usage.cached_input > Tokens::ZERO {
            let cached = self.lang.pick(["cached", "en caché"]);
            tokens += &format!(" ({} {cached})", short(usage.cached_input));
        }
        parts.push(tokens);
        let mut line = String::from("  ");
        for part in parts {
            let next = if line.trim().is_empty() { part } else { format!(" · {part}") };
            if width(&line) + width(&next) < columns {
                line += &next;
            }
        }
        Some(line)
    }
}

/// The lines of the area under construction.
struct StatusLines {
    spinner: &'static str,
    painter: Painter,
    columns: usize,
    now: RunTime,
    lines: Vec<String>,
}

impl StatusLines {
    /// Adds a line with its elapsed time.
    fn timed(&mut self, text: &str, since: RunTime) {
        let time = format!(" {} s", self.now.since(since).0 / 1_000_000);
        let text = fit(text, self.columns.saturating_sub(3 + width(&time)));
        self.lines.push(format!("{} {text}{time}", self.spinner));
    }

    fn plain(&mut self, mark: &str, text: &str) {
        self.lines.push(format!("{mark} {}", fit(text, self.columns.saturating_sub(3))));
    }

    /// Adds the last `most` of these lines, indented and dimmed.
    fn details<'a>(&mut self, lines: impl DoubleEndedIterator<Item = &'a str>, most: usize) {
        let mut tail: Vec<&str> =
            lines.rev().filter(|line| !line.trim().is_empty()).take(most).collect();
        tail.reverse();
        for line in tail {
            let line = fit(line, self.columns.saturating_sub(4));
            self.lines.push(format!("  {}", self.painter.paint(DIM, &line)));
        }
    }
}

/// Returns an upper limit for the columns of a text.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Returns the columns of a character; two for every character that may be wide.
fn char_width(c: char) -> usize {
    let is_narrow = matches!(c,
        '\0'..='\u{10ff}' | '\u{2010}'..='\u{2027}' | '\u{2190}'..='\u{21ff}'
        | '\u{2500}'..='\u{259f}' | '\u{2713}' | '\u{2717}' | '\u{2800}'..='\u{28ff}');
    if is_narrow { 1 } else { 2 }
}

/// Returns the part of a text that fits. A shortened text ends with `…`.
pub(super) fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = text.chars().take_while(|c| {
        let fits = char_width(*c) <= left;
        left = left.saturating_sub(char_width(*c));
        fits
    });
    fits.chain(['…']).collect()
}

/// Breaks a text into lines that fit.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let mut lines = Vec::new();
    for line in text.lines() {
        let (mut part, mut used) = (String::new(), 0);
        for c in line.chars() {
            if used + char_width(c) > columns {
                lines.push(std::mem::take(&mut part));
                used = 0;
            }
            used += char_width(c);
            part.push(c);
        }
        lines.push(part);
    }
    lines
}

pub(super) fn short(tokens: Tokens) -> String {
    match tokens.0 {
        0..1_000 => tokens.0.to_string(),
        1_000..1_000_000 => format!("{}.{}k", tokens.0 / 1_000, tokens.0 % 1_000 / 100),
        _ => format!("{}.{}M", tokens.0 / 1_000_000, tokens.0 % 1_000_000 / 100_000),
    }
}

pub(super) fn dollars(cost: MicroUsd) -> String {
    format!("${:.2}", cost.as_dollars())
}

pub(super) fn minutes(span: TimeSpan) -> String {
    let seconds = span.0 / 1_000_000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::SystemTime;

    use super::*;

    #[derive(Default)]
    struct ManualClock(AtomicU64);

    impl Clock for ManualClock {
        fn now(&self) -> RunTime {
            RunTime(self.0.load(Ordering::Relaxed))
        }

        fn wall_time(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    fn status() -> (LiveStatus, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        (LiveStatus::new(Language::En, Painter { has_color: false }, shared), clock)
    }

    #[test]
    fn each_call_has_a_line_with_its_time_and_its_last_output() {
        let (mut status, clock) = status();
        let (a, b) = (CallId::from("a"), CallId::from("b"));
        status.begin_call(&a, "run_command → make".to_owned());
        clock.0.store(3_000_000, Ordering::Relaxed);
        status.run_call(&a, EffectId(1));
        clock.0.store(5_000_000, Ordering::Relaxed);
        status.set_output(&a, "one\ntwo\n\nthree\u{1b}[2J\nfour\n");
        assert_eq!(
            status.lines(0, 80, 20),
            ["⠋ run_command → make 2 s", "  two", "  three\\u{1b}[2J", "  four"]
        );
        status.begin_call(&b, "dispatch_subagent → look".to_owned());
        status.run_call(&b, EffectId(2));
        status.set_progress(EffectId(2), "explore · 2 · grep");
        let usage = Usage { input: Tokens(1_200), output: Tokens(34), ..Usage::default() };
        status.add_subagent_usage(&b, usage, Some(MicroUsd(20_000)));
        assert_eq!(
            status.lines(1, 80, 20)[2..],
            [
                "⠙ dispatch_subagent → look 0 s",
                "  explore · 2 · grep · 1 LLM call · 1.2k tokens · $0.02"
            ]
        );
        status.end_call(&a);
        status.end_call(&b);
        assert!(status.lines(0, 80, 20).is_empty());
    }

    #[test]
    fn a_retry_counts_down_and_the_totals_fit() {
        let (mut status, clock) = status();
        let limits =
            RunLimits { max_steps: 50, budget: Some(MicroUsd(1_000_000)), ..RunLimits::default() };
        status.begin_run(limits);
        *status.totals() = LiveTotals {
            step: 3,
            usage: Usage {
                input: Tokens(12_345),
                output: Tokens(678),
                cached_input: Tokens(8_000),
                ..Usage::default()
            },
            cost: Some(MicroUsd(123_456)),
            context: Tokens(40_000),
            window: Tokens(128_000),
            ..status.totals().clone()
        };
        status.retry_in(TimeSpan::from_secs(9), "rate limited".to_owned());
        clock.0.store(2_500_000, Ordering::Relaxed);
        assert_eq!(
            status.lines(0, 90, 20),
            [
                "⠋ retrying in 7 s: rate limited",
                "  step 3/50 · 0:02 · $0.12/$1.00 · ctx ████░░░░░░ 31% · ↑12.3k ↓678 (8.0k cached)"
            ]
        );
        for columns in 20..100 {
            let lines = status.lines(0, columns, 20);
            assert!(lines.iter().all(|line| width(line) < columns), "{columns}: {lines:?}");
        }
    }

    #[test]
    fn reasoning_is_shown_by_its_end() {
        let (mut status, _) = status();
        status.begin_model_call();
        for number in 0..1_000 {
            status.add_reasoning(&format!("thought ä {number}\n"));
        }
        assert!(status.reasoning.len() <= MAX_REASONING);
        assert_eq!(
            status.lines(0, 80, 20),
            ["⠋ the LLM is thinking 0 s", "  thought ä 997", "  thought ä 998", "  thought ä 999"]
        );
        status.begin_text();
        assert_eq!(status.lines(0, 80, 20), ["⠋ the LLM is writing 0 s"]);
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(wrap("abcdef\ng", 4), ["abcd", "ef", "g"]);
    }
}
