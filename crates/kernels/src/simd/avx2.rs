//! AVX2 with FMA: a vector is two registers.

use std::arch::x86_64::*;

use super::{Kernel, LANES, Simd};

#[derive(Clone, Copy)]
struct Avx2(());

/// Runs a kernel compiled for AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Calls intrinsics, whose features are there because the token is.
macro_rules! simd {
    ($($e:tt)*) => {
        // SAFETY: a token exists only in functions that are compiled for these features and called where they are there;
        // loads and stores are given arrays of the vector's size.
        unsafe { $($e)* }
    };
}

/// The sum of eight lanes, pairwise.
#[inline(always)]
pub(super) unsafe fn sum8(x: __m256) -> f32 {
    simd!({
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
    })
}

/// Sums of lanes two apart, half by half: two of each vector.
#[inline(always)]
unsafe fn twos(a: __m256, b: __m256) -> __m256 {
    simd!({
        let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
        _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)))
    })
}

/// The same for both registers. No closures: they would be compiled without the path's features.
macro_rules! both {
    ($f:ident($($x:expr),*)) => {
        simd!([$f($($x[0]),*), $f($($x[1]),*)])
    };
}

/// An expression for each of two things, likewise.
macro_rules! each {
    ($x:ident in $two:expr => $e:expr) => {{
        let [first, second] = $two;
        [
            {
                let $x = first;
                simd!($e)
            },
            {
                let $x = second;
                simd!($e)
            },
        ]
    }};
}

impl Simd for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];

    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [simd!(_mm256_set1_ps(x)); 2]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        simd!([_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from[8..].as_ptr())])
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        simd!({
            _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(to[8..].as_mut_ptr(), x[1]);
        });
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        simd!([_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])])
    }

    #[inline(always)]
    fn round(self, x: Self::F) -> Self::F {
        each!(x in x => _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x))
    }

    #[inline(always)]
    fn exp2_integral(self, x: Self::F) -> Self::F {
        each!(x in x => {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        })
    }

    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        simd!(sum8(_mm256_add_ps(x[0], x[1])))
    }

    #[inline(always)]
    fn sums(self, x: &[Self::F; LANES]) -> Self::F {
        // Each round folds two vectors into one, in halves of halves, as `sum` folds one.
        simd!({
            let mut halves = [_mm256_setzero_ps(); 2];
            for half in 0..2 {
                let mut fours = [_mm256_setzero_ps(); 4];
                for i in 0..4 {
                    let [a, b] = [x[8 * half + i], x[8 * half + 4 + i]];
                    let [a, b] = [_mm256_add_ps(a[0], a[1]), _mm256_add_ps(b[0], b[1])];
                    fours[i] =
                        _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
                }
                let [a, b] = [twos(fours[0], fours[1]), twos(fours[2], fours[3])];
                halves[half] = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
            }
            halves
        })
    }

    #[inline(always)]
    fn greatest(self, x: Self::F) -> f32 {
        simd!({
            let x = _mm256_max_ps(x[0], x[1]);
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        })
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F {
        each!(at in [0, 8] => _mm256_cvtph_ps(_mm_loadu_si128(from[at..].as_ptr().cast())))
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F {
        each!(at in [0, 8] => {
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(from[at..].as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        })
    }

    #[inline(always)]
    fn words(self, from: &[u32; LANES]) -> Self::I {
        each!(at in [0, 8] => _mm256_loadu_si256(from[at..].as_ptr().cast()))
    }

    #[inline(always)]
    fn zero(self) -> Self::I {
        [simd!(_mm256_setzero_si256()); 2]
    }

    #[inline(always)]
    fn nibble<const AT: u32>(self, x: Self::I) -> Self::F {
        each!(x in x => _mm256_cvtepi32_ps(_mm256_and_si256(shift::<AT>(x), _mm256_set1_epi32(15))))
    }

    #[inline(always)]
    fn byte<const AT: u32>(self, x: Self::I) -> Self::F {
        each!(x in x => _mm256_cvtepi32_ps(_mm256_and_si256(shift::<AT>(x), _mm256_set1_epi32(255))))
    }

    #[inline(always)]
    fn low_nibbles(self, x: Self::I) -> Self::I {
        each!(x in x => _mm256_and_si256(x, _mm256_set1_epi8(15)))
    }

    #[inline(always)]
    fn high_nibbles(self, x: Self::I) -> Self::I {
        each!(x in x => _mm256_and_si256(_mm256_srli_epi32::<4>(x), _mm256_set1_epi8(15)))
    }

    #[inline(always)]
    fn dot_nibbles(self, sum: Self::I, a: Self::I, b: i32) -> Self::I {
        let dots = each!(a in a => {
            let pairs = _mm256_maddubs_epi16(a, _mm256_set1_epi32(b));
            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
        });
        both!(_mm256_add_epi32(sum, dots))
    }

    #[inline(always)]
    fn dot_bytes(self, sum: Self::I, a: Self::I, b: i32) -> Self::I {
        // Sums of two products of whole bytes would overflow 16 bits: the halves of a byte on their own do not.
        let high = self.dot_nibbles(self.zero(), self.high_nibbles(a), b);
        let sum = self.dot_nibbles(sum, self.low_nibbles(a), b);
        let high = each!(x in high => _mm256_slli_epi32::<4>(x));
        both!(_mm256_add_epi32(sum, high))
    }

    #[inline(always)]
    fn join(self, upper: Self::I, lower: Self::I) -> Self::I {
        let upper = each!(x in upper => _mm256_slli_epi32::<8>(x));
        both!(_mm256_add_epi32(upper, lower))
    }

    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        each!(x in x => _mm256_cvtepi32_ps(x))
    }

    #[inline(always)]
    fn split(self, x: Self::F) -> [[u8; LANES]; 2] {
        let mut q = [0i32; LANES];
        let (halves, _) = q.as_chunks_mut::<8>();
        for i in 0..2 {
            simd!(_mm256_storeu_si256(halves[i].as_mut_ptr().cast(), _mm256_cvtps_epi32(x[i])));
        }
        let mut out = [[0; LANES]; 2];
        for i in 0..LANES {
            (out[0][i], out[1][i]) = (((q[i] + 128) >> 8) as u8, q[i] as u8);
        }
        out
    }

    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        simd!(_mm_prefetch::<_MM_HINT_T0>(at.cast()));
    }
}

/// The words shifted right; by a count that is not an immediate, since the intrinsic takes another type of constant.
#[inline(always)]
fn shift<const AT: u32>(x: __m256i) -> __m256i {
    simd!(_mm256_srl_epi32(x, _mm_cvtsi32_si128(AT as i32)))
}
