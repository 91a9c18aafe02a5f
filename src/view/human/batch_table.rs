//! The table of a batch on a terminal, below its log: the running cells, and the totals.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::call_summary::call_title;
use super::color::{DIM, Painter};
use super::human_log::{LogStyle, PauseDrawing};
use super::live_status::{FRAMES, LiveArea, dollars, fit, minutes, short, width};
use super::terminal_screen::{DrawCommand, TerminalScreen, TerminalView};
use crate::port::{Clock, Disconnected, lock};
use crate::types::{CallId, Language, MicroUsd, RunTime, TimeSpan, Tokens};
use crate::view::background_writer::{BackgroundWriter, OutputError};
use crate::view::catalogue::text;
use crate::view::public_events::{PublicEvent, PublicEventKind};
use crate::view::sanitize;
use crate::view::sink::{LiveEvent, ReportSink};

/// The log of a batch on a terminal, with its table below.
pub struct BatchTable {
    writer: BackgroundWriter<DrawCommand>,
    cells: RunningCells,
}

/// The running cells of this process. Clones share them.
#[derive(Clone)]
pub struct RunningCells {
    lang: Language,
    clock: Arc<dyn Clock>,
    cells: Arc<Mutex<Vec<RunningCell>>>,
    /// The number of begun plus ended cells, which changes with each of them.
    changes: Arc<AtomicUsize>,
}

/// The progress and usage of a batch, over all of its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTotals {
    /// Number of cells of this process.
    pub cells: usize,
    /// Number of those cells that have succeeded.
    pub succeeded: usize,
    /// Number of those cells that have ended without success.
    pub failed: usize,
    /// Number of those cells that run, in any process.
    pub running: usize,
    /// The cost of all cells.
    pub spent: MicroUsd,
    /// The limit of the cost.
    pub budget: Option<MicroUsd>,
    /// The tokens of all cells.
    pub tokens: Tokens,
    /// The time limit of the batch.
    pub timeout: Option<TimeSpan>,
}

/// A running cell, with its present activity.
struct RunningCell {
    label: String,
    since: RunTime,
    step: u32,
    activity: String,
    calls: Vec<(CallId, String)>,
}

/// The area with the table.
struct TableArea<F> {
    painter: Painter,
    cells: RunningCells,
    totals: F,
    began: RunTime,
    /// The number of cells that had ended before this process began.
    ended_before: Option<usize>,
    /// The newest totals, with their time and the value of `RunningCells::changes` at that time.
    newest: Option<(RunTime, usize, BatchTotals)>,
    /// Samples of the token count within the last minute.
    tokens: VecDeque<(RunTime, Tokens)>,
}

/// The interval at which the totals are updated.
const TOTALS_INTERVAL: TimeSpan = TimeSpan::from_secs(1);

/// The time over which tokens per minute are averaged.
const RATE_TIME: TimeSpan = TimeSpan::from_secs(60);

/// The shortest time from which a rate is computed.
const MIN_RATE_TIME: TimeSpan = TimeSpan::from_secs(2);

/// The maximum number of rows for running cells.
const MAX_ROWS: usize = 16;

/// With fewer columns, the step number is left out.
const WIDE_COLUMNS: usize = 60;

/// Timeout for the terminal at the end of the batch.
const FINISH_TIMEOUT: Duration = Duration::from_millis(500);

impl BatchTable {
    /// Starts the log. `view` returns the present state of the terminal. `totals` returns the totals, as far as they
    /// are known; it is called once a second, and when a cell begins or ends.
    ///
    /// # Errors
    ///
    /// Fails if the drawing thread can't be started.
    pub fn start(
        out: impl Write + Send + 'static,
        style: LogStyle,
        clock: Arc<dyn Clock>,
        view: impl Fn() -> TerminalView + Send + 'static,
        totals: impl Fn() -> Option<BatchTotals> + Send + 'static,
    ) -> io::Result<Self> {
        let cells = RunningCells::new(style.lang, clock);
        let painter = Painter { has_color: style.has_color };
        let area = TableArea::new(painter, cells.clone(), totals);
        let screen = TerminalScreen::new(out, area, Box::new(view));
        Ok(Self { writer: BackgroundWriter::start("batch", screen)?, cells })
    }

    /// Returns the running cells.
    pub fn cells(&self) -> &RunningCells {
        &self.cells
    }

