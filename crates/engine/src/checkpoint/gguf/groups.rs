//! Blocks of numbers as groups: small integers with a scale and a bias.
//!
//! Every block format maps onto groups exactly. Number `i` of a group is `scale * integers[i] + bias` in float32: a float16
//! times a scale of at most 8 bits times an integer of at most 8 bits (6 where there are two factors) has no more than 24
//! significant bits, so the product is not rounded, and the sum is rounded where the format's own definition rounds it too.
//! The formats are defined in llama.cpp's `ggml-common.h` and, readable, in the `gguf` package's `quants.py`.

use half::f16;

use super::Encoding;

/// Calls `each` with scale, bias and integers of every group of a block, in order. Plain encodings have no groups.
///
/// # Panics
/// When `block` is shorter than a block of this encoding.
#[inline]
pub(super) fn for_each(encoding: Encoding, block: &[u8], mut each: impl FnMut(f32, f32, &[u8])) {
    let d = || half_at(block, 0);
    match encoding {
        Encoding::F32 | Encoding::F16 | Encoding::BF16 => {}
        Encoding::Q4_0 => each(d(), -8.0 * d(), &nibbles(&block[2..])),
        Encoding::Q4_1 => each(d(), half_at(block, 2), &nibbles(&block[4..])),
        Encoding::Q5_0 => each(d(), -16.0 * d(), &fives(&block[2..])),
        Encoding::Q5_1 => each(d(), half_at(block, 2), &fives(&block[4..])),
        // Adding 128 to a signed byte makes an unsigned one, and is a flip of the highest bit.
        Encoding::Q8_0 => each(d(), -128.0 * d(), &first::<32>(&block[2..]).map(|q| q ^ 0x80)),
        Encoding::Q4_K => q4_k(block, each),
        Encoding::Q5_K => q5_k(block, each),
        Encoding::Q6_K => q6_k(block, each),
    }
}

/// The first `N` of bytes that are known to be there.
pub(super) fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// A float16 of a block.
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes(first(&block[at..])).to_f32()
}

/// 32 integers of 4 bits: the low halves of 16 bytes, then the high halves.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    let mut integers = [0; 32];
    let (low, high) = integers.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
    integers
}

/// 32 integers of 5 bits: a word of their highest bits, then the others as nibbles.
fn fives(bytes: &[u8]) -> [u8; 32] {
    let highest = u32::from_le_bytes(first(bytes));
    let mut integers = nibbles(&bytes[4..]);
    for (place, integer) in integers.iter_mut().enumerate() {
        *integer |= u8::from(highest >> place & 1 == 1) << 4;
    }
    integers
}

/// Scale and bias of group `group` (0 to 7) of a Q4_K or Q5_K block: two float16, times integers of 6 bits that lie in 12
/// bytes. The first four scales and minima have bytes of their own, whose two highest bits belong to the last four.
fn scale_and_bias(block: &[u8], group: usize) -> (f32, f32) {
    let packed = &block[4..16];
    let (scale, minimum) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        (low & 15 | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4)
    };
    (half_at(block, 0) * f32::from(scale), -(half_at(block, 2) * f32::from(minimum)))
}

/// 8 groups: each run of 32 bytes holds two of them, one in the low halves and one in the high halves.
fn q4_k(block: &[u8], mut each: impl FnMut(f32, f32, &[u8])) {
    for (pair, bytes) in block[16..144].as_chunks::<32>().0.iter().enumerate() {
        let (scale, bias) = scale_and_bias(block, 2 * pair);
        each(scale, bias, &bytes.map(|byte| byte & 15));
        let (scale, bias) = scale_and_bias(block, 2 * pair + 1);
        each(scale, bias, &bytes.map(|byte| byte >> 4));
    }
}

/// As Q4_K; bit `group` of a further run of 32 bytes is the highest one of that group's integers.
fn q5_k(block: &[u8], mut each: impl FnMut(f32, f32, &[u8])) {
    let highest: [u8; 32] = first(&block[16..]);
    let mut group = 0;
    for bytes in block[48..176].as_chunks::<32>().0 {
        for shift in [0, 4] {
            let mut integers = bytes.map(|byte| byte >> shift & 15);
            for (integer, highest) in integers.iter_mut().zip(highest) {
                *integer |= (highest >> group & 1) << 4;
            }
            let (scale, bias) = scale_and_bias(block, group);
            each(scale, bias, &integers);
            group += 1;
        }
    }
}

/// 16 groups of 16 in two halves of 128 numbers: 64 bytes of nibbles, 32 bytes of upper pairs of bits, 8 signed scales.
/// Integers stand for themselves less 32.
fn q6_k(block: &[u8], mut each: impl FnMut(f32, f32, &[u8])) {
    let d = half_at(block, 208);
    for half in 0..2 {
        let (low, high) = (&block[64 * half..], &block[128 + 32 * half..]);
        for run in 0..4 {
            let low = &low[32 * (run % 2)..];
            let (nibble, pair) = (4 * (run / 2), 2 * run);
            let mut integers = [0; 32];
            for ((integer, low), high) in integers.iter_mut().zip(low).zip(high) {
                *integer = low >> nibble & 15 | (high >> pair & 3) << 4;
            }
            for (part, integers) in integers.as_chunks::<16>().0.iter().enumerate() {
                let scale = d * f32::from(block[192 + 8 * half + 2 * run + part].cast_signed());
                each(scale, -32.0 * scale, integers);
            }
        }
    }
}
