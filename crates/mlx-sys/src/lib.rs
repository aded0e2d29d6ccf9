//! Raw bindings to mlx-c over an installed MLX, for [mlx-rs](https://docs.rs/mlx-rs).
//!
//! This crate takes the place of the registry's mlx-sys through `[patch.crates-io]`. It does no arithmetic: it links
//! MLX, supplies the few symbols that mlx-rs expects and that exist on Apple's platforms only, and adds the glue in
//! `glue/annulus.h`.

#![allow(non_upper_case_globals, non_camel_case_types, non_snake_case, missing_docs)]
#![allow(clippy::all)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

#[cfg(not(target_arch = "aarch64"))]
mod half {
    //! mlx-c declares these where the compiler has the types: on aarch64. The glue defines them elsewhere.

    use super::mlx_array;

    /// An IEEE half, as its bits.
    #[repr(transparent)]
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct float16_t(pub u16);

    /// A bfloat16, as its bits.
    pub type bfloat16_t = u16;

    unsafe extern "C" {
        pub fn mlx_array_item_float16(res: *mut float16_t, arr: mlx_array) -> i32;
        pub fn mlx_array_item_bfloat16(res: *mut bfloat16_t, arr: mlx_array) -> i32;
        pub fn mlx_array_data_float16(arr: mlx_array) -> *const float16_t;
        pub fn mlx_array_data_bfloat16(arr: mlx_array) -> *const bfloat16_t;
    }
}

#[cfg(not(target_arch = "aarch64"))]
pub use half::*;
