//! `cblas_sgemm` for libmlx, and the way back to the BLAS that the wheel carries.
//!
//! Only on Linux: on Apple's platforms MLX uses Accelerate.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::gemv::gemv;
use crate::sgemm::{Matrix, Shape, sgemm};

const ROW_MAJOR: c_int = 101;
const NO_TRANSPOSE: c_int = 111;

/// The C signature of `cblas_sgemm`.
type CblasSgemm = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    f32,
    *mut f32,
    c_int,
);

static USE_WHEEL: AtomicBool = AtomicBool::new(false);

/// Sends every later product to the BLAS of MLX's wheel, for comparing bit by bit with other programs that use it.
///
/// # Errors
/// When the loader knows no other `cblas_sgemm`.
pub fn use_the_wheels_blas() -> Result<(), String> {
    wheel().ok_or("no other cblas_sgemm is loaded: MLX's own kernels cannot be used here")?;
    USE_WHEEL.store(true, Ordering::Relaxed);
    Ok(())
}

/// The next `cblas_sgemm` in the loader's order, behind the one in this program.
fn wheel() -> Option<CblasSgemm> {
    static FOUND: OnceLock<Option<CblasSgemm>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name is a C string; the symbol, where there is one, is the function of that name.
        unsafe {
            let symbol: *mut c_void = libc::dlsym(libc::RTLD_NEXT, c"cblas_sgemm".as_ptr());
            (!symbol.is_null()).then(|| std::mem::transmute::<*mut c_void, CblasSgemm>(symbol))
        }
    })
}

/// `C = alpha * op(A) * op(B) + beta * C` in float32, with the meaning that the CBLAS standard gives it. Negative sizes
/// count as 0.
///
/// # Safety
/// As for any `cblas_sgemm`: the pointers must be valid for the matrices that sizes and leading dimensions describe, and
/// `c` must overlap neither input.
#[cfg_attr(target_os = "linux", unsafe(no_mangle))]
pub unsafe extern "C" fn cblas_sgemm(
    layout: c_int,
    trans_a: c_int,
    trans_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: f32,
    a: *const f32,
    lda: c_int,
    b: *const f32,
    ldb: c_int,
    beta: f32,
    c: *mut f32,
    ldc: c_int,
) {
    if USE_WHEEL.load(Ordering::Relaxed)
        && let Some(wheel) = wheel()
    {
        // SAFETY: the same contract.
        return unsafe { wheel(layout, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) };
    }
    let size = |n: c_int| usize::try_from(n).unwrap_or(0);
    let shape = Shape { m: size(m), n: size(n), k: size(k) };
    // A column-major matrix is the transpose of the row-major one in the same memory.
    let strides = |transpose: c_int, leading: c_int| {
        if (transpose == NO_TRANSPOSE) == (layout == ROW_MAJOR) { (leading as isize, 1) } else { (1, leading as isize) }
    };
    let matrix = |data, (row_stride, col_stride)| Matrix { data, row_stride, col_stride };
    let (a, b) = (matrix(a, strides(trans_a, lda)), matrix(b, strides(trans_b, ldb)));
    let (row_stride, col_stride) = strides(NO_TRANSPOSE, ldc);
    let c = Matrix { data: c, row_stride, col_stride };
    // SAFETY: the caller vouches for the matrices.
    unsafe {
        if shape.m == 1 && shape.n > 0 && shape.k > 0 && a.col_stride == 1 && b.row_stride == 1 && c.col_stride == 1 {
            one_row(shape, alpha, a, b, beta, c);
        } else {
            sgemm(shape, alpha, a, b, beta, c);
        }
    }
}

