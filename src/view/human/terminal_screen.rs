//! A log with a status line below it: the present activity and its duration.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::model::RunTime;
use crate::port::Clock;
use crate::view::background_writer::{
    PlainTarget, WriteTarget, flush_blocking, write_all_blocking,
};
use crate::view::sanitize;

/// A change of the screen.
pub(super) enum DrawCommand {
    /// Whole lines.
    Lines(String),
    /// Text as it arrives.
    Stream(String),
    /// The present activity; `None` clears the line.
    Status(Option<String>),
    /// Whether the status line is paused, since the terminal is used for something else.
    Pause(bool),
}

/// A terminal whose last line can be redrawn.
pub(super) struct TerminalScreen<W> {
    out: W,
    clock: Arc<dyn Clock>,
    /// Returns the number of columns; called before each drawing.
    columns: Box<dyn Fn() -> usize + Send>,
    status: Option<(String, RunTime)>,
    is_drawn: bool,
    is_paused: bool,
    /// Whether the last line of the log is incomplete.
    is_midline: bool,
    frame: usize,
}

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// How often the status line is drawn.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// Goes to the start of the line and clears it.
const CLEAR: &str = "\r\u{1b}[2K";

impl<W: Write> TerminalScreen<W> {
    pub(super) fn new(
        out: W,
        clock: Arc<dyn Clock>,
        columns: Box<dyn Fn() -> usize + Send>,
    ) -> Self {
        Self {
            out,
            clock,
            columns,
            status: None,
            is_drawn: false,
            is_paused: false,
            is_midline: false,
            frame: 0,
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        write_all_blocking(&mut self.out, text.as_bytes())
    }

    fn erase(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_drawn) { self.write(CLEAR) } else { Ok(()) }
    }
}

impl<W: Write + Send> WriteTarget<DrawCommand> for TerminalScreen<W> {
    fn write_item(&mut self, draw: DrawCommand) -> io::Result<()> {
        self.erase()?;
        match draw {
            DrawCommand::Lines(lines) => {
                let end = if std::mem::take(&mut self.is_midline) { "\n" } else { "" };
                self.write(&format!("{end}{lines}"))
            }
            DrawCommand::Stream(text) => {
                if !text.is_empty() {
                    self.is_midline = !text.ends_with('\n');
                }
                self.write(&text)
            }
            DrawCommand::Status(status) => {
                let now = self.clock.now();
                self.status = status.map(|text| (text, now));
                Ok(())
            }
            DrawCommand::Pause(is_paused) => {
                self.is_paused = is_paused;
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        flush_blocking(&mut self.out)
    }

    fn tick_interval(&self) -> Option<Duration> {
        let is_drawn = self.status.is_some() && !self.is_paused && !self.is_midline;
        is_drawn.then_some(FRAME_INTERVAL)
    }

    fn on_tick(&mut self) -> io::Result<()> {
        let Some((text, since)) = &self.status else { return Ok(()) };
        let elapsed = self.clock.now().since(*since);
        let frame = FRAMES[self.frame % FRAMES.len()];
        let seconds = elapsed.0 / 1_000_000;
        // A wrapped line could not be cleared; wide characters take two columns.
        let most = ((self.columns)().saturating_sub(12) / 2).clamp(8, 60);
        let line = format!("{CLEAR}{frame} {} {seconds} s", sanitize::truncate(text, most));
        self.frame += 1;
        self.is_drawn = true;
        self.write(&line)?;
        self.flush()
    }
}

/// Not a terminal: only whole lines are written.
impl<W: Write + Send> WriteTarget<DrawCommand> for PlainTarget<W> {
    fn write_item(&mut self, draw: DrawCommand) -> io::Result<()> {
        match draw {
            DrawCommand::Lines(lines) => write_all_blocking(&mut self.0, lines.as_bytes()),
            DrawCommand::Stream(_) | DrawCommand::Status(_) | DrawCommand::Pause(_) => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        flush_blocking(&mut self.0)
    }
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

    fn drawn(script: impl FnOnce(&mut TerminalScreen<&mut Vec<u8>>, &ManualClock)) -> String {
        let (mut bytes, clock) = (Vec::new(), Arc::new(ManualClock::default()));
        let columns = Box::new(|| 80);
        script(
            &mut TerminalScreen::new(&mut bytes, Arc::clone(&clock) as Arc<dyn Clock>, columns),
            &clock,
        );
        String::from_utf8(bytes).unwrap().replace(CLEAR, "<")
    }

    #[test]
    fn the_line_is_drawn_below_the_log_and_cleared_before_it_goes_on() {
        let drawn = drawn(|screen, clock| {
            screen.write_item(DrawCommand::Status(Some("waiting".to_owned()))).unwrap();
            screen.on_tick().unwrap();
            clock.0.store(2_500_000, Ordering::Relaxed);
            screen.on_tick().unwrap();
            screen.write_item(DrawCommand::Lines("answered\n".to_owned())).unwrap();
            screen.write_item(DrawCommand::Status(None)).unwrap();
            assert_eq!(screen.tick_interval(), None);
        });
        assert_eq!(drawn, "<⠋ waiting 0 s<⠙ waiting 2 s<answered\n");
    }

    #[test]
    fn streamed_text_is_not_drawn_over() {
        let drawn = drawn(|screen, _| {
            screen.write_item(DrawCommand::Status(Some("waiting".to_owned()))).unwrap();
            screen.write_item(DrawCommand::Stream("half a".to_owned())).unwrap();
            assert_eq!(screen.tick_interval(), None);
            screen.write_item(DrawCommand::Stream(" line".to_owned())).unwrap();
            screen.write_item(DrawCommand::Lines("answered\n".to_owned())).unwrap();
            assert!(screen.tick_interval().is_some());
        });
        assert_eq!(drawn, "half a line\nanswered\n");
    }

    #[test]
    fn nothing_is_drawn_while_paused() {
        drawn(|screen, _| {
            screen.write_item(DrawCommand::Status(Some("waiting".to_owned()))).unwrap();
            screen.write_item(DrawCommand::Pause(true)).unwrap();
            assert_eq!(screen.tick_interval(), None);
            screen.write_item(DrawCommand::Pause(false)).unwrap();
            assert!(screen.tick_interval().is_some());
        });
    }
}
