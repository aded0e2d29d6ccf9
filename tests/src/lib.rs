//! What tests across crates share.
//!
//! # Layout
//! - [`definition`]: what attention over a cache means;
//! - [`memory`]: MLX's memory counters;
//! - [`pair`]: a cache beside what it should hold;
//! - [`tiny`]: writes complete, tiny, random models; [`architectures`]: of other shapes than Llama's;
//! - [`gguf`]: writes GGUF files, sound and broken ones;
//! - [`converter`]: makes a GGUF file of a model, as llama.cpp's converter does;
//! - [`model`]: finds the default model.

pub mod architectures;
pub mod converter;
pub mod definition;
pub mod gguf;
pub mod memory;
pub mod model;
pub mod pair;
pub mod tiny;
