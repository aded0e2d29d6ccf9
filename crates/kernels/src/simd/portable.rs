//! Arrays of sixteen, for any CPU. On aarch64 the compiler makes NEON of them. Elsewhere operations are calls: this path is
//! for the rare CPU that has no other, and inlined into every kernel it would take longer to compile than all the rest.

use super::{LANES, Simd};

#[derive(Clone, Copy)]
pub(super) struct Portable;

#[inline(always)]
fn each<T: Copy, U>(x: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    std::array::from_fn(|lane| f(x[lane]))
}

#[inline(always)]
fn both<T: Copy, U>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> U) -> [U; LANES] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

/// Folds the lanes pairwise, in the order that the other paths have too.
#[inline(always)]
fn fold(mut x: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            x[lane] = f(x[lane], x[lane + width]);
        }
        width /= 2;
    }
    x[0]
}

impl Simd for Portable {
    type F = [f32; LANES];
    type I = [u32; LANES];

    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        *from
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        *to = x;
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a + b)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a - b)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a * b)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a / b)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| if a > b { a } else { b })
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| if a < b { a } else { b })
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Without a fused instruction `mul_add` would be a library call.
        let fused = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
        std::array::from_fn(|lane| if fused { a[lane].mul_add(b[lane], c[lane]) } else { a[lane] * b[lane] + c[lane] })
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn round(self, x: Self::F) -> Self::F {
        // Adding and taking away 1.5 * 2^23 leaves no room for a fraction.
        each(x, |x| if x.abs() < 4_194_304.0 { (x + 12_582_912.0) - 12_582_912.0 } else { x })
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn exp2_integral(self, x: Self::F) -> Self::F {
        each(x, |x| f32::from_bits(((x as i32 + 127) << 23) as u32))
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn sum(self, x: Self::F) -> f32 {
        fold(x, |a, b| a + b)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn greatest(self, x: Self::F) -> f32 {
        fold(x, |a, b| if a > b { a } else { b })
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F {
        each(*from, |bits| half::f16::from_bits(bits).to_f32())
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F {
        each(*from, |bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    fn words(self, from: &[u32; LANES]) -> Self::I {
        *from
    }

    #[inline(always)]
    fn zero(self) -> Self::I {
        [0; LANES]
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn nibble<const AT: u32>(self, x: Self::I) -> Self::F {
        each(x, |x| ((x >> AT) & 15) as f32)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn byte<const AT: u32>(self, x: Self::I) -> Self::F {
        each(x, |x| ((x >> AT) & 255) as f32)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn low_nibbles(self, x: Self::I) -> Self::I {
        each(x, |x| x & 0x0f0f_0f0f)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn high_nibbles(self, x: Self::I) -> Self::I {
        each(x, |x| (x >> 4) & 0x0f0f_0f0f)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn dot_nibbles(self, sum: Self::I, a: Self::I, b: i32) -> Self::I {
        self.dot_bytes(sum, a, b)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn dot_bytes(self, sum: Self::I, a: Self::I, b: i32) -> Self::I {
        both(sum, a, |sum, a| {
            let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
            let dot: i32 = products.map(|(a, b)| i32::from(a) * i32::from(b as i8)).sum();
            sum.wrapping_add(dot as u32)
        })
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn join(self, upper: Self::I, lower: Self::I) -> Self::I {
        both(upper, lower, |upper, lower| (upper << 8).wrapping_add(lower))
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn to_float(self, x: Self::I) -> Self::F {
        each(x, |x| x as i32 as f32)
    }

    #[cfg_attr(target_arch = "aarch64", inline(always))]
    #[cfg_attr(not(target_arch = "aarch64"), inline(never))]
    fn split(self, x: Self::F) -> [[u8; LANES]; 2] {
        [each(x, |x| ((x as i32 + 128) >> 8) as u8), each(x, |x| x as i32 as u8)]
    }

    #[inline(always)]
    fn prefetch<T>(self, _: *const T) {}
}
