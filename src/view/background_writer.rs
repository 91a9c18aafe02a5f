//! What is shown is written by a thread of its own, so that a reader who stalls never holds up the run.
//!
//! Writing blocks there, and nothing is dropped: what waits to be written is bounded by what a run says, which the
//! limits of replies and tool results bound. At the end the run waits for its reader as long as it was told to.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rustix::io::Errno;
use thiserror::Error;

use crate::port::Disconnected;

/// Takes what is to be written; a thread of its own writes it.
pub(super) struct BackgroundWriter<T> {
    queue: WriteQueue<T>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

/// Where things to be written are handed in; there may be several.
pub(super) struct WriteQueue<T> {
    sender: Sender<WriteJob<T>>,
    failure: Arc<OnceLock<OutputError>>,
}

/// Where things are written.
pub(super) trait WriteTarget<T>: Send {
    /// Writes one thing.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written; nothing more is written then.
    fn write_item(&mut self, thing: T) -> io::Result<()>;

    /// Writes out what is buffered.
    ///
    /// # Errors
    ///
    /// Fails when that cannot be written.
    fn flush(&mut self) -> io::Result<()>;

    /// Writes out everything, since nothing more will come.
    ///
    /// # Errors
    ///
    /// Fails when that cannot be written.
    fn close(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Returns how soon [`beat`](Self::beat) wants to be called when nothing is to be written until then.
    fn tick_interval(&self) -> Option<Duration> {
        None
    }

    /// Is called when nothing was to be written for as long as the pulse says.
    ///
    /// # Errors
    ///
    /// Fails when what it shows cannot be written.
    fn on_tick(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long the end of a run waits for its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishTimeout {
    /// Until they have read everything, or have gone away.
    Unlimited,
    /// As long, but no longer than this.
    AtMost(Duration),
}

/// Why not everything was read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutputError {
    /// The reader has gone away.
    #[error("the reader of the output has gone away")]
    ReaderGone,
    /// It could not be written: a full disk, say.
    #[error("could not write the output: {0}")]
    Failed(Arc<str>),
    /// The terminal has gone away, or the disk is broken.
    #[error("could not write the output: {}", io::Error::from(Errno::IO))]
    HungUp,
    /// The reader did not read it in time.
    #[error("the reader of the output did not read it in time")]
    Stalled,
}

/// Bytes that go somewhere as they are.
pub(super) struct PlainTarget<W>(pub(super) W);

enum WriteJob<T> {
    Write(T),
    Flush(Sender<()>),
    Close,
}

/// How long it may take to write to a reader that is waiting.
const WRITE_TIMEOUT: Duration = Duration::from_millis(50);

/// How long a descriptor that does not block is left alone when it is full.
const RETRY_DELAY: Duration = Duration::from_millis(5);

impl<T: Send + 'static> BackgroundWriter<T> {
    /// Starts the thread that writes.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub(super) fn start(name: &str, sink: impl WriteTarget<T> + 'static) -> io::Result<Self> {
        let (post, jobs) = unbounded();
        let (alive, ended) = bounded(0);
        let lost = Arc::new(OnceLock::new());
        let told = Arc::clone(&lost);
        thread::Builder::new().name(format!("write-{name}")).spawn(move || {
            run_writer(sink, &jobs, &told);
            drop::<Sender<()>>(alive);
        })?;
        Ok(Self { queue: WriteQueue { sender: post, failure: lost }, ended })
    }

    /// Returns another desk of the same writer.
    pub(super) fn queue(&self) -> WriteQueue<T> {
        WriteQueue { sender: self.queue.sender.clone(), failure: Arc::clone(&self.queue.failure) }
    }

    /// Has something written; never waits.
    ///
    /// # Errors
    ///
    /// Fails when what was written before could not be.
    pub(super) fn write(&self, thing: T) -> Result<(), Disconnected> {
        self.queue.write(thing)
    }

