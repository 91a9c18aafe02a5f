//! Background threads that write output, so that a slow reader never blocks the run.
//!
//! No output is dropped. The size of a queue is bounded by the output of a run, and so by the limits of replies and
//! tool results. At its end, the run waits for the reader, up to the configured time.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rustix::io::Errno;
use thiserror::Error;

use crate::port::Disconnected;

/// Queues items for a thread that writes them.
pub(super) struct BackgroundWriter<T> {
    queue: Arc<WriteQueue<T>>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

/// The sending side of the queue.
pub(super) struct WriteQueue<T> {
    sender: Sender<WriteJob<T>>,
    failure: Arc<OnceLock<OutputError>>,
    /// Whether the queue accepts no more items.
    is_closed: AtomicBool,
}

/// A destination for items.
pub(super) trait WriteTarget<T>: Send {
    /// Writes one item.
    ///
    /// # Errors
    ///
    /// Fails if the item cannot be written. No further item is written then.
    fn write_item(&mut self, item: T) -> io::Result<()>;

    /// Flushes the buffer.
    ///
    /// # Errors
    ///
    /// Fails if the buffer cannot be written.
    fn flush(&mut self) -> io::Result<()>;

    /// Flushes everything at the end of the output.
    ///
    /// # Errors
    ///
    /// Fails if the rest cannot be written.
    fn close(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Returns the interval of calls of [`on_tick`](Self::on_tick); `None` if there is nothing to do between items.
    fn tick_interval(&self) -> Option<Duration> {
        None
    }

    /// Called once per tick interval.
    ///
    /// # Errors
    ///
    /// Fails if the output cannot be written.
    fn on_tick(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reason why the output is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutputError {
    /// The reader is gone.
    #[error("the reader of the output is gone")]
    ReaderGone,
    /// The output could not be written, for example because the disk is full.
    #[error("could not write the output: {0}")]
    Failed(Arc<str>),
    /// The terminal is gone, or the disk is broken.
    #[error("could not write the output: {}", io::Error::from(Errno::IO))]
    HungUp,
    /// The reader did not read everything in time.
    #[error("the reader of the output did not read it in time")]
    Stalled,
}

/// Writes bytes unchanged.
pub(super) struct PlainTarget<W>(pub(super) W);

enum WriteJob<T> {
    Write(T),
    Flush(Sender<()>),
    Close,
}

/// The delay before writing again to a full non-blocking descriptor.
const RETRY_DELAY: Duration = Duration::from_millis(5);

impl<T: Send + 'static> BackgroundWriter<T> {
    /// Starts the writer thread.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub(super) fn start(name: &str, sink: impl WriteTarget<T> + 'static) -> io::Result<Self> {
        let (sender, jobs) = unbounded();
        let (alive, ended) = bounded(0);
        let failure = Arc::new(OnceLock::new());
        let reported = Arc::clone(&failure);
        thread::Builder::new().name(format!("write-{name}")).spawn(move || {
            run_writer(sink, &jobs, &reported);
            drop::<Sender<()>>(alive);
        })?;
        Ok(Self {
            queue: Arc::new(WriteQueue { sender, failure, is_closed: AtomicBool::new(false) }),
            ended,
        })
    }

    /// Returns the queue.
    pub(super) fn queue(&self) -> Arc<WriteQueue<T>> {
        Arc::clone(&self.queue)
    }

    /// Queues an item; never blocks.
    ///
    /// # Errors
    ///
    /// Fails if an earlier item could not be written.
    pub(super) fn write(&self, item: T) -> Result<(), Disconnected> {
        self.queue.write(item)
    }

    /// Waits until everything is written, up to `timeout` if there is one.
    ///
    /// # Errors
    ///
    /// Fails if the output cannot be written, or not in time.
    pub(super) fn finish(self, timeout: Option<Duration>) -> Result<(), OutputError> {
        self.queue.is_closed.store(true, Ordering::Relaxed);
        let _ = self.queue.sender.send(WriteJob::Close);
        let waited = match timeout {
            None => self.ended.recv().map_err(RecvTimeoutError::from),
            Some(most) => self.ended.recv_timeout(most),
        };
        match (self.queue.failure.get(), waited) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Err(RecvTimeoutError::Timeout)) => Err(OutputError::Stalled),
            (None, Ok(()) | Err(RecvTimeoutError::Disconnected)) => Ok(()),
        }
    }
}

impl<T> WriteQueue<T> {
    /// Queues an item; never blocks.
    ///
    /// # Errors
    ///
    /// Fails if an earlier item could not be written.
    pub(super) fn write(&self, item: T) -> Result<(), Disconnected> {
        if self.failure.get().is_some() || self.is_closed.load(Ordering::Relaxed) {
            return Err(Disconnected);
        }
        self.sender.send(WriteJob::Write(item)).map_err(|_| Disconnected)
    }

    /// Waits until everything queued so far is written, for `within` at most. Returns whether it is written.
    pub(super) fn flush(&self, within: Duration) -> bool {
        let (ack, done) = bounded(1);
        self.sender.send(WriteJob::Flush(ack)).is_ok()
            && done.recv_timeout(within).is_ok()
            && self.failure.get().is_none()
    }
}

/// Writes the queued items. After a failure, drops them.
fn run_writer<T>(
    mut sink: impl WriteTarget<T>,
    jobs: &Receiver<WriteJob<T>>,
    failure: &OnceLock<OutputError>,
) {
    let mut ticked = Instant::now();
    loop {
        let job = match sink.tick_interval() {
            // Ticks are due even while items keep coming.
            Some(interval) if ticked.elapsed() >= interval => Err(RecvTimeoutError::Timeout),
            Some(interval) => jobs.recv_deadline(ticked + interval),
            None => jobs.recv().map_err(RecvTimeoutError::from),
        };
        let done = match job {
            Ok(WriteJob::Close) | Err(RecvTimeoutError::Disconnected) => break,
            // Dropping the acknowledgement notifies a caller that waits for a flush.
            Ok(WriteJob::Write(_) | WriteJob::Flush(_)) if failure.get().is_some() => continue,
            Ok(WriteJob::Write(item)) => {
                let put = sink.write_item(item);
                if jobs.is_empty() { put.and_then(|()| sink.flush()) } else { put }
            }
            Ok(WriteJob::Flush(ack)) => {
                let flushed = sink.flush();
                let _ = ack.send(());
                flushed
            }
            Err(RecvTimeoutError::Timeout) => {
                ticked = Instant::now();
                if failure.get().is_some() { Ok(()) } else { sink.on_tick() }
            }
        };
        if let Err(error) = done {
            let _ = failure.set(OutputError::from(&error));
        }
    }
    if failure.get().is_none()
        && let Err(error) = sink.close()
    {
        let _ = failure.set(OutputError::from(&error));
    }
}

impl From<&io::Error> for OutputError {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::ReaderGone,
            // A broken disk has the same error. The caller that opened the output can distinguish the two.
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

/// Writes all bytes, even to a non-blocking descriptor, where `write_all` would fail in the middle.
///
/// # Errors
///
/// Fails as writing does, except for a descriptor that is full at the moment.
pub fn write_all_blocking(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) => wait_if_full(error)?,
        }
    }
    Ok(())
}

/// Flushes an output, even a non-blocking descriptor.
///
/// # Errors
///
/// Fails as flushing does, except for a descriptor that is full at the moment.
pub fn flush_blocking(out: &mut impl Write) -> io::Result<()> {
    loop {
        let Err(error) = out.flush() else { return Ok(()) };
        wait_if_full(error)?;
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
