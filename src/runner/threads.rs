//! Hands that work on threads: one for each call in flight, which the next call uses again, and a pool for tools.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::hands::{Arrival, Hands, Lane, Work};
use crate::machine::Deadline;
use crate::model::Span;
use crate::port::{Cancel, Clock, Scope, Sleep};

/// Works on threads, and hears of everything through one inbox.
pub struct Threads {
    clock: Arc<dyn Clock>,
    inbox: Receiver<Arrival>,
    post: Inbox,
    caller: Option<Caller>,
    pool: Option<ThreadPool>,
    pool_size: usize,
    /// Every piece of work holds a sender; when all are gone, nothing runs any more.
    alive: (Sender<()>, Receiver<()>),
}

/// The way into the driver's inbox, for whoever has something to tell it.
#[derive(Clone)]
pub struct Inbox(Sender<Arrival>);

/// The longest wait at a time. A deadline counts through a suspend, the wait for it doesn't; so it is looked at again.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Workers beyond the number of tools that may run together, for those that never come back.
const SPARE: usize = 4;

impl Threads {
    /// Returns hands that run so many tools at a time.
    pub fn new(clock: Arc<dyn Clock>, parallel: u32) -> Self {
        let (post, inbox) = unbounded();
        Self {
            clock,
            inbox,
            post: Inbox(post),
            caller: None,
            pool: None,
            pool_size: parallel.clamp(1, 64) as usize + SPARE,
            alive: crossbeam_channel::bounded(0),
        }
    }

    /// Returns the way into the inbox.
    pub fn inbox(&self) -> Inbox {
        self.post.clone()
    }

    /// Does something on a thread of its own: that of the call before, unless that one is still at it.
    fn call(&mut self, body: Body) -> Result<(), String> {
        let body = match self.caller.as_ref().filter(|caller| caller.is_free()) {
            Some(caller) => match caller.send(body) {
                Ok(()) => return Ok(()),
                Err(body) => body,
            },
            None => body,
        };
        let caller = Caller::start(body);
        self.caller = Some(caller.map_err(|error| format!("could not start a thread: {error}"))?);
        Ok(())
    }

    /// Does something on the pool; that is made when the first tool runs, since many runs have none. It is smaller if the
    /// system has few threads. Without any, the thread of the calls does it.
    fn in_pool(&mut self, body: Body) -> Result<(), String> {
        if self.pool.is_none() {
            let sizes = std::iter::successors(Some(self.pool_size), |size| Some(size / 2));
            self.pool = sizes.take_while(|size| *size > 0).find_map(|size| pool(size).ok());
        }
        match &self.pool {
            Some(pool) => {
                pool.spawn(body);
                Ok(())
            }
            None => self.call(body),
        }
    }
}

fn pool(threads: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("tool-{index}"))
        // Without a handler a panic that slips through would end the process.
        .panic_handler(|panic| log::error!("a tool thread broke down: {}", said(&*panic)))
        .build()
}

/// Something that is done on another thread.
type Body = Box<dyn FnOnce() + Send>;

/// A thread for one call after the other. It ends when nobody has a call for it any more.
struct Caller {
    next: Sender<Body>,
    is_busy: Arc<AtomicBool>,
}

impl Caller {
    fn start(first: Body) -> std::io::Result<Self> {
        let (next, bodies) = crossbeam_channel::bounded::<Body>(1);
        let is_busy = Arc::new(AtomicBool::new(true));
        let busy = Arc::clone(&is_busy);
        let work = move || {
            first();
            busy.store(false, Ordering::Release);
            for body in bodies {
                body();
                busy.store(false, Ordering::Release);
            }
        };
        thread::Builder::new().name("call".to_owned()).spawn(work)?;
        Ok(Self { next, is_busy })
    }

    fn is_free(&self) -> bool {
        !self.is_busy.load(Ordering::Acquire)
    }

    /// Hands over something to do, or gives it back.
    fn send(&self, body: Body) -> Result<(), Body> {
        self.is_busy.store(true, Ordering::Release);
        self.next.send(body).map_err(crossbeam_channel::SendError::into_inner)
    }
}

impl Inbox {
    /// Puts something into the inbox. Nobody reads it any more when the run is over, and that is fine.
    pub fn post(&self, arrival: Arrival) {
        let _ = self.0.send(arrival);
    }
}

impl Hands for Threads {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn start(&mut self, work: Work) {
        let Work { id, lane, cancel, run, lost } = work;
        let (post, alive) = (self.post.clone(), self.alive.0.clone());
        let lost = Arc::new(std::sync::Mutex::new(Some(lost)));
        let tell = {
            let (post, lost) = (post.clone(), Arc::clone(&lost));
            move |why: &str| {
                if let Some(lost) = lost.lock().ok().and_then(|mut lost| lost.take()) {
                    post.post(lost(why));
                }
            }
        };
        let on_panic = tell.clone();
        let body = move || {
            let ear = post.clone();
            let voice = Arc::new(move |notice| ear.post(Arrival::Notice { id, notice }));
            let mouth = post.clone();
            let line = Arc::new(move |word| mouth.post(Arrival::said(id, word)));
            let scope = scope(cancel).telling(voice).connected(line);
            let deliver = |arrival| post.post(arrival);
            match catch_unwind(AssertUnwindSafe(|| run(&scope, &deliver))) {
                Ok(arrival) => post.post(arrival),
                Err(panic) => on_panic(&format!("internal error: {}", said(&*panic))),
            }
            drop(alive);
        };
        let started = match lane {
            Lane::Own => self.call(Box::new(body)),
            Lane::Pool => self.in_pool(Box::new(body)),
        };
        if let Err(why) = started {
            tell(&why);
        }
    }

    fn wait(&mut self, deadline: Option<Deadline>) -> Option<Arrival> {
        loop {
            let left = deadline.map(|deadline| deadline.at.since(self.clock.now()));
            if left == Some(Span::ZERO) {
                return self.ready();
            }
            let most = left.map_or(LONGEST_WAIT, |left| Duration::from(left).min(LONGEST_WAIT));
            match self.inbox.recv_deadline(Instant::now() + most) {
                Ok(arrival) => return Some(arrival),
                Err(RecvTimeoutError::Timeout) => {}
                // The driver's own way in is never dropped before the driver.
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn ready(&mut self) -> Option<Arrival> {
        self.inbox.try_recv().ok()
    }

    fn settle(&mut self, grace: Span) -> bool {
        let (sender, _) = crossbeam_channel::bounded(0);
        drop(std::mem::replace(&mut self.alive.0, sender));
        let gone = self.alive.1.recv_timeout(grace.into());
        gone == Err(RecvTimeoutError::Disconnected)
    }
}

/// Returns a scope that waits in real time, and to which nobody listens.
pub fn scope(cancel: Cancel) -> Scope {
    Scope::new(cancel, Arc::new(RealSleep))
}

/// Waits in real time.
struct RealSleep;

impl Sleep for RealSleep {
    fn sleep(&self, span: Span, cancel: &Cancel) -> bool {
        cancel.wait(span.into())
    }
}

/// Returns what a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
