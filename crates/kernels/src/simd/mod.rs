//! Sixteen lanes at a time, by whichever instructions this CPU has.
//!
//! A kernel is written once, over [`Simd`], and compiled once for every [`Path`]. Which path is taken is decided at run
//! time; tests run them all.
//!
//! | path | needs | lanes |
//! |---|---|---|
//! | `portable` | nothing; on aarch64 the compiler turns it into NEON | arrays |
//! | `avx2` | AVX2, FMA, F16C | two of 8 |
//! | `avx512` | AVX-512 F, BW, DQ, VL | one of 16 |
//! | `avx512-vnni` | the same and VNNI | one of 16, four-byte dot products in one instruction |
//!
//! AMX is not used: its products of 32 inputs a scale wait for their stores, and were never faster than VNNI's.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::fmt;
use std::sync::OnceLock;

/// Lanes of a vector.
pub const LANES: usize = 16;

/// A way to compute, as far as this CPU can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl Path {
    /// The path that every CPU has.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// The fastest path that this CPU has.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Path> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().pop().unwrap_or(Self::PORTABLE))
    }

    /// Every path that this CPU has, the fastest last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "other processors have only the first")]
        let mut paths = vec![Self::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            use std::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("fma") && has!("f16c");
            let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            let vnni = avx512 && has!("avx512vnni");
            let found = [(avx2, Kind::Avx2), (avx512, Kind::Avx512), (vnni, Kind::Avx512Vnni)];
            paths.extend(found.into_iter().filter(|(here, _)| *here).map(|(_, kind)| Self(kind)));
        }
        paths
    }

    /// Whether bytes are multiplied and summed in one instruction, so that products of integers are the fastest ones.
    #[must_use]
    pub fn has_byte_products(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.0 == Kind::Avx512Vnni;
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Whether vector instructions are used: the portable path has them on aarch64, where every CPU does.
    #[must_use]
    pub fn is_vectorised(self) -> bool {
        self != Self::PORTABLE || cfg!(target_arch = "aarch64")
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Portable if cfg!(target_arch = "aarch64") => "neon",
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => "avx512-vnni",
        })
    }
}

/// Something to compute. `run` and all that it calls must be `#[inline(always)]`, to be compiled for the path's features.
pub(crate) trait Kernel {
    /// The result.
    type Output;

    /// Computes it.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Runs a kernel on a path.
pub(crate) fn run<K: Kernel>(path: Path, kernel: K) -> K::Output {
    match path.0 {
        Kind::Portable => kernel.run(portable::Portable),
        // SAFETY: a `Path` of these kinds exists only where the features were found.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => unsafe { avx2::run(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => unsafe { avx512::run(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512Vnni => unsafe { avx512::run_vnni(kernel) },
    }
}

/// Sixteen lanes of float32, sixteen of 32-bit integers, and what the kernels do with them. A value of an implementing
/// type stands for the features being there.
pub(crate) trait Simd: Copy + Send + Sync {
    /// Sixteen float32.
    type F: Copy;
    /// Sixteen 32-bit words.
    type I: Copy;

    /// Vectors that registers hold.
    const REGISTERS: usize;

    fn splat(self, x: f32) -> Self::F;
    fn load(self, from: &[f32; LANES]) -> Self::F;
    fn store(self, x: Self::F, to: &mut [f32; LANES]);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    fn round(self, x: Self::F) -> Self::F;
    /// `2^x` of integral `x` from -126 to 127.
    fn exp2_integral(self, x: Self::F) -> Self::F;
    /// The sum of the lanes, pairwise.
    fn sum(self, x: Self::F) -> f32;
    /// The sums of sixteen vectors, each as [`Simd::sum`] adds.
    #[inline(always)]
    fn sums(self, x: &[Self::F; LANES]) -> Self::F {
        let mut sums = [0.0; LANES];
        for lane in 0..LANES {
            sums[lane] = self.sum(x[lane]);
        }
        self.load(&sums)
    }
    /// The greatest of the lanes.
    fn greatest(self, x: Self::F) -> f32;
    /// IEEE halves to float32.
    fn load_f16(self, from: &[u16; LANES]) -> Self::F;
    /// bfloat16 to float32.
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F;

