//! Byte strings and partitions for property tests.

use proptest::prelude::*;

/// Bytes that are UTF-8 here and there: letters that stop strings use, characters of every length, their parts, and noise.
pub(crate) fn messy_bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => "[abc]{1,3}".prop_map(String::into_bytes),
        2 => prop_oneof![Just("€"), Just("é"), Just("🦀"), Just("\u{fffd}")].prop_map(|text| text.as_bytes().to_vec()),
        1 => ("[é€🦀]", 1_usize..4).prop_map(|(text, len)| text.bytes().take(len).collect()),
        1 => proptest::collection::vec(any::<u8>(), 1..3),
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

/// Cuts bytes at these places; pieces may be empty.
pub(crate) fn cut<'a>(bytes: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    places.push(bytes.len());
    let mut start = 0;
    places
        .into_iter()
        .map(|end| {
            let piece = &bytes[start..end];
            start = end;
            piece
        })
        .collect()
}