    /// Returns a handle for writing to the terminal.
    pub fn pause_drawing(&self) -> PauseDrawing {
        PauseDrawing::new(self.writer.queue())
    }

    /// Erases the table, and waits a limited time until everything is written.
    ///
    /// # Errors
    ///
    /// Fails if writing to the terminal fails.
    pub fn finish(self) -> Result<(), OutputError> {
        self.writer.finish(Some(FINISH_TIMEOUT))
    }
}

impl RunningCells {
    fn new(lang: Language, clock: Arc<dyn Clock>) -> Self {
        Self { lang, clock, cells: Arc::default(), changes: Arc::default() }
    }

    /// Adds a running cell.
    pub fn begin(&self, label: &str) {
        lock(&self.cells).push(RunningCell {
            label: sanitize::line(label).into_owned(),
            since: self.clock.now(),
            step: 0,
            activity: self.lang.pick(["starting", "empieza"]).to_owned(),
            calls: Vec::new(),
        });
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Removes a cell that has ended.
    pub fn end(&self, label: &str) {
        let label = sanitize::line(label);
        lock(&self.cells).retain(|cell| cell.label != label);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns a sink for the events of a cell's session.
    pub fn sink(&self, label: &str, session: ShownSession) -> Box<dyn ReportSink> {
        let label = sanitize::line(label).into_owned();
        Box::new(CellSink { cells: self.clone(), label, session })
    }

    fn update(&self, label: &str, change: impl FnOnce(&mut RunningCell)) {
        if let Some(cell) = lock(&self.cells).iter_mut().find(|cell| cell.label == label) {
            change(cell);
        }
    }
}

/// A session shown in the row of its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownSession {
    /// The session of the task.
    Task {
        /// Whether checks follow the session.
        has_checks: bool,
    },
    /// The session that evaluates the changes.
    Evaluation,
}

/// Shows the events of a session in the row of its cell.
struct CellSink {
    cells: RunningCells,
    label: String,
    session: ShownSession,
}

impl CellSink {
    fn show(&self, activity: [&str; 2]) {
        let activity = self.cells.lang.pick(activity).to_owned();
        self.cells.update(&self.label, |cell| cell.activity = activity);
    }
}

impl ReportSink for CellSink {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        let lang = self.cells.lang;
        match &event.kind {
            PublicEventKind::ApiCallStart(start) => {
                let (step, activity) = match self.session {
                    ShownSession::Task { .. } => {
                        (start.step, ["waiting for the LLM", "esperando al LLM"])
                    }
                    ShownSession::Evaluation => {
                        (0, ["evaluation of the change", "evaluación del cambio"])
                    }
                };
                self.cells.update(&self.label, |cell| cell.step = step);
                self.show(activity);
            }
            PublicEventKind::TextDelta(_) if self.session != ShownSession::Evaluation => {
                self.show(["the LLM is writing", "el LLM está escribiendo"]);
            }
            PublicEventKind::Retry(_)
            | PublicEventKind::ModelFallback(_)
            | PublicEventKind::CompactionTriggered(_) => {
                let activity = sanitize::headline(&lang.sentence(event), 200);
                self.cells.update(&self.label, |cell| cell.activity = activity);
            }
            PublicEventKind::ToolCallStart(start) => {
                let title = call_title(start, lang);
                self.cells.update(&self.label, |cell| cell.calls.push((start.id.clone(), title)));
            }
            PublicEventKind::ToolCallEnd(end) => {
                self.cells.update(&self.label, |cell| cell.calls.retain(|(id, _)| *id != end.id));
            }
            PublicEventKind::AgentEnd(_) => {
                self.cells.update(&self.label, |cell| cell.calls.clear());
                match self.session {
                    ShownSession::Task { has_checks: true } => {
                        self.show(["checks", "comprobaciones"]);
                    }
                    ShownSession::Task { has_checks: false } | ShownSession::Evaluation => {
                        self.show(["ending", "termina"]);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_live(&mut self, live: &LiveEvent<'_>) {
        if let (LiveEvent::Reasoning(_), ShownSession::Task { .. }) = (live, self.session) {
            self.show(["the LLM is thinking", "el LLM está pensando"]);
        }
    }
}

impl<F: Fn() -> Option<BatchTotals> + Send> TableArea<F> {
    fn new(painter: Painter, cells: RunningCells, totals: F) -> Self {
        let began = cells.clock.now();
        let (newest, tokens) = (None, VecDeque::new());
        let mut area = Self { painter, cells, totals, began, ended_before: None, newest, tokens };
        area.take_totals(began);
        area
    }

    /// Returns the totals. They are at most a second old, and include every ended cell of this process.
    fn take_totals(&mut self, now: RunTime) -> BatchTotals {
        // Read before the totals, so that a change meanwhile is noticed next time.
        let changes = self.cells.changes.load(Ordering::Acquire);
        if let Some((taken, seen, totals)) = self.newest
            && seen == changes
            && now.since(taken) < TOTALS_INTERVAL
        {
            return totals;
        }
        let known = self.newest.map(|(_, _, totals)| totals);
        let totals = (self.totals)().or(known).unwrap_or_default();
        self.ended_before.get_or_insert(totals.succeeded + totals.failed);
        self.newest = Some((now, changes, totals));
        self.tokens.push_back((now, totals.tokens));
        while self.tokens.front().is_some_and(|(taken, _)| now.since(*taken) > RATE_TIME) {
            self.tokens.pop_front();
        }
        totals
    }

    /// Returns the estimated time until all cells have ended, from the pace of the ended ones.
    fn time_left(&self, totals: BatchTotals, elapsed: TimeSpan) -> Option<TimeSpan> {
        let ended = totals.succeeded + totals.failed;
        let left = u64::try_from(totals.cells.saturating_sub(ended)).ok()?;
        let of_process = u64::try_from(ended.saturating_sub(self.ended_before?)).ok()?;
        let left = elapsed.0.saturating_mul(left).checked_div(of_process)?;
        (left > 0).then_some(TimeSpan(left))
    }

    fn tokens_per_minute(&self) -> Option<Tokens> {
        let ((first, before), (last, after)) = (self.tokens.front()?, self.tokens.back()?);
        let span = last.since(*first);
        let used = after.0.saturating_sub(before.0);
        let rate = used.saturating_mul(RATE_TIME.0).checked_div(span.0)?;
        (span >= MIN_RATE_TIME && rate > 0).then_some(Tokens(rate))
    }

    /// Returns the totals, in lines that fit.
    fn totals_lines(&self, totals: BatchTotals, now: RunTime, columns: usize) -> Vec<String> {
        let lang = self.cells.lang;
        let BatchTotals { cells, succeeded, failed, running, spent, budget, .. } = totals;
        let mut parts = vec![
            text!(lang, "{succeeded}/{cells} done", "{succeeded}/{cells} hechas"),
            text!(lang, "{running} running", "{running} en curso"),
        ];
        if failed > 0 {
            parts.push(text!(lang, "{failed} failed", "{failed} fallidas"));
        }
        match budget {
            Some(budget) => parts.push(format!("{}/{}", dollars(spent), dollars(budget))),
            None if spent > MicroUsd::default() => parts.push(dollars(spent)),
            None => {}
        }
        let elapsed = now.since(self.began);
        parts.push(match totals.timeout {
            Some(timeout) => format!("{}/{}", minutes(elapsed), minutes(timeout)),
            None => minutes(elapsed),
        });
        if let Some(left) = self.time_left(totals, elapsed).map(minutes) {
            parts.push(text!(lang, "~{left} left", "quedan ~{left}"));
        }
        if let Some(rate) = self.tokens_per_minute() {
            parts.push(format!("{} tokens/min", short(rate)));
        }
        let mut lines = vec![String::from(" ")];
        for part in parts {
            let line = lines.last_mut().filter(|line| line.trim().is_empty());
            if let Some(line) = line {
                line.push_str(&format!(" {part}"));
            } else if let Some(line) = lines.last_mut()
                && width(line) + width(&part) + 3 < columns
            {
                line.push_str(&format!(" · {part}"));
            } else {
                lines.push(format!("  {part}"));
            }
        }
        lines.iter().map(|line| fit(line, columns.saturating_sub(1))).collect()
    }

    /// Returns the rows of the running cells, oldest first, `most` at most.
    fn rows(&self, spinner: &str, now: RunTime, columns: usize, most: usize) -> Vec<String> {
        let cells = lock(&self.cells.cells);
        let most = most.min(MAX_ROWS);
        let shown = if cells.len() > most { most.saturating_sub(1) } else { cells.len() };
        let labels = cells.iter().take(shown).map(|cell| width(&cell.label)).max();
        let label_width = labels.unwrap_or_default().min(columns / 3);
        let mut rows: Vec<String> = Vec::new();
        for cell in cells.iter().take(shown) {
            let label = fit(&cell.label, label_width);
            let padding = " ".repeat(label_width.saturating_sub(width(&label)));
            let time = format!(" {} s", now.since(cell.since).0 / 1_000_000);
            let mut activity = match &cell.calls[..] {
                [] => cell.activity.clone(),
                [(_, title)] => title.clone(),
                [.., (_, title)] => format!("{title} (+{})", cell.calls.len() - 1),
            };
            if cell.step > 0 && columns >= WIDE_COLUMNS {
                let step = self.cells.lang.pick(["step", "paso"]);
                activity = format!("{step} {}: {activity}", cell.step);
            }
            let left = columns.saturating_sub(5 + label_width + width(&time));
            let activity = fit(&activity, left);
            rows.push(format!("{spinner} {label}{padding}  {activity}{time}"));
        }
        if cells.len() > shown && most > 0 {
            let (more, lang) = (cells.len() - shown, self.cells.lang);
            let more = text!(lang, "… and {more} more", "… y {more} más");
            let more = fit(&format!("  {more}"), columns.saturating_sub(1));
            rows.push(self.painter.paint(DIM, &more));
        }
        rows
    }
}

impl<F: Fn() -> Option<BatchTotals> + Send> LiveArea for TableArea<F> {
    /// The table is shown until the log is finished.
    fn is_active(&self) -> bool {
        true
    }

    fn lines(&mut self, frame: usize, columns: usize, most: usize) -> Vec<String> {
        let now = self.cells.clock.now();
        let totals = self.take_totals(now);
        let totals = self.totals_lines(totals, now, columns);
        let spinner = FRAMES[frame % FRAMES.len()];
        let mut lines = self.rows(spinner, now, columns, most.saturating_sub(totals.len()));
        lines.extend(totals.iter().map(|line| self.painter.paint(DIM, line)));
        lines.truncate(most.max(1));
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::SystemTime;

    use super::*;
    use crate::machine::{CallPurpose, RunStatus, StopReason};
    use crate::types::{EffectId, ToolStatus};
    use crate::view::public_events::{AgentEnd, ApiCallStart, ToolCallEnd, ToolCallStart};

    #[derive(Default)]
    struct SetClock(AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> RunTime {
            RunTime::START.after(TimeSpan::from_secs(self.0.load(Ordering::Relaxed)))
        }

        fn wall_time(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    fn event(kind: PublicEventKind) -> PublicEvent {
        PublicEvent { seq: 1, ts: jiff::Timestamp::UNIX_EPOCH, session_id: "s".into(), kind }
    }

    #[test]
    fn rows_and_totals_fit_at_each_width() {
        let clock = Arc::new(SetClock::default());
        let totals = Arc::new(Mutex::new(BatchTotals { cells: 20, ..BatchTotals::default() }));
        let cells = RunningCells::new(Language::En, clock.clone());
        let source = Arc::clone(&totals);
        let painter = Painter { has_color: false };
        let mut area = TableArea::new(painter, cells.clone(), move || Some(*lock(&source)));
        assert_eq!(area.lines(0, 80, 20), ["  0/20 done · 0 running · 0:00"]);

        cells.begin("parser/large");
        cells.begin("docs\u{1b}[2J");
        *lock(&totals) = BatchTotals {
            cells: 20,
            succeeded: 4,
            failed: 1,
            running: 2,
            spent: MicroUsd(1_230_000),
            budget: Some(MicroUsd(5_000_000)),
            tokens: Tokens(24_000),
            timeout: Some(TimeSpan::from_secs(600)),
        };
        clock.0.store(60, Ordering::Relaxed);
        let lines = area.lines(0, 100, 20);
        assert!(lines[0].starts_with("⠋ parser/large  "), "{lines:?}");
        assert!(lines[0].ends_with("  starting 60 s"), "{lines:?}");
        assert!(lines[1].starts_with("⠋ docs") && !lines[1].contains('\u{1b}'), "{lines:?}");
        let line = "  4/20 done · 2 running · 1 failed · $1.23/$5.00 · 1:00/10:00 · ~3:00 left · 24.0k tokens/min";
        assert_eq!(lines[2..], [line]);
        let lines = area.lines(0, 40, 20);
        assert_eq!(lines.len(), 2 + 3, "{lines:?}");
        assert!(lines.iter().all(|line| width(line) < 40), "{lines:?}");
        // A single line has the totals.
        assert_eq!(area.lines(0, 40, 1), ["  4/20 done · 2 running · 1 failed"]);
        assert_eq!(area.lines(0, 100, 2)[0], "  … and 2 more");
        assert!(area.lines(0, 20, 3).iter().all(|line| width(line) < 20));
    }

    /// The totals are updated together with the log's line for the cell.
    #[test]
    fn the_totals_are_new_as_soon_as_a_cell_has_ended() {
        let clock = Arc::new(SetClock::default());
        let totals = Arc::new(Mutex::new(BatchTotals { cells: 2, ..BatchTotals::default() }));
        let (cells, source) = (RunningCells::new(Language::En, clock), Arc::clone(&totals));
        let painter = Painter { has_color: false };
        let mut area = TableArea::new(painter, cells.clone(), move || Some(*lock(&source)));
        cells.begin("a");
        lock(&totals).running = 1;
        assert_eq!(area.lines(0, 80, 20)[1], "  0/2 done · 1 running · 0:00");
        *lock(&totals) = BatchTotals { cells: 2, succeeded: 1, ..BatchTotals::default() };
        cells.end("a");
        assert_eq!(area.lines(0, 80, 20), ["  1/2 done · 0 running · 0:00"]);
    }

    #[test]
    fn a_row_shows_what_its_cell_does_until_that_ends() {
        let clock = Arc::new(SetClock::default());
        let cells = RunningCells::new(Language::Es, clock);
        let painter = Painter { has_color: false };
        let mut area = TableArea::new(painter, cells.clone(), || Some(BatchTotals::default()));
        cells.begin("a");
        let mut sink = cells.sink("a", ShownSession::Task { has_checks: true });
        let mut row = || area.lines(0, 80, 5)[0].clone();
        sink.on_live(&LiveEvent::Reasoning("hm"));
        assert_eq!(row(), "⠋ a  el LLM está pensando 0 s");
        for id in ["1", "2"] {
            let start = ToolCallStart {
                id: id.into(),
                name: "run_command".into(),
                arguments: Arc::new(serde_json::json!({"command": format!("make {id}")})),
                step: 1,
            };
            sink.on_event(&event(PublicEventKind::ToolCallStart(start))).unwrap();
        }
        assert_eq!(row(), "⠋ a  run_command → make 2 (+1) 0 s");
        let end = ToolCallEnd {
            id: "2".into(),
            name: "run_command".into(),
            status: ToolStatus::Ok,
            success: true,
            path: None,
            decision: None,
            duration: TimeSpan::ZERO,
            output: "".into(),
            changes: Vec::new(),
            step: 1,
        };
        sink.on_event(&event(PublicEventKind::ToolCallEnd(end))).unwrap();
        assert_eq!(row(), "⠋ a  run_command → make 1 0 s");
        let mut unchecked = cells.sink("a", ShownSession::Task { has_checks: false });
        let agent_end = AgentEnd {
            status: RunStatus::Success,
            reason: StopReason::LlmDone,
            exit_code: 0,
            steps: 1,
            llm_calls: 1,
            duration: TimeSpan::ZERO,
            cost: None,
            journal_hash: None,
            output: None,
            error: None,
        };
        let agent_end = event(PublicEventKind::AgentEnd(agent_end));
        unchecked.on_event(&agent_end).unwrap();
        assert_eq!(row(), "⠋ a  termina 0 s");
        sink.on_event(&agent_end).unwrap();
        assert_eq!(row(), "⠋ a  comprobaciones 0 s");
        let mut evaluation = cells.sink("a", ShownSession::Evaluation);
        let start = ApiCallStart {
            call: EffectId(1),
            purpose: CallPurpose::Agent,
            attempt: 1,
            step: 1,
            messages: 1,
            context_tokens: Tokens::ZERO,
            max_output_tokens: None,
            model: None,
        };
        evaluation.on_event(&event(PublicEventKind::ApiCallStart(start))).unwrap();
        evaluation.on_live(&LiveEvent::Reasoning("hm"));
        assert_eq!(row(), "⠋ a  evaluación del cambio 0 s");
        evaluation.on_event(&agent_end).unwrap();
        assert_eq!(row(), "⠋ a  termina 0 s");
        cells.end("a");
        assert_eq!(row(), "  0/0 hechas · 0 en curso · 0:00");
    }
}