    fn words(self, from: &[u32; LANES]) -> Self::I;
    fn zero(self) -> Self::I;
    /// The four bits from bit `AT` of each word on, as a number.
    fn nibble<const AT: u32>(self, x: Self::I) -> Self::F;
    /// The eight bits from bit `AT` of each word on, as a number.
    fn byte<const AT: u32>(self, x: Self::I) -> Self::F;
    /// The lower four bits of every byte.
    fn low_nibbles(self, x: Self::I) -> Self::I;
    /// The upper four bits of every byte.
    fn high_nibbles(self, x: Self::I) -> Self::I;
    /// To each lane of `sum` the dot product of the four unsigned bytes of `a`, each below 16, with the four signed ones
    /// of `b`.
    fn dot_nibbles(self, sum: Self::I, a: Self::I, b: i32) -> Self::I;
    /// The same for any unsigned bytes.
    fn dot_bytes(self, sum: Self::I, a: Self::I, b: i32) -> Self::I;
    /// `upper * 256 + lower`.
    fn join(self, upper: Self::I, lower: Self::I) -> Self::I;
    /// Signed integers to float32.
    fn to_float(self, x: Self::I) -> Self::F;
    /// Integral numbers `256 * upper + lower` as these two signed bytes: all upper ones, all lower ones.
    fn split(self, x: Self::F) -> [[u8; LANES]; 2];
    /// Asks for the cache line at `at`, which may lie anywhere.
    fn prefetch<T>(self, at: *const T);

    /// `e^x`, within two units of the last place; 0 below -87.3 (where the result would be subnormal), at most `e^88.3`.
    #[inline(always)]
    fn exp(self, x: Self::F) -> Self::F {
        // x = n ln 2 + r; e^r by its Taylor polynomial, whose remainder at |r| <= ln 2 / 2 is below 2^-27.
        let c = |value| self.splat(value);
        let x = self.max(self.min(x, c(88.3)), c(-104.0));
        let n = self.max(self.round(self.mul(x, c(std::f32::consts::LOG2_E))), c(-126.0));
        let r = self.mul_add(n, c(-0.693_359_4), x);
        let r = self.mul_add(n, c(2.121_944_4e-4), r);
        let mut p = c(1.0 / 5040.0);
        for term in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = self.mul_add(p, r, c(term));
        }
        // Far below the range the polynomial is worth nothing; the result is 0 there.
        let in_range = self.min(self.max(self.add(x, c(88.3)), c(0.0)), c(1.0));
        self.mul(self.mul(p, self.exp2_integral(n)), in_range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies an operation to the lanes of a vector on one path.
    struct Exp([f32; LANES]);

    impl Kernel for Exp {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            s.store(s.exp(s.load(&self.0)), &mut out);
            out
        }
    }

    #[test]
    fn exp_is_within_two_units_of_the_last_place() {
        for path in Path::available() {
            for step in 0..12_000 {
                let x: [f32; LANES] = std::array::from_fn(|lane| -87.2 + 0.0146 * step as f32 + lane as f32 * 1e-3);
                for (x, found) in x.iter().zip(run(path, Exp(x))) {
                    let want = f64::from(x.min(88.3)).exp();
                    let error = (f64::from(found) - want).abs() / want;
                    assert!(error <= 2.0 * f64::from(f32::EPSILON), "{path}: exp({x}) = {found}, not {want}");
                }
            }
            let edges = [f32::NEG_INFINITY, -1e30, -200.0, -90.0, 0.0, -0.0, 1e30, f32::INFINITY];
            let x = std::array::from_fn(|lane| edges[lane % edges.len()]);
            let found = run(path, Exp(x));
            assert_eq!(found[..6], [0.0, 0.0, 0.0, 0.0, 1.0, 1.0], "{path}");
            assert!(found[6].is_finite() && found[6] > 2e38, "{path}");
        }
    }

