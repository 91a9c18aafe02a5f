//! A log with an area below it that is drawn again and again: the present activity.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};

use super::live_status::{LiveStatus, width, wrap};
use crate::port::lock;
use crate::view::background_writer::{
    PlainTarget, WriteTarget, flush_blocking, write_all_blocking,
};

/// A change of the screen.
pub(super) enum DrawCommand {
    /// Whole lines.
    Lines(String),
    /// Text as it arrives.
    Stream(String),
    /// Something begins to go on, which the status area shows.
    Wake,
    /// Whether nothing is drawn, since the terminal is used for something else.
    Pause(bool),
}

/// Columns and rows of a terminal.
pub type TerminalSize = (usize, usize);

/// A terminal with an area below the log that is redrawn: the line that is still incomplete, and the present activity.
///
/// Each change is one write, which erases the area, adds to the log, and draws the area again.
pub(super) struct TerminalScreen<W> {
    out: W,
    status: Arc<Mutex<LiveStatus>>,
    /// Returns the size of the terminal; called before each drawing.
    size: Box<dyn Fn() -> TerminalSize + Send>,
    /// Whole lines that are not written yet.
    pending: String,
    /// The last line of the log, if it is incomplete.
    partial: String,
    /// The widths of the lines of the area that is drawn.
    drawn: Vec<usize>,
    is_paused: bool,
    frame: usize,
}

/// How often the area is drawn.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// The lines of an incomplete line that are drawn.
const PARTIAL_LINES: usize = 6;

impl<W: Write> TerminalScreen<W> {
    pub(super) fn new(
        out: W,
        status: Arc<Mutex<LiveStatus>>,
        size: Box<dyn Fn() -> TerminalSize + Send>,
    ) -> Self {
        Self {
            out,
            status,
            size,
            pending: String::new(),
            partial: String::new(),
            drawn: Vec::new(),
            is_paused: false,
            frame: 0,
        }
    }

    fn is_active(&self) -> bool {
        !self.is_paused && (!self.partial.is_empty() || lock(&self.status).is_active())
    }

    /// Writes what is pending, and draws the area or leaves it out.
    fn draw(&mut self, area: Area) -> io::Result<()> {
        let (columns, rows) = (self.size)();
        let mut bytes = Vec::new();
        if !self.drawn.is_empty() {
            // The terminal may be narrower now, so that lines have wrapped.
            let height: usize =
                self.drawn.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
            self.drawn.clear();
            // Line by line: some terminals keep what is cleared as a whole among what has scrolled away.
            queue!(bytes, MoveToColumn(0), Clear(ClearType::CurrentLine))?;
            for _ in 1..height {
                queue!(bytes, MoveUp(1), Clear(ClearType::CurrentLine))?;
            }
        }
        bytes.extend(std::mem::take(&mut self.pending).into_bytes());
        if area == Area::Drawn {
            let mut lines = wrap(&self.partial.replace('\t', "    "), columns.saturating_sub(1));
            lines.drain(..lines.len().saturating_sub(PARTIAL_LINES));
            let left = rows.saturating_sub(2 + lines.len());
            let status = lock(&self.status).lines(self.frame, columns, left);
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
        }
    }
}

/// Whether the area is drawn below the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Area {
    Drawn,
    Omitted,
}

/// Returns the columns of a line, without its colours.
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

impl<W: Write + Send> WriteTarget<DrawCommand> for TerminalScreen<W> {
    fn write_item(&mut self, draw: DrawCommand) -> io::Result<()> {
        match draw {
            DrawCommand::Lines(lines) => {
                self.end_line();
                self.pending += &lines;
                Ok(())
            }
            DrawCommand::Stream(text) => {
                self.partial += &text;
                if let Some(end) = self.partial.rfind('\n') {
                    let rest = self.partial.split_off(end + 1);
                    self.pending += &std::mem::replace(&mut self.partial, rest);
                }
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
            // What has just begun may be over before it is worth a drawing.
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

/// Not a terminal: only whole lines are written.
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
    use std::time::SystemTime;

    use super::*;
    use crate::model::{Language, RunTime};
    use crate::port::Clock;
    use crate::view::human::color::Painter;

    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> RunTime {
            RunTime::START
        }

        fn wall_time(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    type Screen<'a> = TerminalScreen<&'a mut Vec<u8>>;

    /// Returns what is written, with the erased area as `<`, and without the frame around each write.
    fn drawn(script: impl FnOnce(&mut Screen<'_>, &Mutex<LiveStatus>)) -> String {
        let mut bytes = Vec::new();
        let status =
            LiveStatus::new(Language::En, Painter { has_color: false }, Arc::new(StoppedClock));
        let status = Arc::new(Mutex::new(status));
        script(
            &mut TerminalScreen::new(&mut bytes, Arc::clone(&status), Box::new(|| (80, 24))),
            &status,
        );
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