/// The product of one row with a matrix whose columns are contiguous, which is how weights lie in memory.
///
/// # Safety
/// As [`cblas_sgemm`]; sizes are not 0.
unsafe fn one_row(
    shape: Shape,
    alpha: f32,
    a: Matrix<*const f32>,
    b: Matrix<*const f32>,
    beta: f32,
    c: Matrix<*mut f32>,
) {
    let stride = b.col_stride.unsigned_abs();
    // SAFETY: the caller's matrices reach exactly so far.
    unsafe {
        let x = std::slice::from_raw_parts(a.data, shape.k);
        let w = std::slice::from_raw_parts(b.data, (shape.n - 1) * stride + shape.k);
        if beta == 0.0 {
            // The output may be fresh memory, of which a slice of floats must not be made before it is written.
            std::ptr::write_bytes(c.data, 0, shape.n);
        }
        gemv(alpha, x, w, stride, beta, std::slice::from_raw_parts_mut(c.data, shape.n));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRANSPOSE: c_int = 112;
    const COLUMN_MAJOR: c_int = 102;

    /// A matrix of `rows x columns` in memory, as layout and transposition ask, with a gap after each line.
    struct Stored {
        data: Vec<f32>,
        leading: usize,
        lines_are_rows: bool,
    }

    impl Stored {
        fn new(rows: usize, columns: usize, lines_are_rows: bool, gap: usize, salt: usize) -> Self {
            let (lines, length) = if lines_are_rows { (rows, columns) } else { (columns, rows) };
            let leading = (length + gap).max(1);
            let data = (0..lines * leading).map(|i| ((i * 31 + salt) % 97) as f32 / 9.0 - 5.0).collect();
            Self { data, leading, lines_are_rows }
        }

        fn at(&self, i: usize, j: usize) -> f32 {
            let (line, place) = if self.lines_are_rows { (i, j) } else { (j, i) };
            self.data[line * self.leading + place]
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition_in_float64(
            (m, n, k) in (0usize..40, 0usize..40, 0usize..40),
            one_row in any::<bool>(),
            (row_major, ta, tb) in (any::<bool>(), any::<bool>(), any::<bool>()),
            gaps in (0usize..4, 0usize..4, 0usize..4),
            alpha in prop_oneof![Just(0.0f32), Just(1.0), -3f32..3.0],
            beta in prop_oneof![Just(0.0f32), Just(1.0), -3f32..3.0],
        ) {
            let m = if one_row { 1 } else { m };
            let a = Stored::new(m, k, ta != row_major, gaps.0, 1);
            let b = Stored::new(k, n, tb != row_major, gaps.1, 2);
            let old = Stored::new(m, n, row_major, gaps.2, 3);
            let mut c = Stored::new(m, n, row_major, gaps.2, 3);
            let flag = |t| if t { TRANSPOSE } else { NO_TRANSPOSE };
            let int = |n: usize| n as c_int;
            // SAFETY: the matrices were just made with these sizes.
            unsafe {
                cblas_sgemm(
                    if row_major { ROW_MAJOR } else { COLUMN_MAJOR }, flag(ta), flag(tb), int(m), int(n), int(k),
                    alpha, a.data.as_ptr(), int(a.leading), b.data.as_ptr(), int(b.leading),
                    beta, c.data.as_mut_ptr(), int(c.leading),
                );
            }
            for i in 0..m {
                for j in 0..n {
                    let product = |p| f64::from(a.at(i, p)) * f64::from(b.at(p, j));
                    let sum: f64 = (0..k).map(product).sum();
                    let bound: f64 = (0..k).map(|p| product(p).abs()).sum::<f64>() + 30.0;
                    let want = f64::from(alpha) * sum + f64::from(beta) * f64::from(old.at(i, j));
                    prop_assert!((f64::from(c.at(i, j)) - want).abs() <= bound * 1e-5, "{} {want}", c.at(i, j));
                }
            }
        }
    }

    #[test]
    fn fresh_memory_is_not_read_when_beta_is_zero() {
        for m in [1, 2] {
            let mut c = vec![f32::NAN; 2 * m];
            let (a, b) = (vec![1.0f32; 3 * m], vec![2.0f32; 6]);
            // SAFETY: the sizes are those of the vectors.
            unsafe {
                cblas_sgemm(
                    ROW_MAJOR,
                    NO_TRANSPOSE,
                    TRANSPOSE,
                    m as c_int,
                    2,
                    3,
                    1.0,
                    a.as_ptr(),
                    3,
                    b.as_ptr(),
                    3,
                    0.0,
                    c.as_mut_ptr(),
                    2,
                );
            }
            assert_eq!(c, vec![6.0; 2 * m]);
        }
    }

    #[test]
    fn a_large_product_in_parallel() {
        let (m, n, k) = (70, 90, 130);
        let a: Vec<f32> = (0..m * k).map(|i| (i % 13) as f32 - 6.0).collect();
        let b: Vec<f32> = (0..n * k).map(|i| (i % 17) as f32 - 8.0).collect();
        let mut c = vec![0.0f32; m * n];
        // SAFETY: the sizes are those of the vectors.
        unsafe {
            cblas_sgemm(
                ROW_MAJOR,
                NO_TRANSPOSE,
                TRANSPOSE,
                m as c_int,
                n as c_int,
                k as c_int,
                1.0,
                a.as_ptr(),
                k as c_int,
                b.as_ptr(),
                k as c_int,
                0.0,
                c.as_mut_ptr(),
                n as c_int,
            );
        }
        for (index, found) in c.iter().enumerate() {
            let (i, j) = (index / n, index % n);
            // Small integers: exact in float32 whatever the order of the sum.
            let want: f32 = (0..k).map(|p| a[i * k + p] * b[j * k + p]).sum();
            assert_eq!(*found, want);
        }
    }
}
