//! Between the width of a model and its heads.

use mlx_rs::Array;

use crate::mlx::Result;

/// `[B, L, heads * dim]` to `[B, L, heads, dim]`.
///
/// # Errors
/// When the last axis is no multiple of `heads`.
pub fn to_heads(x: &Array, heads: i32) -> Result<Array> {
    x.reshape(&[x.dim(0), x.dim(1), heads, -1])
}

/// `[B, L, heads, dim]` to `[B, heads, L, dim]`.
///
/// # Errors
/// When the array has not four axes.
pub fn heads_first(x: &Array) -> Result<Array> {
    x.transpose_axes(&[0, 2, 1, 3])
}

/// `[B, L, heads * dim]` to `[B, heads, L, dim]`.
///
/// # Errors
/// When the last axis is no multiple of `heads`.
pub fn split_heads(x: &Array, heads: i32) -> Result<Array> {
    heads_first(&to_heads(x, heads)?)
}

/// `[B, heads, L, dim]` to `[B, L, heads * dim]`.
///
/// # Errors
/// When the array has not four axes.
pub fn join_heads(x: &Array) -> Result<Array> {
    let (b, l) = (x.dim(0), x.dim(2));
    x.transpose_axes(&[0, 2, 1, 3])?.reshape(&[b, l, -1])
}
