//! The engine of Annulus: it runs language models with MLX and moves their KV caches only by executing plans.
//!
//! # Layout
//! - [`checkpoint`]: a model's files, read without a tensor library;
//! - [`text`]: tokens to text and back, chat templates, text that comes piece by piece;
//! - [`job`]: what is asked of the engine and what comes back;
//! - [`worker`]: the one thread that owns the model, and the queue in front of it;
//! - [`engine`]: a loaded model as the rest of the program sees it.

pub mod checkpoint;
pub mod engine;
pub mod job;
pub mod text;
pub mod worker;
