//! Anthropic Messages, and compatible servers.

mod block;
mod decode;
mod encode;
mod thought_binding;

use std::sync::Arc;

use super::wire::{ApiFormat, Cloud, ReplyReader, StreamFraming, Wire, WireSetup};
use crate::net::{HeaderName, header};

/// Anthropic Messages.
pub(super) static FORMAT: ApiFormat = ApiFormat {
    name: "Messages",
    // The provider's own libraries accept the address without the version.
    base_path: |path, _| if path.ends_with("/v1") { path.to_owned() } else { format!("{path}/v1") },
    path: |_| "/messages".to_owned(),
    wire: |setup| Arc::new(Anthropic(setup)),
};

/// Anthropic Messages for one model.
#[derive(Debug)]
struct Anthropic(WireSetup);

impl Wire for Anthropic {
    fn headers(&self) -> Vec<(&'static str, &'static str)> {
        // The clouds have the version in the request, and Bedrock has all of these fields there.
        let mut headers = match self.0.cloud {
            None => vec![("anthropic-version", "2023-06-01")],
            Some(Cloud::Vertex) => Vec::new(),
            Some(Cloud::Bedrock) => return Vec::new(),
        };
        if thought_binding::binds_thoughts(&self.0.model) {
            headers.push(thought_binding::BETA_HEADER);
        }
        headers
    }

    fn key_header(&self, variable: &str) -> (HeaderName, &'static str) {
        match variable {
            _ if self.0.cloud.is_some() => (header::AUTHORIZATION, "Bearer "),
            "ANTHROPIC_AUTH_TOKEN" => (header::AUTHORIZATION, "Bearer "),
            _ => (HeaderName::from_static("x-api-key"), ""),
        }
    }

    fn framing(&self) -> StreamFraming {
        match self.0.cloud {
            Some(Cloud::Bedrock) => StreamFraming::Amazon,
            Some(Cloud::Vertex) | None => StreamFraming::Sse,
        }
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(decode::Reader::default())
    }
}
