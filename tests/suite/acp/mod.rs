//! `architect acp`: a client and a real process, message by message.

mod client;
mod client_files;
mod images;
mod lines;
mod permissions;
mod prompts;
mod published_client;
mod sessions;
