//! The result of a tool call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CallId, Digest, FilePath, Image, Sha256Digest, TimeSpan, word_enum};

/// The result of one tool call. Every call gets exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call: CallId,
    /// The outcome of the call.
    pub status: ToolStatus,
    /// The text for the model.
    pub text: Arc<str>,
    /// The digest of status, text and images, to recognize equal results.
    pub digest: Digest,
    /// The running time of the tool.
    #[serde(default, rename = "took")]
    pub duration: TimeSpan,
    /// The files that the tool changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// The files that the tool read, relative to the workspace. Only files whose content is in `text` count: a search
    /// reads none.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub reads: Box<[Arc<str>]>,
    /// The images that the text mentions.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub images: Box<[Image]>,
    /// The SHA-256 of the whole output, if the text is a part of it and the whole output is stored beside the journal.
    #[serde(default, rename = "whole", skip_serializing_if = "Option::is_none")]
    pub whole_output: Option<Box<Sha256Digest>>,
}

word_enum! {
    /// The outcome of a tool call.
    pub enum ToolStatus {
        /// The tool did what was requested.
        Ok = "ok",
        /// The tool ran and failed.
        Failed = "failed",
        /// The tool reached its own time limit.
        TimedOut = "timed_out",
        /// There is no such tool.
        Unknown = "unknown",
        /// The arguments don't match the tool's schema.
        Malformed = "malformed",
        /// A rule, a hook or the user denied the call.
        Denied = "denied",
        /// The output limit cut the call off, so it did not run.
        Truncated = "cut",
        /// The call did not run, because the run ended first.
        Skipped = "skipped",
        /// The call was running when the run was interrupted.
        Interrupted = "interrupted",
        /// The tool did not complete in time, and the run continued without it.
        Abandoned = "abandoned",
        /// The process ended during the call, which may or may not have had an effect.
        InDoubt = "in_doubt",
    }
}

impl ToolStatus {
    /// Returns whether the model requested something that can't run at all.
    pub fn is_invalid(self) -> bool {
        matches!(self, Self::Unknown | Self::Malformed | Self::Truncated)
    }
}

/// One file that a tool changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub struct FileChange {
    /// The file, relative to the workspace. A path that is not UTF-8 is a NUL character and its bytes in hexadecimal.
    #[cfg_attr(feature = "cli", schemars(with = "String"))]
    pub path: FilePath,
    /// The kind of change.
    pub action: FileAction,
    /// The number of added lines.
    #[serde(default)]
    pub added: u64,
    /// The number of removed lines.
    #[serde(default)]
    pub removed: u64,
}

word_enum! {
    /// The kind of a file's change.
    pub enum FileAction {
        /// The file is new.
        Created = "created",
        /// Its content changed.
        Modified = "modified",
        /// The file is gone.
        Deleted = "deleted",
    }
}

impl ToolResult {
    /// Creates a result without duration and changes.
    pub fn new(call: CallId, status: ToolStatus, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let digest = Self::digest_of(status, &text, &[]);
        Self {
            call,
            status,
            text,
            digest,
            duration: TimeSpan::ZERO,
            changes: Vec::new(),
            reads: Box::default(),
            images: Box::default(),
            whole_output: None,
        }
    }

    /// Returns the result with these images, which are part of its digest.
    pub fn with_images(self, images: impl Into<Box<[Image]>>) -> Self {
        let images = images.into();
        Self { digest: Self::digest_of(self.status, &self.text, &images), images, ..self }
    }

    /// Returns whether the digest is that of the status, the text and the images.
    pub fn has_own_digest(&self) -> bool {
        self.digest == Self::digest_of(self.status, &self.text, &self.images)
    }

    fn digest_of(status: ToolStatus, text: &str, images: &[Image]) -> Digest {
        let own = Digest::of(text).with_bytes(&[status as u8]);
        images.iter().fold(own, |digest, image| digest.with_bytes(image.data.as_bytes()))
    }

    /// Returns the result with another text.
    #[cfg(feature = "runner")]
    pub(crate) fn with_text(self, text: impl Into<Arc<str>>) -> Self {
        let Self { call, status, duration, changes, reads, images, whole_output, .. } = self;
        let result = Self::new(call, status, text).with_images(images);
        Self { duration, changes, reads, whole_output, ..result }
    }

    /// Returns whether the tool did what was requested.
    pub fn is_ok(&self) -> bool {
        self.status == ToolStatus::Ok
    }
}
