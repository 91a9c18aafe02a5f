//! Reading what a server says.

use std::io::PipeReader;
use std::sync::Arc;

use super::lines::{Got, Lines};
use super::{LAST_BREATH, Shared};
use crate::exec::Process;
use crate::mcp::error::ServerError;
use crate::mcp::message::Said;

/// Reads what a server says, until it says nothing more or too much.
pub(super) struct Reader {
    pub shared: Arc<Shared>,
    pub process: Arc<Process>,
    pub lines: Lines<PipeReader>,
    /// How many lines in a row may be no messages.
    pub noise: usize,
}

impl Reader {
    pub(super) fn run(mut self) {
        let misbehaved = self.listen().map(ServerError::Misbehaved);
        let error = misbehaved.unwrap_or_else(|| {
            let end = self.process.wait(LAST_BREATH);
            // What it has said last may still be on its way; somebody else may hold the way open.
            self.shared.complained_all.wait(LAST_BREATH);
            ServerError::Died { end, said: self.shared.complained() }
        });
        self.shared.end(&error);
        self.process.stop();
    }

    /// Returns what a server did for which it is ended; none when it has ended by itself.
    fn listen(&mut self) -> Option<String> {
        let (mut line, mut noise) = (Vec::new(), 0);
        loop {
            match self.lines.next(&mut line) {
                Ok(Got::Line) => {}
                Ok(Got::TooLong) => {
                    let longest = self.lines.longest;
                    return Some(format!("sent a message of more than {longest} bytes"));
                }
                Ok(Got::End) | Err(_) => return None,
            }
            let Some(said) = Said::parse(&line) else {
                noise += 1;
                if noise > self.noise {
                    return Some(format!("wrote {noise} lines in a row that are no messages"));
                }
                continue;
            };
            noise = 0;
            for said in said {
                self.shared.take(said);
            }
            // A large message is not kept in memory for the small ones that follow.
            line.shrink_to(64 << 10);
        }
    }
}
