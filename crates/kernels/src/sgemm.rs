//! Float32 matrix products: `C = alpha * A * B + beta * C`.

use gemm_common::Parallelism;

/// Below this many multiply-adds a product runs on the calling thread: waking the others costs more.
const PARALLEL_FROM: usize = 1 << 18;

/// A matrix somewhere in memory: element `(i, j)` lies at `data + i * row_stride + j * col_stride`.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<P> {
    /// Element `(0, 0)`.
    pub data: P,
    /// Elements between neighbours in a column.
    pub row_stride: isize,
    /// Elements between neighbours in a row.
    pub col_stride: isize,
}

/// The sizes of a product: `A` is `m x k`, `B` is `k x n`, `C` is `m x n`.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Rows of `A` and `C`.
    pub m: usize,
    /// Columns of `B` and `C`.
    pub n: usize,
    /// Columns of `A`, rows of `B`.
    pub k: usize,
}

/// `C = alpha * A * B + beta * C`; with `beta` 0, `C` is not read.
///
/// # Safety
/// Every element that shape and strides describe must lie in memory that is valid for reading (`A`, `B`, and `C` when
/// `beta` is not 0) or writing (`C`), and `C` must overlap neither input.
pub unsafe fn sgemm(
    shape: Shape,
    alpha: f32,
    a: Matrix<*const f32>,
    b: Matrix<*const f32>,
    beta: f32,
    c: Matrix<*mut f32>,
) {
    let Shape { m, n, k } = shape;
    if m == 0 || n == 0 {
        return;
    }
    let parallelism = if m.saturating_mul(n).saturating_mul(k) >= PARALLEL_FROM && rayon::current_num_threads() > 1 {
        Parallelism::Rayon(0)
    } else {
        Parallelism::None
    };
    // The crate names the factor of the old destination `alpha` and that of the product `beta`.
    // SAFETY: passed on to the caller.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            m,
            n,
            k,
            c.data,
            c.col_stride,
            c.row_stride,
            beta != 0.0,
            a.data,
            a.col_stride,
            a.row_stride,
            b.data,
            b.col_stride,
            b.row_stride,
            beta,
            alpha,
            false,
            false,
            false,
            parallelism,
        );
    }
}
