//! The two modes of the protocol.
//!
//! Up to version 2025-11-25, client and server begin a session by negotiating a version. Since version 2026-07-28,
//! there are no sessions: every request carries its version.

use serde_json::{Map, Value, json};

use super::error::{Result, RpcError, ServerError};

/// The version of the stateless mode.
pub(super) const STATELESS_VERSION: &str = "2026-07-28";

/// The versions with sessions, newest first.
pub(super) const SESSION_VERSIONS: [&str; 4] =
    ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The error code for an unsupported version.
const UNSUPPORTED_VERSION: i64 = -32022;

/// Returns the best version among those of a server.
pub(super) fn choose_version(offered: Vec<String>) -> Result<&'static str> {
    let mut known = [STATELESS_VERSION].into_iter().chain(SESSION_VERSIONS);
    let best = known.find(|version| offered.iter().any(|offered| offered == version));
    best.ok_or(ServerError::Version(offered))
}

/// Returns the fields that every request of a version carries in addition to its own parameters.
pub(super) fn request_meta(version: &str, has_user: bool) -> Map<String, Value> {
    let mut meta = Map::new();
    if version == STATELESS_VERSION {
        let mut set = |name: &str, value| {
            meta.insert(format!("io.modelcontextprotocol/{name}"), value);
        };
        set("protocolVersion", STATELESS_VERSION.into());
        set("clientInfo", client_info());
        set("clientCapabilities", capabilities(has_user));
    }
    meta
}

/// Returns the capabilities of this client: with a user, answers to questions.
pub(super) fn capabilities(has_user: bool) -> Value {
    if has_user { json!({ "elicitation": { "form": {} } }) } else { json!({}) }
}

/// Returns the name and version of this client.
pub(super) fn client_info() -> Value {
    json!({ "name": "architect", "version": env!("CARGO_PKG_VERSION") })
}

impl RpcError {
    /// Returns the versions that the server offers instead of the requested one.
    pub(super) fn offered_versions(&self) -> Option<Vec<String>> {
        let is_meant = self.code == UNSUPPORTED_VERSION;
        is_meant.then(|| version_list(self.data.get("supported"))).flatten()
    }
}

/// Parses a list of versions.
pub(super) fn version_list(value: Option<&Value>) -> Option<Vec<String>> {
    let text = |item: &Value| item.as_str().map(str::to_owned);
    value?.as_array().map(|items| items.iter().take(32).filter_map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(offered: &[&str]) -> Result<&'static str> {
        choose_version(offered.iter().map(|version| (*version).to_owned()).collect())
    }

    /// Fault M8.
    #[test]
    fn the_newest_version_that_both_know_is_used() {
        assert_eq!(best(&["2099-01-01", STATELESS_VERSION, "2025-11-25"]), Ok(STATELESS_VERSION));
        assert_eq!(best(&["2024-11-05", "2025-06-18"]), Ok("2025-06-18"));
        let unknown = ServerError::Version(vec!["2099-01-01".to_owned()]);
        assert_eq!(best(&["2099-01-01"]), Err(unknown));
    }
}
