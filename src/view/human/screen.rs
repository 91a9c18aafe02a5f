//! A log with one line below it that is drawn again and again: what is going on, and for how long.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::model::Time;
use crate::port::Clock;
use crate::view::clean;
use crate::view::writer::{Sink, flush_whole, write_whole};

/// Something to be drawn.
pub(super) enum Draw {
    /// Whole lines.
    Lines(String),
    /// Text as it arrives.
    Stream(String),
    /// What is going on; none clears the line.
    Status(Option<String>),
    /// Whether the line has to stay away, since somebody else uses the terminal.
    Hush(bool),
}

/// A terminal that can go back to the start of a line.
pub(super) struct Screen<W> {
    out: W,
    clock: Arc<dyn Clock>,
    /// How many columns there are, asked before each drawing.
    columns: Box<dyn Fn() -> usize + Send>,
    status: Option<(String, Time)>,
    is_drawn: bool,
    is_hushed: bool,
    /// Whether a line was begun and not ended.
    is_midline: bool,
    frame: usize,
}

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// How often the line is drawn.
const PULSE: Duration = Duration::from_millis(100);

/// Goes to the start of the line and clears it.
const CLEAR: &str = "\r\u{1b}[2K";

impl<W: Write> Screen<W> {
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
            is_hushed: false,
            is_midline: false,
            frame: 0,
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        write_whole(&mut self.out, text.as_bytes())
    }

    fn erase(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_drawn) { self.write(CLEAR) } else { Ok(()) }
    }
}

impl<W: Write + Send> Sink<Draw> for Screen<W> {
    fn put(&mut self, draw: Draw) -> io::Result<()> {
        self.erase()?;
        match draw {
            Draw::Lines(lines) => {
                let end = if std::mem::take(&mut self.is_midline) { "\n" } else { "" };
                self.write(&format!("{end}{lines}"))
            }
            Draw::Stream(text) => {
                if !text.is_empty() {
                    self.is_midline = !text.ends_with('\n');
                }
                self.write(&text)
            }
            Draw::Status(status) => {
                let now = self.clock.now();
                self.status = status.map(|text| (text, now));
                Ok(())
            }
            Draw::Hush(is_hushed) => {
                self.is_hushed = is_hushed;
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        flush_whole(&mut self.out)
    }

    fn pulse(&self) -> Option<Duration> {
        let is_drawn = self.status.is_some() && !self.is_hushed && !self.is_midline;
        is_drawn.then_some(PULSE)
    }

    fn beat(&mut self) -> io::Result<()> {
        let Some((text, since)) = &self.status else { return Ok(()) };
        let elapsed = self.clock.now().since(*since);
        let frame = FRAMES[self.frame % FRAMES.len()];
        let seconds = elapsed.0 / 1_000_000;
        // A line that wraps could not be cleared; wide characters take two columns.
        let most = ((self.columns)().saturating_sub(12) / 2).clamp(8, 60);
        let line = format!("{CLEAR}{frame} {} {seconds} s", clean::cut(text, most));
        self.frame += 1;
        self.is_drawn = true;
        self.write(&line)?;
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::SystemTime;

    use super::*;

    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Time {
            Time(self.0.load(Ordering::Relaxed))
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    fn drawn(script: impl FnOnce(&mut Screen<&mut Vec<u8>>, &Hand)) -> String {
        let (mut bytes, clock) = (Vec::new(), Arc::new(Hand::default()));
        let columns = Box::new(|| 80);
        script(&mut Screen::new(&mut bytes, Arc::clone(&clock) as Arc<dyn Clock>, columns), &clock);
        String::from_utf8(bytes).unwrap().replace(CLEAR, "<")
    }

    #[test]
    fn the_line_is_drawn_below_the_log_and_cleared_before_it_goes_on() {
        let drawn = drawn(|screen, clock| {
            screen.put(Draw::Status(Some("waiting".to_owned()))).unwrap();
            screen.beat().unwrap();
            clock.0.store(2_500_000, Ordering::Relaxed);
            screen.beat().unwrap();
            screen.put(Draw::Lines("answered\n".to_owned())).unwrap();
            screen.put(Draw::Status(None)).unwrap();
            assert_eq!(screen.pulse(), None);
        });
        assert_eq!(drawn, "<⠋ waiting 0 s<⠙ waiting 2 s<answered\n");
    }

    #[test]
    fn text_that_arrives_is_not_drawn_over_and_its_line_is_ended_before_the_log_goes_on() {
        let drawn = drawn(|screen, _| {
            screen.put(Draw::Status(Some("waiting".to_owned()))).unwrap();
            screen.put(Draw::Stream("half a".to_owned())).unwrap();
            assert_eq!(screen.pulse(), None);
            screen.put(Draw::Stream(" line".to_owned())).unwrap();
            screen.put(Draw::Lines("answered\n".to_owned())).unwrap();
            assert!(screen.pulse().is_some());
        });
        assert_eq!(drawn, "half a line\nanswered\n");
    }

    #[test]
    fn while_somebody_else_uses_the_terminal_nothing_is_drawn() {
        drawn(|screen, _| {
            screen.put(Draw::Status(Some("waiting".to_owned()))).unwrap();
            screen.put(Draw::Hush(true)).unwrap();
            assert_eq!(screen.pulse(), None);
            screen.put(Draw::Hush(false)).unwrap();
            assert!(screen.pulse().is_some());
        });
    }
}
