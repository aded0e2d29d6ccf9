//! The layers that models are made of.

mod activation;
mod experts;
mod gated;
mod heads;
mod matrix;
mod norm;

pub use activation::{Activation, softcap};
pub use experts::{Experts, Stack};
pub use gated::Gated;
pub use heads::{heads_first, join_heads, split_heads, to_heads};
pub use matrix::{Affine, Linear, Matrix, Table};
pub use norm::RmsNorm;
