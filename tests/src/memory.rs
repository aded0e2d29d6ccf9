//! MLX's memory counters, which belong to the process: a test that reads them is alone in its process, or takes turns.

use std::thread;
use std::time::Duration;

use mlx_rs::memory::{active_memory, clear_cache};

/// MLX's active memory once it stands still: its thread lets go of temporary arrays a little after their results are there.
///
/// # Panics
/// When MLX does not tell.
#[must_use]
pub fn settled() -> usize {
    let mut last = usize::MAX;
    loop {
        clear_cache().unwrap();
        let now = active_memory().unwrap();
        if now == last {
            return now;
        }
        last = now;
        thread::sleep(Duration::from_millis(50));
    }
}
