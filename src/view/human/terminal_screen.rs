//! A log with a redrawn area below it, which shows the present activity.

use std::io::{self, Write};
use std::time::Duration;

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};

use super::live_status::{LiveArea, width, wrap};
use crate::view::background_writer::{
    PlainTarget, WriteTarget, flush_blocking, write_all_blocking,
};

/// A change of the screen.
pub(super) enum DrawCommand {
    /// Whole lines.
    Lines(String),
    /// Text as it arrives, possibly part of a line.
    Stream(String),
    /// Begins drawing the status area, because an activity has begun.
    Wake,
    /// Pauses or resumes drawing and writing, while the terminal is used for something else.
    Pause(bool),
}

/// The state of a terminal before a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalView {
    /// The number of columns.
    pub columns: usize,
    /// The number of rows.
    pub rows: usize,
    /// The other program that writes to it.
    pub user: TerminalUser,
}

/// Another program that writes to the terminal, besides the programs started by this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalUser {
    /// No other program.
    #[default]
    None,
    /// A shell has written while this program was stopped. The previous drawing is above the shell's output.
    Before,
    /// A shell writes now, and this program runs in the background.
    Now,
}

impl TerminalView {
    /// Returns a terminal of this size to which no other program writes.
    pub fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, user: TerminalUser::None }
    }
}

/// A terminal with a redrawn area below the log: the incomplete last line, and the present activity.
///
/// Each change is a single write that erases the area, adds to the log, and draws the area again.
pub(super) struct TerminalScreen<W, A> {
    out: W,
    live: A,
    /// Returns the present state of the terminal. Called before each drawing.
    view: Box<dyn Fn() -> TerminalView + Send>,
    /// Whole lines to be written.
    pending: String,
    /// The incomplete last line of the log.
    partial: String,
    /// The drawn end of the incomplete line, with tabs as spaces.
    partial_end: String,
    /// The widths of the drawn lines of the area.
    drawn: Vec<usize>,
    is_paused: bool,
    frame: usize,
}

/// The interval at which the area is drawn.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// With fewer columns nothing is drawn: lines of the area would wrap. A terminal that gets wider joins wrapped lines
/// before it reports its new width, so too much would be erased.
const MIN_COLUMNS: usize = 20;

/// The number of rows for the incomplete line.
const PARTIAL_LINES: usize = 6;

impl<W: Write, A: LiveArea> TerminalScreen<W, A> {
    pub(super) fn new(out: W, live: A, view: Box<dyn Fn() -> TerminalView + Send>) -> Self {
        Self {
            out,
            live,
            view,
            pending: String::new(),
            partial: String::new(),
            partial_end: String::new(),
            drawn: Vec::new(),
            is_paused: false,
            frame: 0,
        }
    }

    fn is_active(&self) -> bool {
        !self.is_paused && (!self.partial.is_empty() || self.live.is_active())
    }

    /// Writes pending lines, and draws the area or omits it.
    fn draw(&mut self, area: Area) -> io::Result<()> {
        let TerminalView { columns, rows, user } = (self.view)();
        let mut bytes = Vec::new();
        if user != TerminalUser::None {
            self.drawn.clear();
        }
        if !self.drawn.is_empty() {
            // The terminal may be narrower than before, so lines may have wrapped.
            let height: usize =
                self.drawn.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
            self.drawn.clear();
            // Cleared line by line, since some terminals move what is cleared as a whole to their scrollback.
            queue!(bytes, MoveToColumn(0), Clear(ClearType::CurrentLine))?;
            for _ in 1..height {
                queue!(bytes, MoveUp(1), Clear(ClearType::CurrentLine))?;
            }
        }
        bytes.extend(std::mem::take(&mut self.pending).into_bytes());
        if area == Area::Drawn && user != TerminalUser::Now && columns >= MIN_COLUMNS {
            let mut lines = wrap(&self.partial_end, columns.saturating_sub(1));
            let most = PARTIAL_LINES.min(rows.saturating_sub(2));
            if lines.len() > most {
                lines.drain(..lines.len() - most);
                // Only the end that fits is kept: a line may be long, and is drawn often.
                self.partial_end = lines.concat();
            }
            let left = rows.saturating_sub(2 + lines.len());
            let status = self.live.lines(self.frame, columns, left);
            self.drawn = lines.iter().chain(&status).map(|line| visible_width(line)).collect();
            bytes.extend([lines, status].concat().join("\n").into_bytes());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let mut frame = Vec::with_capacity(bytes.len() + 16);
        queue!(frame, BeginSynchronizedUpdate)?;
        frame.extend(bytes);
        queue!(frame, EndSynchronizedUpdate)?;
        write_all_blocking(&mut self.out, &frame)?;
        flush_blocking(&mut self.out)
    }

    /// Ends the incomplete line.
    fn end_line(&mut self) {
        if !self.partial.is_empty() {
            self.pending += &std::mem::take(&mut self.partial);
            self.pending.push('\n');
            self.partial_end.clear();
        }
    }
}

/// Whether the area is drawn or omitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Area {
    Drawn,
    Omitted,
}

