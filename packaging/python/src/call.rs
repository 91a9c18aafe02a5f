//! Calls of functions of the user.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use architect::port::CancellationToken;
use pyo3::prelude::*;

/// A function of the user. Its Python part takes a text and a [`Done`], starts a thread, and returns.
pub(crate) struct HostFunction(pub(crate) Py<PyAny>);

/// The reason why a call has no result.
pub(crate) enum CallFailure {
    /// The caller no longer waits for it.
    Cancelled,
    /// It could not be started, or its thread ended without a result.
    Lost(String),
}

/// Receives the result of a call, once.
#[pyclass(frozen, module = "architect._native")]
pub(crate) struct Done(Mutex<Option<Sender<Result<String, CallFailure>>>>);

#[pymethods]
impl Done {
    fn __call__(&self, result: String) {
        self.send(Ok(result));
    }
}

impl Done {
    fn send(&self, result: Result<String, CallFailure>) {
        let sender = self.0.lock().ok().and_then(|mut sender| sender.take());
        if let Some(sender) = sender {
            // The receiver is gone if the call was cancelled.
            let _ = sender.send(result);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.send(Err(CallFailure::Lost("its thread ended without a result".to_owned())));
    }
}

impl HostFunction {
    /// Calls the function, and waits for its result or for the cancellation. The thread of a cancelled call continues.
    pub(crate) fn call(
        &self,
        argument: &str,
        cancel: &CancellationToken,
    ) -> Result<String, CallFailure> {
        let (sender, results) = channel();
        let cancelled = sender.clone();
        let _registration = cancel.on_cancel(move || {
            let _ = cancelled.send(Err(CallFailure::Cancelled));
        });
        let done = Done(Mutex::new(Some(sender)));
        // There is no interpreter any more if the program ends during a run.
        match Python::try_attach(|py| self.0.call1(py, (argument, done)).map(drop)) {
            None => Err(CallFailure::Cancelled),
            Some(Err(error)) => Err(CallFailure::Lost(error.to_string())),
            Some(Ok(())) => results.recv().unwrap_or(Err(CallFailure::Cancelled)),
        }
    }
}
