//! CPU kernels of Annulus behind a C interface.
//!
//! MLX's wheel for Linux links the reference BLAS, which is an order of magnitude slower than this machine. libmlx leaves
//! `cblas_sgemm` to the loader, so the definition in [`cblas`], being in the program itself, comes first and serves it.
//!
//! # Layout
//! - [`sgemm`]: float32 matrix products, row-major, with any strides;
//! - [`gemv`]: the same for one row, at memory speed;
//! - [`dequantize`]: affine groups to float32;
//! - [`memory`]: advice to the operating system;
//! - [`cblas`]: the C symbol, and the switch that sends calls back to the BLAS of the wheel.
//!
//! This crate knows nothing of MLX; its results are tested against sums in float64.

pub mod attention;
pub mod cblas;
pub mod dequantize;
pub mod gemv;
pub mod input;
pub mod memory;
pub mod norm;
pub mod packed;
pub mod pool;
pub mod product;
pub mod rope;
pub mod sgemm;
pub mod simd;
