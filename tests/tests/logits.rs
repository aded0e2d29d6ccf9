//! Laws of the forward pass, over tiny random models with MLX's own kernels.
//!
//! The kernels are chosen for a whole process, so these tests have a file of their own.

use annulus_engine::cache::KvOptions;
use annulus_engine::load::{Kernels, LoadOptions, Loaded, WeightForm, load};
use annulus_tests::tiny::{RopeScaling, TinyOptions, tiny_llama};

fn open(options: TinyOptions, weights: WeightForm) -> Loaded {
    open_with(options, weights, KvOptions::default())
}

fn open_with(options: TinyOptions, weights: WeightForm, kv: KvOptions) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    tiny_llama(folder.path(), options).unwrap();
    // Weights are mapped: the folder may go while the model stays.
    load(&LoadOptions {
        model: Some(folder.path().display().to_string()),
        kernels: Kernels::Mlx,
        weights,
        kv,
        ..LoadOptions::default()
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 37 + 11) % 250).collect()
}

/// A prompt split anywhere gives the logits of one forward, to the bit.
#[test]
fn a_prompt_in_parts_equals_one_forward() {
    for rope_scaling in [RopeScaling::Default, RopeScaling::Linear, RopeScaling::Llama3] {
        let mut model = open(TinyOptions { rope_scaling, ..TinyOptions::default() }, WeightForm::Auto);
        let tokens = tokens(90);
        let whole = model.session.all_logits(&tokens, &[90]).unwrap();
        assert_eq!(whole.len(), 90 * 320);
        for split in [&[][..], &[1, 88, 1], &[16, 7, 1, 40], &[89], &[45, 45]] {
            let parts = model.session.all_logits(&tokens, split).unwrap();
            assert!(whole == parts, "{rope_scaling:?} {split:?}");
        }
    }
}

const SPLITS: [&[usize]; 5] = [&[], &[1, 88, 1], &[16, 7, 1, 40], &[89], &[45, 45]];

/// The same over quantized columns, which every query sees as they are stored, its own among them.
#[test]
fn quantized_caches_give_the_logits_of_one_forward() {
    for (bits, group) in [(8, None), (4, Some(32)), (3, Some(32))] {
        let options = TinyOptions { head_dim: 64, ..TinyOptions::default() };
        let mut model = open_with(options, WeightForm::Auto, KvOptions { bits: Some(bits), group, max_size: None });
        let tokens = tokens(90);
        let whole = model.session.all_logits(&tokens, &[90]).unwrap();
        for split in SPLITS {
            assert!(whole == model.session.all_logits(&tokens, split).unwrap(), "{bits} bits, {split:?}");
        }
    }
}

/// The same over bounded caches, up to the order in which their columns are added. Where what one layer adds up is rounded
/// to few bits in the next, a last bit may become a whole step: with quantized columns the law is strict for one layer only.
#[test]
fn bounded_caches_give_the_logits_of_one_forward() {
    for (max_size, bits, layers, tolerance) in
        [(5, None, 2, 1e-4), (16, None, 2, 1e-4), (90, None, 2, 1e-4), (16, Some(8), 1, 1e-4), (16, Some(8), 2, 0.02)]
    {
        let options = TinyOptions { head_dim: 64, layers, ..TinyOptions::default() };
        let kv = KvOptions { bits, group: None, max_size: Some(max_size) };
        let mut model = open_with(options.clone(), WeightForm::Auto, kv);
        let tokens = tokens(90);
        let whole = model.session.all_logits(&tokens, &[90]).unwrap();
        for split in SPLITS {
            let parts = model.session.all_logits(&tokens, split).unwrap();
            let most = whole.iter().zip(&parts).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(most <= tolerance, "at most {max_size}, {bits:?} bits, {split:?}: {most}");
        }
        let mut unbounded = open_with(options, WeightForm::Auto, KvOptions { max_size: None, ..kv });
        let unbounded = unbounded.session.all_logits(&tokens, &[90]).unwrap();
        let same = whole.iter().zip(&unbounded).take_while(|(a, b)| (*a - *b).abs() < 0.05).count() / 320;
        assert!(same >= max_size as usize, "the first {max_size} positions see all, but only {same} are alike");
        assert!(same < 90 || max_size == 90, "a bound of {max_size} changed nothing");
    }
}

/// What a token is given must not depend on what follows it.
#[test]
fn a_position_sees_nothing_behind_it() {
    let mut model = open(TinyOptions::default(), WeightForm::Auto);
    let all = tokens(40);
    let mut other = all.clone();
    other[30..].fill(3);
    let (a, b) = (model.session.all_logits(&all, &[40]).unwrap(), model.session.all_logits(&other, &[40]).unwrap());
    assert!(a[..30 * 320] == b[..30 * 320]);
    assert!(a[30 * 320..31 * 320] != b[30 * 320..31 * 320]);
}

/// Each position sees all that are before it, the first one included.
#[test]
fn a_position_sees_everything_before_it() {
    let mut model = open(TinyOptions::default(), WeightForm::Auto);
    let all = tokens(40);
    let whole = model.session.all_logits(&all, &[20]).unwrap();
    for changed in [0, 1, 19, 38] {
        let mut other = all.clone();
        other[changed] = (other[changed] + 1) % 250;
        let logits = model.session.all_logits(&other, &[20]).unwrap();
        assert!(whole[39 * 320..] != logits[39 * 320..], "the last position does not see position {changed}");
    }
}

#[test]
fn rope_scalings_differ() {
    let logits = |rope_scaling| {
        let mut model = open(TinyOptions { rope_scaling, ..TinyOptions::default() }, WeightForm::Auto);
        model.session.all_logits(&tokens(12), &[12]).unwrap()
    };
    let (plain, linear, llama3) =
        (logits(RopeScaling::Default), logits(RopeScaling::Linear), logits(RopeScaling::Llama3));
    assert!(plain != linear && plain != llama3 && linear != llama3);
}

#[test]
fn parts_that_do_not_divide_the_tokens_are_refused() {
    let mut model = open(TinyOptions::default(), WeightForm::Auto);
    for split in [&[0][..], &[41], &[20, 21]] {
        let error = model.session.all_logits(&tokens(40), split).unwrap_err().to_string();
        assert!(error.contains("40 tokens"), "{error}");
    }
}
