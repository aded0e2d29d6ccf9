//! What tests across crates share.
//!
//! # Layout
//! - [`definition`]: what attention over a cache means;
//! - [`pair`]: a cache beside what it should hold;
//! - [`tiny`]: writes complete, tiny, random models; [`architectures`]: of other shapes than Llama's;
//! - [`gguf`]: writes GGUF files, sound and broken ones;
//! - [`model`]: finds the default model.

pub mod architectures;
pub mod definition;
pub mod gguf;
pub mod model;
pub mod pair;
pub mod tiny;
