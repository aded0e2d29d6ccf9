//! Attention over caches that plans move, by this project's CPU kernels, which take the plan's runs as they are.

#[path = "laws/attention.rs"]
mod laws;

/// Makes this program's operations those that are tested.
fn choose() {
    annulus_engine::ops::choose(&annulus_engine::ops::Cpu);
}
