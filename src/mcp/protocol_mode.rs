//! The eras of the protocol.
//!
//! Up to 2025-11-25 client and server begin a session by agreeing on a version. Since 2026-07-28 there is no session:
//! every request says its version by itself.

use serde_json::{Map, Value, json};

use super::error::{RpcError, ServerError};

/// What was agreed with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtocolMode {
    /// Every request stands alone.
    Stateless,
    /// There is a session, in this version.
    Session(&'static str),
}

/// The version of the stateless era.
pub(super) const STATELESS_VERSION: &str = "2026-07-28";

/// The versions that have a session, newest first.
pub(super) const SESSION_VERSIONS: [&str; 4] =
    ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The number of the error for a version that the server does not speak.
const UNSUPPORTED_VERSION: i64 = -32022;

impl ProtocolMode {
    /// Returns the version that requests are made in.
    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Stateless => STATELESS_VERSION,
            Self::Session(version) => version,
        }
    }

    /// Returns the best era of those that a server offers.
    pub(super) fn choose(offered: Vec<String>) -> Result<Self, ServerError> {
        let offers = |version: &str| offered.iter().any(|offered| offered == version);
        if offers(STATELESS_VERSION) {
            return Ok(Self::Stateless);
        }
        let session = SESSION_VERSIONS.into_iter().find(|version| offers(version));
        session.map(Self::Session).ok_or(ServerError::Version(offered))
    }

    /// Returns what every request carries beside its own parameters.
    pub(super) fn request_meta(self) -> Map<String, Value> {
        let mut meta = Map::new();
        if self == Self::Stateless {
            let mut set = |name: &str, value| {
                meta.insert(format!("io.modelcontextprotocol/{name}"), value);
            };
            set("protocolVersion", STATELESS_VERSION.into());
            set("clientInfo", client_info());
            // It can do nothing for a server.
            set("clientCapabilities", json!({}));
        }
        meta
    }
}

/// Returns who we are.
pub(super) fn client_info() -> Value {
    json!({ "name": "architect", "version": env!("CARGO_PKG_VERSION") })
}

impl RpcError {
    /// Returns the versions that a server offers instead of the one that it was asked in.
    pub(super) fn offered_versions(&self) -> Option<Vec<String>> {
        let is_meant = self.code == UNSUPPORTED_VERSION;
        is_meant.then(|| version_list(self.data.get("supported"))).flatten()
    }
}

/// Returns a list of versions.
pub(super) fn version_list(value: Option<&Value>) -> Option<Vec<String>> {
    let text = |item: &Value| item.as_str().map(str::to_owned);
    value?.as_array().map(|items| items.iter().take(32).filter_map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(offered: &[&str]) -> Result<ProtocolMode, ServerError> {
        ProtocolMode::choose(offered.iter().map(|version| (*version).to_owned()).collect())
    }

    /// Fault M8.
    #[test]
    fn the_newest_version_that_both_know_is_used() {
        assert_eq!(
            best(&["2099-01-01", STATELESS_VERSION, "2025-11-25"]),
            Ok(ProtocolMode::Stateless)
        );
        assert_eq!(best(&["2024-11-05", "2025-06-18"]), Ok(ProtocolMode::Session("2025-06-18")));
        let unknown = ServerError::Version(vec!["2099-01-01".to_owned()]);
        assert_eq!(best(&["2099-01-01"]), Err(unknown));
    }
}
