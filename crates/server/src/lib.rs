//! Serves a language model over OpenAI's HTTP interface, and the command `annulus`.
//!
//! # Layout
//! - [`http`]: the server; one file per subject;
//! - [`cli`]: the command line; one file per command;
//! - [`events`]: the channel over which the model's thread tells a request what happens to its job.
//!
//! # Invariants
//! This crate is the only one that knows HTTP and its wire formats. It contains no geometry: what happens to a KV
//! cache is the business of `annulus-engine` and `annulus-plan`.

pub mod cli;
pub mod events;
pub mod http;
