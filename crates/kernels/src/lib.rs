//! CPU kernels of Annulus behind a C interface.
//!
//! MLX's wheel for Linux links the reference BLAS, which is an order of magnitude slower than this machine. libmlx leaves
//! `cblas_sgemm` to the loader, so the definition in [`cblas`], being in the program itself, comes first and serves it.
//!
//! # Layout
//! What a kernel is made of:
//! - [`simd`]: sixteen lanes at a time, by the instructions that this CPU has;
//! - [`pool`]: threads for work that takes microseconds.
//!
//! What models are made of:
//! - [`packed`], [`input`], [`product`]: quantized matrices, activations, and their products;
//! - [`norm`], [`rope`], [`attention`], [`sample`].
//!
//! What MLX's own operations use:
//! - [`cblas`]: the C symbol, and the switch that sends calls back to the BLAS of the wheel;
//! - [`sgemm`]: float32 matrix products, row-major, with any strides; [`gemv`]: the same for one row, at memory speed.
//!
//! And for loading: [`dequantize`], affine groups to float32; `lines`, where packed matrices lie; [`memory`], advice to the
//! operating system.
//!
//! This crate knows nothing of MLX; its results are tested against sums in float64.

// Rows are array axes whose length is known; loops over their numbers keep several arrays in step.
#![allow(clippy::needless_range_loop)]

pub mod attention;
pub mod cblas;
pub mod dequantize;
pub mod gemv;
pub mod input;
mod lines;
pub mod memory;
pub mod norm;
pub mod packed;
pub mod pool;
pub mod product;
pub mod rope;
pub mod sample;
pub mod sgemm;
pub mod simd;
