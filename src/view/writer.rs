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

use crate::port::Gone;

/// Takes what is to be written; a thread of its own writes it.
pub(super) struct Writer<T> {
    desk: Desk<T>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

/// Where things to be written are handed in; there may be several.
pub(super) struct Desk<T> {
    post: Sender<Job<T>>,
    lost: Arc<OnceLock<Lost>>,
}

/// Where things are written.
pub(super) trait Sink<T>: Send {
    /// Writes one thing.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written; nothing more is written then.
    fn put(&mut self, thing: T) -> io::Result<()>;

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
    fn pulse(&self) -> Option<Duration> {
        None
    }

    /// Is called when nothing was to be written for as long as the pulse says.
    ///
    /// # Errors
    ///
    /// Fails when what it shows cannot be written.
    fn beat(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long the end of a run waits for its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until they have read everything, or have gone away.
    UntilRead,
    /// As long, but no longer than this.
    AtMost(Duration),
}

/// Why not everything was read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Lost {
    /// The reader has gone away.
    #[error("the reader of the output has gone away")]
    Gone,
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
pub(super) struct Plain<W>(pub(super) W);

enum Job<T> {
    Put(T),
    Flush(Sender<()>),
    Close,
}

/// How long it may take to write to a reader that is waiting.
const MOMENT: Duration = Duration::from_millis(50);

/// How long a descriptor that does not block is left alone when it is full.
const BREATH: Duration = Duration::from_millis(5);

impl<T: Send + 'static> Writer<T> {
    /// Starts the thread that writes.
    ///
    /// # Errors
    ///
    /// Fails when the system has no thread for it.
    pub(super) fn start(name: &str, sink: impl Sink<T> + 'static) -> io::Result<Self> {
        let (post, jobs) = unbounded();
        let (alive, ended) = bounded(0);
        let lost = Arc::new(OnceLock::new());
        let told = Arc::clone(&lost);
        thread::Builder::new().name(format!("write-{name}")).spawn(move || {
            work(sink, &jobs, &told);
            drop::<Sender<()>>(alive);
        })?;
        Ok(Self { desk: Desk { post, lost }, ended })
    }

    /// Returns another desk of the same writer.
    pub(super) fn desk(&self) -> Desk<T> {
        Desk { post: self.desk.post.clone(), lost: Arc::clone(&self.desk.lost) }
    }

    /// Has something written; never waits.
    ///
    /// # Errors
    ///
    /// Fails when what was written before could not be.
    pub(super) fn put(&self, thing: T) -> Result<(), Gone> {
        self.desk.put(thing)
    }

    /// Waits until everything so far is written.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written, or not in time.
    pub(super) fn finish(self, patience: Patience) -> Result<(), Lost> {
        let Self { desk: Desk { post, lost }, ended } = self;
        let _ = post.send(Job::Close);
        let waited = match patience {
            Patience::UntilRead => ended.recv().map_err(RecvTimeoutError::from),
            Patience::AtMost(most) => ended.recv_timeout(most),
        };
        match (lost.get(), waited) {
            (Some(lost), _) => Err(lost.clone()),
            (None, Err(RecvTimeoutError::Timeout)) => Err(Lost::Stalled),
            (None, Ok(()) | Err(RecvTimeoutError::Disconnected)) => Ok(()),
        }
    }
}

impl<T> Desk<T> {
    /// Has something written; never waits.
    ///
    /// # Errors
    ///
    /// Fails when what was written before could not be.
    pub(super) fn put(&self, thing: T) -> Result<(), Gone> {
        if self.lost.get().is_some() {
            return Err(Gone);
        }
        self.post.send(Job::Put(thing)).map_err(|_| Gone)
    }

    /// Waits until everything so far is written, but no longer than this. Returns whether it is.
    pub(super) fn flush(&self, within: Duration) -> bool {
        let (ack, done) = bounded(1);
        self.post.send(Job::Flush(ack)).is_ok()
            && done.recv_timeout(within).is_ok()
            && self.lost.get().is_none()
    }
}

impl Patience {
    /// Returns what is left of the patience after so long; whoever reads at once is in time.
    pub(super) fn after(self, waited: Duration) -> Self {
        match self {
            Self::UntilRead => Self::UntilRead,
            Self::AtMost(most) => Self::AtMost(most.saturating_sub(waited).max(MOMENT)),
        }
    }
}

/// Writes what arrives until that is all; what comes after a failure is let go.
fn work<T>(mut sink: impl Sink<T>, jobs: &Receiver<Job<T>>, lost: &OnceLock<Lost>) {
    loop {
        let done = match next(jobs, sink.pulse()) {
            Ok(Job::Close) | Err(RecvTimeoutError::Disconnected) => break,
            // Who waits for a flush sees that its acknowledgement is gone.
            Ok(Job::Put(_) | Job::Flush(_)) if lost.get().is_some() => continue,
            Ok(Job::Put(thing)) => {
                let put = sink.put(thing);
                if jobs.is_empty() { put.and_then(|()| sink.flush()) } else { put }
            }
            Ok(Job::Flush(ack)) => {
                let flushed = sink.flush();
                let _ = ack.send(());
                flushed
            }
            Err(RecvTimeoutError::Timeout) if lost.get().is_some() => Ok(()),
            Err(RecvTimeoutError::Timeout) => sink.beat(),
        };
        if let Err(error) = done {
            let _ = lost.set(Lost::from(&error));
        }
    }
    if lost.get().is_none()
        && let Err(error) = sink.close()
    {
        let _ = lost.set(Lost::from(&error));
    }
}

fn next<T>(jobs: &Receiver<Job<T>>, pulse: Option<Duration>) -> Result<Job<T>, RecvTimeoutError> {
    match pulse {
        Some(pulse) => jobs.recv_deadline(Instant::now() + pulse),
        None => jobs.recv().map_err(RecvTimeoutError::from),
    }
}

impl From<&io::Error> for Lost {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Gone,
            // A broken disk says the same; who has opened the output knows which of them it is.
            _ if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Self::HungUp,
            _ => Self::Failed(error.to_string().into()),
        }
    }
}

impl<W: Write + Send> Sink<Vec<u8>> for Plain<W> {
    fn put(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        write_whole(&mut self.0, &bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        flush_whole(&mut self.0)
    }
}

/// Writes all bytes, also to a descriptor that whoever started this process has told not to block: there `write_all`
/// would give up in the middle.
pub(super) fn write_whole(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) => breathe(error)?,
        }
    }
    Ok(())
}

/// Flushes, with the same patience.
pub(super) fn flush_whole(out: &mut impl Write) -> io::Result<()> {
    loop {
        match out.flush() {
            Ok(()) => return Ok(()),
            Err(error) => breathe(error)?,
        }
    }
}

fn breathe(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => {
            thread::sleep(BREATH);
            Ok(())
        }
        _ => Err(error),
    }
}