/// Returns the columns of a line, without its color codes.
fn visible_width(line: &str) -> usize {
    let mut total = 0;
    let mut rest = line;
    while let Some(start) = rest.find("\u{1b}[") {
        total += width(&rest[..start]);
        let end = rest[start..].find('m').map_or(rest.len(), |end| start + end + 1);
        rest = &rest[end..];
    }
    total + width(rest)
}

impl<W: Write + Send, A: LiveArea> WriteTarget<DrawCommand> for TerminalScreen<W, A> {
    fn write_item(&mut self, draw: DrawCommand) -> io::Result<()> {
        match draw {
            DrawCommand::Lines(lines) => {
                self.end_line();
                self.pending += &lines;
                Ok(())
            }
            DrawCommand::Stream(text) => {
                let rest = match text.rsplit_once('\n') {
                    Some((lines, rest)) => {
                        self.pending += &std::mem::take(&mut self.partial);
                        self.pending += lines;
                        self.pending.push('\n');
                        self.partial_end.clear();
                        rest
                    }
                    None => &text,
                };
                self.partial += rest;
                self.partial_end += &rest.replace('\t', "    ");
                Ok(())
            }
            DrawCommand::Wake => Ok(()),
            DrawCommand::Pause(is_paused) => {
                self.is_paused = is_paused;
                if is_paused { self.draw(Area::Omitted) } else { Ok(()) }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match (self.pending.is_empty(), self.drawn.is_empty()) {
            (true, _) => Ok(()),
            // The line of a question is not complete.
            _ if self.is_paused => Ok(()),
            // A new activity may end before it is worth a drawing.
            (false, true) => self.draw(Area::Omitted),
            (false, false) => self.draw(Area::Drawn),
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.end_line();
        self.draw(Area::Omitted)
    }

    fn tick_interval(&self) -> Option<Duration> {
        (self.is_active() || !self.drawn.is_empty()).then_some(FRAME_INTERVAL)
    }

    fn on_tick(&mut self) -> io::Result<()> {
        self.frame += 1;
        let area = if self.is_active() { Area::Drawn } else { Area::Omitted };
        self.draw(area)
    }
}

/// An output that is not a terminal gets whole lines only.
impl<W: Write + Send> WriteTarget<DrawCommand> for PlainTarget<W> {
    fn write_item(&mut self, draw: DrawCommand) -> io::Result<()> {
        match draw {
            DrawCommand::Lines(lines) => write_all_blocking(&mut self.0, lines.as_bytes()),
            DrawCommand::Stream(_) | DrawCommand::Wake | DrawCommand::Pause(_) => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        flush_blocking(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;

    use super::*;
    use crate::port::{Clock, lock};
    use crate::types::{Language, RunTime};
    use crate::view::human::color::Painter;
    use crate::view::human::live_status::LiveStatus;

    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> RunTime {
            RunTime::START
        }

        fn wall_time(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    type Screen<'a> = TerminalScreen<&'a mut Vec<u8>, Arc<Mutex<LiveStatus>>>;

    /// Returns the written text, with `<` for each erased area, and without the frame of each write.
    fn drawn(script: impl FnOnce(&mut Screen<'_>, &Mutex<LiveStatus>)) -> String {
        drawn_on(|| TerminalView::new(80, 24), script)
    }

    fn drawn_on(
        view: impl Fn() -> TerminalView + Send + 'static,
        script: impl FnOnce(&mut Screen<'_>, &Mutex<LiveStatus>),
    ) -> String {
        let view = Box::new(view);
        let mut bytes = Vec::new();
        let status =
            LiveStatus::new(Language::En, Painter { has_color: false }, Arc::new(StoppedClock));
        let status = Arc::new(Mutex::new(status));
        script(&mut TerminalScreen::new(&mut bytes, Arc::clone(&status), view), &status);
        let text = String::from_utf8(bytes).unwrap();
        ["\u{1b}[?2026h", "\u{1b}[?2026l"]
            .iter()
            .fold(text, |text, frame| text.replace(frame, ""))
            .replace("\u{1b}[1G\u{1b}[2K", "<")
            .replace("\u{1b}[1A\u{1b}[2K", "<")
    }

    fn write(screen: &mut Screen<'_>, draw: DrawCommand) {
        screen.write_item(draw).unwrap();
        screen.flush().unwrap();
    }

    #[test]
    fn the_area_is_drawn_below_the_log_and_erased_before_it_goes_on() {
        let drawn = drawn(|screen, status| {
            lock(status).begin_model_call();
            screen.on_tick().unwrap();
            write(screen, DrawCommand::Lines("answered\n".to_owned()));
            lock(status).end_model_call();
            screen.on_tick().unwrap();
            assert_eq!(screen.tick_interval(), None);
        });
        assert_eq!(drawn, "⠙ waiting for the LLM 0 s<answered\n⠙ waiting for the LLM 0 s<");
    }

    #[test]
    fn an_incomplete_line_is_a_part_of_the_area_until_it_is_complete() {
        let drawn = drawn(|screen, status| {
            lock(status).begin_model_call();
            write(screen, DrawCommand::Stream("half a".to_owned()));
            screen.on_tick().unwrap();
            write(screen, DrawCommand::Stream(" line\nand".to_owned()));
            lock(status).end_model_call();
            write(screen, DrawCommand::Lines("answered\n".to_owned()));
            screen.close().unwrap();
        });
        assert_eq!(
            drawn,
            "half a\n⠙ waiting for the LLM 0 s<<half a line\nand\n⠙ waiting for the LLM 0 s<<and\nanswered\n"
        );
    }

    /// The output of a shell is not erased after a stop, and not drawn over while this program is in the background.
    #[test]
    fn what_a_shell_has_written_stays() {
        for (user, expected) in
            [(TerminalUser::None, "<"), (TerminalUser::Before, ""), (TerminalUser::Now, "")]
        {
            let now = Arc::new(Mutex::new(TerminalUser::None));
            let view = {
                let now = Arc::clone(&now);
                move || TerminalView { user: *lock(&now), ..TerminalView::new(80, 24) }
            };
            let drawn = drawn_on(view, |screen, status| {
                lock(status).begin_model_call();
                screen.on_tick().unwrap();
                *lock(&now) = user;
                screen.on_tick().unwrap();
            });
            let again = if user == TerminalUser::Now { "" } else { "⠹ waiting for the LLM 0 s" };
            assert_eq!(drawn, format!("⠙ waiting for the LLM 0 s{expected}{again}"));
        }
    }

    /// Only the end of a long line is drawn and kept for drawing. The log gets the whole line.
    #[test]
    fn the_end_of_a_long_line_is_drawn() {
        for (columns, rows) in [(80, 24), (20, 3), (20, 1), (20, 0)] {
            let line = "日\tb".repeat(200_000);
            let drawn = drawn_on(
                move || TerminalView::new(columns, rows),
                |screen, _| {
                    write(screen, DrawCommand::Stream(line.clone()));
                    screen.on_tick().unwrap();
                    assert!(screen.partial_end.len() < 2_000, "{}", screen.partial_end.len());
                    assert!(screen.drawn.len() <= rows.max(1), "{:?}", screen.drawn);
                    write(screen, DrawCommand::Stream("end\n".to_owned()));
                    screen.close().unwrap();
                },
            );
            assert_eq!(drawn.matches(&line).count(), 1);
            assert!(drawn.ends_with(&format!("{line}end\n")));
        }
    }

    /// Lines that wait during a pause are written when it ends, or at the end of the log.
    #[test]
    fn lines_wait_for_the_end_of_a_pause() {
        let waiting = |end: fn(&mut Screen<'_>)| {
            drawn(|screen, _| {
                write(screen, DrawCommand::Lines("before\n".to_owned()));
                write(screen, DrawCommand::Pause(true));
                write(screen, DrawCommand::Lines("meanwhile\n".to_owned()));
                screen.out.extend(b"a question: ^C\n");
                end(screen);
            })
        };
        let expected = "before\na question: ^C\nmeanwhile\n";
        assert_eq!(waiting(|screen| write(screen, DrawCommand::Pause(false))), expected);
        assert_eq!(waiting(|screen| screen.close().unwrap()), expected);
    }

    #[test]
    fn nothing_is_drawn_while_paused() {
        drawn(|screen, status| {
            lock(status).begin_model_call();
            screen.write_item(DrawCommand::Pause(true)).unwrap();
            assert_eq!(screen.tick_interval(), None);
            screen.write_item(DrawCommand::Pause(false)).unwrap();
            assert!(screen.tick_interval().is_some());
        });
        assert_eq!(visible_width("\u{1b}[2mab\u{1b}[0mc"), 3);
    }
}
