//! Many random histories. `FUZZ_PLAN` says how many; `make fuzz-plan` runs 200,000 in release.

use crate::common::{Seeds, live};

#[test]
fn every_history_keeps_the_laws() {
    let count: u64 = std::env::var("FUZZ_PLAN").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let seed: u64 = std::env::var("FUZZ_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut seeds = Seeds(seed);
    let (mut failed, mut operations) = (0u64, 0u64);
    for i in 0..count {
        let history = seeds.history();
        operations += history.len() as u64;
        if let Err(why) = live(&history, |session| session) {
            failed += 1;
            if failed <= 5 {
                eprintln!("history {i}: {why}");
            }
        }
    }
    println!("{count} histories, {operations} operations, {failed} failures");
    assert_eq!(failed, 0);
}
