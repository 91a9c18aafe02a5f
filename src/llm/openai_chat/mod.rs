//! OpenAI Chat Completions, and more or less compatible servers.
//!
//! The differences of a server are a row of the table in [`quirks`], never a condition in the code.

mod decode;
mod delta;
mod encode;
mod quirks;

use std::sync::Arc;

use super::wire::{ApiFormat, ReplyReader, Wire, WireSetup, path_or_default};
use crate::types::OutputField;
use quirks::Quirks;

/// OpenAI Chat Completions.
pub(super) static FORMAT: ApiFormat = ApiFormat {
    name: "Chat Completions",
    base_path: path_or_default,
    path: |_| "/chat/completions".to_owned(),
    wire: |setup| {
        let server = Quirks::for_server(setup.provider, &setup.host);
        let own = setup.output_field.map(OutputField::as_str);
        let output_limit_field = own.unwrap_or(server.output_limit_field);
        let quirks = Quirks { output_limit_field, ..server };
        Arc::new(Chat { setup, quirks })
    },
};

/// OpenAI Chat Completions for one model of one server.
#[derive(Debug)]
struct Chat {
    setup: WireSetup,
    quirks: Quirks,
}

impl Wire for Chat {
    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(decode::Reader::new(self.quirks))
    }
}
