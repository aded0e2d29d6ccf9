//! Attention over caches that plans move, by MLX's own operations.

#[path = "laws/attention.rs"]
mod laws;

/// Makes this program's operations those that are tested.
fn choose() {
    annulus_engine::ops::choose(&annulus_engine::ops::Mlx);
}
