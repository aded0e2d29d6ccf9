//! The HTTP server: OpenAI's interface over one model.
//!
//! # Layout
//! - [`shutdown`]: from listening to the last byte;
//! - [`app`]: the routes, what their handlers share, and the layers around them;
//! - `chat`, `completions`, `models`, `health`: the endpoints; the first two have a file for what comes in (`request`)
//!   and one for what goes out (`answer`);
//! - `body`, `params`, `options`: from bytes to checked values, with errors that name the field;
//! - `generation`: from jobs to events; `sse`: from events to a stream;
//! - `answer`, `logprobs`: the parts that answers share;
//! - `inspector`: the page of `web`; `geometry`: what it follows, the moves of the KV cache;
//! - `access`: request ids and the access log;
//! - `errors`: every error that a client can see.

mod access;
mod answer;
pub mod app;
mod body;
mod chat;
mod completions;
mod errors;
mod generation;
mod geometry;
mod health;
mod inspector;
mod logprobs;
mod models;
mod options;
mod params;
pub mod shutdown;
mod sse;
