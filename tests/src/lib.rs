//! What tests across crates share.
//!
//! # Layout
//! - [`definition`]: what attention over a cache means;
//! - [`tiny`]: writes complete, tiny, random models;
//! - [`gguf`]: writes GGUF files, sound and broken ones;
//! - [`model`]: finds the default model.

pub mod definition;
pub mod gguf;
pub mod model;
pub mod tiny;
