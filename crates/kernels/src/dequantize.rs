//! Affine groups spelled out: `scale * q + bias`, in float32.

use rayon::prelude::*;

/// Packed integers with a scale and a bias a group, as MLX lays them out: element `i` of a row is in the row's bits
/// `i * bits ..`, lowest bits first.
#[derive(Debug, Clone, Copy)]
pub struct Affine<'a> {
    /// Little-endian words, row after row.
    pub words: &'a [u32],
    /// One a group, row after row.
    pub scales: &'a [f32],
    /// One a group, row after row.
    pub biases: &'a [f32],
    /// Neighbours that share a scale.
    pub group_size: usize,
    /// Bits of an integer.
    pub bits: usize,
}

/// Writes every element of `source` to `out`, in order; says no, and writes nothing, when it cannot: for other widths than
/// 4, 5, 6 and 8 bits, for groups that do not fill whole words, and for lengths that do not fit each other.
#[must_use]
pub fn dequantize(source: Affine<'_>, out: &mut [f32]) -> bool {
    let Affine { words, scales, biases, group_size, bits } = source;
    let groups = scales.len();
    let words_per_group = group_size * bits / 32;
    let fits = matches!(bits, 4 | 5 | 6 | 8)
        && group_size > 0
        && group_size * bits % 32 == 0
        && biases.len() == groups
        && words.len() == groups * words_per_group
        && out.len() == groups * group_size;
    if !fits {
        return false;
    }
    // A task of a few thousand elements is long enough to be worth waking a thread for.
    let groups_per_task = 8192 / group_size.min(8192);
    out.par_chunks_exact_mut(group_size)
        .zip(words.par_chunks_exact(words_per_group))
        .zip(scales)
        .zip(biases)
        .with_min_len(groups_per_task)
        .for_each(|(((out, words), scale), bias)| match bits {
            4 => spell::<4, 8>(words, *scale, *bias, out),
            5 => spell_across::<5, 5, 32>(words, *scale, *bias, out),
            6 => spell_across::<6, 3, 16>(words, *scale, *bias, out),
            _ => spell::<8, 4>(words, *scale, *bias, out),
        });
    true
}

/// One group of `BITS`-bit integers that do not divide a word: `ELEMENTS` of them fill `WORDS` words.
#[inline]
fn spell_across<const BITS: usize, const WORDS: usize, const ELEMENTS: usize>(
    words: &[u32],
    scale: f32,
    bias: f32,
    out: &mut [f32],
) {
    let (runs, _) = words.as_chunks::<WORDS>();
    let (elements, _) = out.as_chunks_mut::<ELEMENTS>();
    for (words, elements) in runs.iter().zip(elements) {
        for (place, element) in elements.iter_mut().enumerate() {
            let at = place * BITS;
            let next = words.get(at / 32 + 1).map_or(0, |&word| u64::from(word));
            let both = next << 32 | u64::from(words[at / 32]);
            let integer = (both >> (at % 32)) as u32 & ((1 << BITS) - 1);
            *element = scale * integer as f32 + bias;
        }
    }
}

/// One group of `BITS`-bit integers, `PER_WORD` in a word.
#[inline]
fn spell<const BITS: u32, const PER_WORD: usize>(words: &[u32], scale: f32, bias: f32, out: &mut [f32]) {
    let mask = (1u32 << BITS) - 1;
    let (elements, _) = out.as_chunks_mut::<PER_WORD>();
    for (word, elements) in words.iter().zip(elements) {
        for (place, element) in (0u32..).zip(elements) {
            *element = scale * ((word >> (BITS * place)) & mask) as f32 + bias;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_element_is_scale_times_integer_plus_bias(
            bits in prop_oneof![Just(4usize), Just(5), Just(6), Just(8)],
            group_size in prop_oneof![Just(16usize), Just(32), Just(64), Just(128)],
            groups in 0usize..200,
            salt in any::<u32>(),
        ) {
            prop_assume!(group_size * bits % 32 == 0);
            let words: Vec<u32> = (0..(groups * group_size * bits / 32) as u32)
                .map(|i| i.wrapping_mul(2_654_435_761).wrapping_add(salt))
                .collect();
            let scales: Vec<f32> = (0..groups).map(|g| g as f32 / 7.0 - 3.0).collect();
            let biases: Vec<f32> = (0..groups).map(|g| 5.0 - g as f32 / 3.0).collect();
            let mut out = vec![f32::NAN; groups * group_size];
            let source = Affine { words: &words, scales: &scales, biases: &biases, group_size, bits };
            prop_assert!(dequantize(source, &mut out));
            for (i, found) in out.iter().enumerate() {
                // The bits of element i, one by one.
                let q: u32 = (0..bits).map(|b| (words[(i * bits + b) / 32] >> ((i * bits + b) % 32) & 1) << b).sum();
                let group = i / group_size;
                prop_assert_eq!(*found, scales[group] * q as f32 + biases[group]);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_nothing_written() {
        let source = Affine { words: &[0; 4], scales: &[1.0], biases: &[1.0], group_size: 32, bits: 4 };
        let mut out = [7.0; 32];
        for wrong in [
            Affine { bits: 3, ..source },
            Affine { bits: 5, group_size: 16, ..source },
            Affine { group_size: 0, ..source },
            Affine { words: &[0; 5], ..source },
            Affine { biases: &[], ..source },
        ] {
            assert!(!dequantize(wrong, &mut out));
        }
        assert!(!dequantize(source, &mut [0.0; 31]));
        assert_eq!(out, [7.0; 32]);
        assert!(dequantize(source, &mut out));
        assert_eq!(out, [1.0; 32]);
    }
}
