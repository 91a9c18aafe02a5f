//! The wires, through real sockets: what is sent, what is understood, what is a fault and which one.

mod caller;
mod cancel;
mod cassette;
mod chat;
mod growth;
mod gzip;
mod limits;
mod money;
mod odd;
mod recorded;
mod recordings;
mod requests;
mod runs;
mod sdk;
mod servers;
mod sleep;
mod tls;
mod transport;
mod validate;
