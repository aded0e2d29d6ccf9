//! The HTTP interface over a scripted model, byte by byte.

mod chat;
mod completions;
mod disconnect;
mod fields;
mod health;
mod inspector;
mod queue;
mod shutdown;
mod support;
mod transport;