    /// Waits until everything so far is written.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written, or not in time.
    pub(super) fn finish(self, patience: FinishTimeout) -> Result<(), OutputError> {
        let Self { queue: WriteQueue { sender: post, failure: lost }, ended } = self;
        let _ = post.send(WriteJob::Close);
        let waited = match patience {
            FinishTimeout::Unlimited => ended.recv().map_err(RecvTimeoutError::from),
            FinishTimeout::AtMost(most) => ended.recv_timeout(most),
        };
        match (lost.get(), waited) {
            (Some(lost), _) => Err(lost.clone()),
            (None, Err(RecvTimeoutError::Timeout)) => Err(OutputError::Stalled),
            (None, Ok(()) | Err(RecvTimeoutError::Disconnected)) => Ok(()),
        }
    }
}

impl<T> WriteQueue<T> {
    /// Has something written; never waits.
    ///
    /// # Errors
    ///
    /// Fails when what was written before could not be.
    pub(super) fn write(&self, thing: T) -> Result<(), Disconnected> {
        if self.failure.get().is_some() {
            return Err(Disconnected);
        }
        self.sender.send(WriteJob::Write(thing)).map_err(|_| Disconnected)
    }

    /// Waits until everything so far is written, but no longer than this. Returns whether it is.
    pub(super) fn flush(&self, within: Duration) -> bool {
        let (ack, done) = bounded(1);
        self.sender.send(WriteJob::Flush(ack)).is_ok()
            && done.recv_timeout(within).is_ok()
            && self.failure.get().is_none()
    }
}

impl FinishTimeout {
    /// Returns what is left of the patience after so long; whoever reads at once is in time.
    pub(super) fn remaining_after(self, waited: Duration) -> Self {
        match self {
            Self::Unlimited => Self::Unlimited,
            Self::AtMost(most) => Self::AtMost(most.saturating_sub(waited).max(WRITE_TIMEOUT)),
        }
    }
}

/// Writes what arrives until that is all; what comes after a failure is let go.
fn run_writer<T>(
    mut sink: impl WriteTarget<T>,
    jobs: &Receiver<WriteJob<T>>,
    lost: &OnceLock<OutputError>,
) {
    loop {
        let done = match next_job(jobs, sink.tick_interval()) {
            Ok(WriteJob::Close) | Err(RecvTimeoutError::Disconnected) => break,
            // Who waits for a flush sees that its acknowledgement is gone.
            Ok(WriteJob::Write(_) | WriteJob::Flush(_)) if lost.get().is_some() => continue,
            Ok(WriteJob::Write(thing)) => {
                let put = sink.write_item(thing);
                if jobs.is_empty() { put.and_then(|()| sink.flush()) } else { put }
            }
            Ok(WriteJob::Flush(ack)) => {
                let flushed = sink.flush();
                let _ = ack.send(());
                flushed
            }
            Err(RecvTimeoutError::Timeout) if lost.get().is_some() => Ok(()),
            Err(RecvTimeoutError::Timeout) => sink.on_tick(),
        };
        if let Err(error) = done {
            let _ = lost.set(OutputError::from(&error));
        }
    }
    if lost.get().is_none()
        && let Err(error) = sink.close()
    {
        let _ = lost.set(OutputError::from(&error));
    }
}

fn next_job<T>(
    jobs: &Receiver<WriteJob<T>>,
    pulse: Option<Duration>,
) -> Result<WriteJob<T>, RecvTimeoutError> {
    match pulse {
        Some(pulse) => jobs.recv_deadline(Instant::now() + pulse),
        None => jobs.recv().map_err(RecvTimeoutError::from),
    }
}

impl From<&io::Error> for OutputError {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::ReaderGone,
            // A broken disk says the same; who has opened the output knows which of them it is.
            _ if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Self::HungUp,
            _ => Self::Failed(error.to_string().into()),
        }
    }
}

impl<W: Write + Send> WriteTarget<Vec<u8>> for PlainTarget<W> {
    fn write_item(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        write_all_blocking(&mut self.0, &bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        flush_blocking(&mut self.0)
    }
}

/// Writes all bytes, also to a descriptor that whoever started this process has told not to block: there `write_all`
/// would give up in the middle.
pub(super) fn write_all_blocking(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) => wait_if_full(error)?,
        }
    }
    Ok(())
}

/// Flushes, with the same patience.
pub(super) fn flush_blocking(out: &mut impl Write) -> io::Result<()> {
    loop {
        match out.flush() {
            Ok(()) => return Ok(()),
            Err(error) => wait_if_full(error)?,
        }
    }
}

fn wait_if_full(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => {
            thread::sleep(RETRY_DELAY);
            Ok(())
        }
        _ => Err(error),
    }
}
