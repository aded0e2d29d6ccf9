//! The laws can fail: with mlx-lm's rules put back, one at a time, random histories break them.

use crate::common::{Seeds, live};
use annulus_plan::Faults;

/// How many of 400 random histories break a law, and how the first one does.
fn broken(faults: Faults) -> (usize, String) {
    let mut seeds = Seeds(7);
    let histories: Vec<_> = (0..400).map(|_| seeds.history()).collect();
    let broken: Vec<String> = histories.iter().filter_map(|h| live(h, |s| s.with_faults(faults)).err()).collect();
    (broken.len(), broken.into_iter().next().unwrap_or_default())
}

#[test]
fn the_right_rules_break_no_law() {
    assert_eq!(broken(Faults::NONE), (0, String::new()));
}

#[test]
fn the_block_mask_rule_of_mlx_lm_breaks_the_definition() {
    let (count, first) = broken(Faults { block_mask: true, ..Faults::NONE });
    println!("block mask rule: {count} of 400 histories; {first}");
    assert!(count > 20 && first.contains("by the definition"), "{count} {first}");
}

#[test]
fn the_padding_rule_of_mlx_lm_breaks_what_rows_hold() {
    let (count, first) = broken(Faults { left_pad: true, ..Faults::NONE });
    println!("padding rule: {count} of 400 histories; {first}");
    assert!(count > 20, "{count} {first}");
}

#[test]
fn the_sink_mask_rule_of_mlx_lm_breaks_the_definition() {
    let (count, first) = broken(Faults { sink_mask: true, ..Faults::NONE });
    println!("sink mask rule: {count} of 400 histories; {first}");
    assert!(count > 20 && first.contains("by the definition"), "{count} {first}");
}
