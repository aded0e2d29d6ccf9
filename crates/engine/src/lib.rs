//! The engine of Annulus: it runs language models with MLX and moves their KV caches only by executing plans.
//!
//! # Layout
//! From files to a model:
//! - [`load`]: from a name to a model that runs;
//! - [`checkpoint`]: a model's files, read without a tensor library;
//! - [`weights`]: from a checkpoint's tensors to arrays and layers;
//! - [`models`]: the architectures, one file each, over the layers of [`nn`] and [`rope`];
//! - [`ops`]: the operations for which there are kernels of our own, and where they are used.
//!
//! From a prompt to text:
//! - [`job`]: what is asked of the engine and what comes back;
//! - [`engine`]: a loaded model as the rest of the program sees it;
//! - [`worker`]: the one thread that owns the model, and the queue in front of it;
//! - [`generate`]: prefill in chunks of a [`chunk`] size, and pipelined decoding;
//! - [`cache`]: the KV cache, and the executor of plans; [`geometry`]: what caches do, for whoever listens;
//! - [`sample`]: choosing tokens;
//! - [`evaluate`] and [`timing`]: how well, and how fast, a model does;
//! - [`text`]: tokens to text and back, chat templates, text that comes piece by piece.
//!
//! Beneath: [`device`], [`mlx`] (what mlx-rs lacks) and [`error`].

pub mod cache;
pub mod checkpoint;
pub mod chunk;
pub mod device;
pub mod engine;
pub mod error;
pub mod evaluate;
pub mod generate;
pub mod geometry;
pub mod job;
pub mod load;
pub mod mlx;
pub mod models;
pub mod nn;
pub mod ops;
pub mod rope;
pub mod sample;
pub mod text;
pub mod timing;
pub mod weights;
pub mod worker;
