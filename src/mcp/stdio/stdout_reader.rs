//! Reads the output of a server process.

use std::io::PipeReader;
use std::sync::Arc;

use super::line_reader::{LineReader, LineResult};
use super::{EXIT_TIMEOUT, StdioState};
use crate::exec::ChildCommand;
use crate::mcp::error::ServerError;
use crate::mcp::message::ServerMessage;

/// Reads the output of a server until it ends or violates a limit.
pub(super) struct StdoutReader {
    pub shared: Arc<StdioState>,
    pub process: Arc<ChildCommand>,
    pub lines: LineReader<PipeReader>,
    /// The most consecutive lines that are not messages.
    pub max_invalid_lines: usize,
}

impl StdoutReader {
    pub(super) fn run(mut self) {
        let misbehaved = self.read_messages().map(ServerError::Misbehaved);
        let error = misbehaved.unwrap_or_else(|| {
            let end = self.process.wait(EXIT_TIMEOUT);
            // Standard error may still be in transit, and another process may hold it open.
            self.shared.stderr_closed.wait_for(EXIT_TIMEOUT);
            ServerError::Exited { end, stderr: self.shared.stderr_tail() }
        });
        self.shared.end(&error);
        self.process.stop();
    }

    /// Returns the violation for which a server is ended; `None` if it ended by itself.
    fn read_messages(&mut self) -> Option<String> {
        let (mut line, mut noise) = (Vec::new(), 0);
        loop {
            match self.lines.next(&mut line) {
                Ok(LineResult::Line) => {}
                Ok(LineResult::TooLong) => {
                    let longest = self.lines.max_bytes;
                    return Some(format!("sent a message of more than {longest} bytes"));
                }
                Ok(LineResult::End) | Err(_) => return None,
            }
            let Some(messages) = ServerMessage::parse(&line) else {
                noise += 1;
                if noise > self.max_invalid_lines {
                    return Some(format!("wrote {noise} consecutive lines that are not messages"));
                }
                continue;
            };
            noise = 0;
            for message in messages {
                self.shared.dispatch(message);
            }
            // Free the memory of a large message.
            line.shrink_to(64 << 10);
        }
    }
}
