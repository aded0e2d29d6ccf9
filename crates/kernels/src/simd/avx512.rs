//! AVX-512: a vector is one register.

use std::arch::x86_64::*;

use super::{Kernel, LANES, Simd};

/// With or without VNNI.
#[derive(Clone, Copy)]
struct Avx512<const VNNI: bool>(());

/// Runs a kernel compiled for AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512::<false>(()))
}

/// Runs a kernel compiled for AVX-512 with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn run_vnni<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512::<true>(()))
}

/// Calls an intrinsic, whose feature is there because the token is.
macro_rules! simd {
    ($($e:tt)*) => {
        // SAFETY: a token exists only in functions that are compiled for these features and called where they are there;
        // loads and stores are given arrays of the vector's size.
        unsafe { $($e)* }
    };
}

/// Sums of lanes eight apart: four quarters, two of each vector.
#[inline(always)]
unsafe fn eights(a: __m512, b: __m512) -> __m512 {
    simd!(_mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b)))
}

/// Sums of lanes two apart, quarter by quarter: two of each vector.
#[inline(always)]
unsafe fn twos(a: __m512, b: __m512) -> __m512 {
    simd!({
        let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)))
    })
}

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    type F = __m512;
    type I = __m512i;

    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        simd!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        simd!(_mm512_loadu_ps(from.as_ptr()))
    }

    #[inline(always)]
    fn store(self, x: __m512, to: &mut [f32; LANES]) {
        simd!(_mm512_storeu_ps(to.as_mut_ptr(), x));
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        simd!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        simd!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        simd!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        simd!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        simd!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        simd!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        simd!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn round(self, x: __m512) -> __m512 {
        simd!(_mm512_roundscale_ps::<0>(x))
    }

    #[inline(always)]
    fn exp2_integral(self, x: __m512) -> __m512 {
        simd!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(
            _mm512_cvtps_epi32(x),
            _mm512_set1_epi32(127)
        ))))
    }

    #[inline(always)]
    fn sum(self, x: __m512) -> f32 {
        simd!({
            let half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            super::avx2::sum8(half)
        })
    }

    #[inline(always)]
    fn sums(self, x: &[__m512; LANES]) -> __m512 {
        // Each round folds two vectors into one, in halves of halves, as `sum` folds one.
        simd!({
            let mut fours = [_mm512_setzero_ps(); 4];
            for i in 0..4 {
                let [a, b] = [eights(x[i], x[4 + i]), eights(x[8 + i], x[12 + i])];
                fours[i] = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
            }
            let [a, b] = [twos(fours[0], fours[1]), twos(fours[2], fours[3])];
            _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b))
        })
    }

    #[inline(always)]
    fn greatest(self, x: __m512) -> f32 {
        simd!(_mm512_reduce_max_ps(x))
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> __m512 {
        simd!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> __m512 {
        simd!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
            from.as_ptr().cast()
        )))))
    }

    #[inline(always)]
    fn words(self, from: &[u32; LANES]) -> __m512i {
        simd!(_mm512_loadu_si512(from.as_ptr().cast()))
    }

    #[inline(always)]
    fn zero(self) -> __m512i {
        simd!(_mm512_setzero_si512())
    }

    #[inline(always)]
    fn nibble<const AT: u32>(self, x: __m512i) -> __m512 {
        // A table of sixteen numbers is one register, and the look-up takes the lowest four bits of an index.
        simd!({
            let table = _mm512_setr_ps(0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.);
            _mm512_permutexvar_ps(_mm512_srli_epi32::<AT>(x), table)
        })
    }

    #[inline(always)]
    fn byte<const AT: u32>(self, x: __m512i) -> __m512 {
        simd!(_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32::<AT>(x), _mm512_set1_epi32(255))))
    }

    #[inline(always)]
    fn low_nibbles(self, x: __m512i) -> __m512i {
        simd!(_mm512_and_si512(x, _mm512_set1_epi8(15)))
    }

    #[inline(always)]
    fn high_nibbles(self, x: __m512i) -> __m512i {
        simd!(_mm512_and_si512(_mm512_srli_epi32::<4>(x), _mm512_set1_epi8(15)))
    }

    #[inline(always)]
    fn dot_nibbles(self, sum: __m512i, a: __m512i, b: i32) -> __m512i {
        if VNNI {
            return self.dot_bytes(sum, a, b);
        }
        simd!({
            let pairs = _mm512_maddubs_epi16(a, _mm512_set1_epi32(b));
            _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))
        })
    }

    #[inline(always)]
    fn dot_bytes(self, sum: __m512i, a: __m512i, b: i32) -> __m512i {
        if VNNI {
            return simd!(_mm512_dpbusd_epi32(sum, a, _mm512_set1_epi32(b)));
        }
        // Sums of two products of whole bytes would overflow 16 bits: the halves of a byte on their own do not.
        let high = self.dot_nibbles(self.zero(), self.high_nibbles(a), b);
        let sum = self.dot_nibbles(sum, self.low_nibbles(a), b);
        simd!(_mm512_add_epi32(sum, _mm512_slli_epi32::<4>(high)))
    }

    #[inline(always)]
    fn join(self, upper: __m512i, lower: __m512i) -> __m512i {
        simd!(_mm512_add_epi32(_mm512_slli_epi32::<8>(upper), lower))
    }

    #[inline(always)]
    fn to_float(self, x: __m512i) -> __m512 {
        simd!(_mm512_cvtepi32_ps(x))
    }

    #[inline(always)]
    fn split(self, x: __m512) -> [[u8; LANES]; 2] {
        let mut out = [[0; LANES]; 2];
        simd!({
            let q = _mm512_cvtps_epi32(x);
            let upper = _mm512_srai_epi32::<8>(_mm512_add_epi32(q, _mm512_set1_epi32(128)));
            _mm_storeu_si128(out[0].as_mut_ptr().cast(), _mm512_cvtepi32_epi8(upper));
            _mm_storeu_si128(out[1].as_mut_ptr().cast(), _mm512_cvtepi32_epi8(q));
        });
        out
    }

    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        simd!(_mm_prefetch::<_MM_HINT_T0>(at.cast()));
    }
}