    struct Everything;

    impl Kernel for Everything {
        type Output = Vec<[f32; LANES]>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let words: [u32; LANES] = std::array::from_fn(|i| (i as u32).wrapping_mul(0x9e37_79b9) ^ 0x8421_f0e7);
            let x: [f32; LANES] = std::array::from_fn(|i| (i as f32 - 7.4) * 1.75);
            let halves: [u16; LANES] =
                [0, 1, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x3555, 0x8001, 0x1234, 0x9876, 0x5000, 7, 8, 9];
            let (f, w) = (s.load(&x), s.words(&words));
            let mut out = Vec::new();
            let mut push = |value| {
                let mut lanes = [0.0; LANES];
                s.store(value, &mut lanes);
                out.push(lanes);
            };
            push(s.nibble::<0>(w));
            push(s.nibble::<20>(w));
            push(s.nibble::<28>(w));
            push(s.byte::<0>(w));
            push(s.byte::<24>(w));
            push(s.load_f16(&halves));
            push(s.load_bf16(&halves));
            push(s.round(f));
            push(s.exp2_integral(s.round(f)));
            push(s.splat(s.sum(f)));
            push(s.splat(s.greatest(f)));
            push(s.to_float(s.dot_nibbles(w, s.low_nibbles(w), i32::from_le_bytes([1, 0x80, 0x7f, 0xff]))));
            push(s.to_float(s.dot_nibbles(s.zero(), s.high_nibbles(w), i32::from_le_bytes([0x80; 4]))));
            push(s.to_float(s.dot_bytes(s.zero(), w, i32::from_le_bytes([0x7f; 4]))));
            push(s.to_float(s.dot_bytes(s.zero(), w, i32::from_le_bytes([0x80; 4]))));
            push(s.to_float(s.join(s.high_nibbles(w), s.dot_bytes(s.zero(), w, i32::from_le_bytes([0x80; 4])))));
            for bytes in s.split(s.round(s.mul(f, s.splat(1000.0)))) {
                push(s.load(&bytes.map(|byte| f32::from(byte.cast_signed()))));
            }
            let mut vectors = [f; LANES];
            for lane in 1..LANES {
                vectors[lane] = s.mul(vectors[lane - 1], s.splat(1.1));
            }
            let sums = vectors.map(|vector| s.sum(vector));
            push(s.sub(s.sums(&vectors), s.load(&sums)));
            out
        }
    }

    #[test]
    fn every_path_does_the_same() {
        let bytes = |word: u32| word.to_le_bytes();
        let want = run(Path::PORTABLE, Everything);
        let words: [u32; LANES] = std::array::from_fn(|i| (i as u32).wrapping_mul(0x9e37_79b9) ^ 0x8421_f0e7);
        for (lane, word) in words.iter().enumerate() {
            assert_eq!(want[1][lane], ((word >> 20) & 15) as f32);
            assert_eq!(want[4][lane], (word >> 24) as f32);
            let all: i32 = bytes(*word).iter().map(|b| i32::from(*b) * -128).sum();
            assert_eq!(want[14][lane], all as f32);
            let high: i32 = bytes(*word).iter().map(|b| i32::from(*b >> 4) * -128).sum();
            assert_eq!(want[12][lane], high as f32);
        }
        assert_eq!(want.last(), Some(&[0.0; LANES]), "sums of many vectors and of one");
        for path in Path::available() {
            assert_eq!(run(path, Everything), want, "{path}");
        }
    }

    #[test]
    fn the_paths_that_are_not_tested_here_are_named() {
        let here: Vec<String> = Path::available().iter().map(ToString::to_string).collect();
        let absent = ["neon", "avx2", "avx512", "avx512-vnni"].map(|name| (name, here.iter().any(|path| path == name)));
        for (name, _) in absent.iter().filter(|(_, here)| !here) {
            println!("not tested on this machine: {name}");
        }
        assert_eq!(Path::best().to_string(), *here.last().unwrap());
    }
}
