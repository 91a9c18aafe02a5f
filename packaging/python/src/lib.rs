//! The native part of the Python package `architect`.
//!
//! It exchanges JSON with the Python part, which turns each text into typed objects. Functions of the user run on
//! threads of Python, so that a run can continue if one of them doesn't return.

mod agent;
mod call;
mod chat;
mod machine;
mod rules;

use pyo3::prelude::*;

/// The native part of the package: everything is in `architect`.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::agent::Agent;
    #[pymodule_export]
    use super::machine::{Machine, tool_call, tool_result};

    #[pymodule_export]
    #[allow(non_upper_case_globals)] // its name in Python
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

/// Returns a `ValueError` with the cause of an error.
fn value_error(what: &str, error: impl std::fmt::Display) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(format!("{what}: {error}"))
}

/// Parses JSON.
fn parse<T: serde::de::DeserializeOwned>(what: &str, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| value_error(&format!("invalid {what}"), error))
}

/// Returns a value as JSON.
fn to_json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| value_error("not JSON", error))
}
