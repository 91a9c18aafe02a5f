//! Google's Gemini: `generateContent` and `streamGenerateContent`.

mod decode;
mod encode;

use std::sync::Arc;

use super::wire::{ApiFormat, ReplyReader, Wire, WireSetup, path_or_default};
use crate::net::{HeaderName, header};

/// Gemini.
pub(super) static FORMAT: ApiFormat = ApiFormat {
    name: "Gemini",
    base_path: path_or_default,
    path: |WireSetup { model, is_streaming, .. }| {
        let folder = if model.contains('/') { "" } else { "models/" };
        let method =
            if *is_streaming { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("/{folder}{model}:{method}")
    },
    wire: |setup| Arc::new(Gemini(setup)),
};

/// Gemini for one model.
#[derive(Debug)]
struct Gemini(WireSetup);

impl Gemini {
    /// Returns whether the model is older than the third generation, which introduced mandatory signatures, and schemas
    /// together with tools.
    fn is_before_third_generation(&self) -> bool {
        let model = &self.0.model;
        let name = model.rsplit('/').next().unwrap_or(model);
        ["gemini-1", "gemini-2", "gemma"].iter().any(|old| name.starts_with(old))
    }
}

impl Wire for Gemini {
    fn key_header(&self, _: &str) -> (HeaderName, &'static str) {
        match self.0.cloud {
            Some(_) => (header::AUTHORIZATION, "Bearer "),
            None => (HeaderName::from_static("x-goog-api-key"), ""),
        }
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(decode::Reader::default())
    }
}
