//! The laws of attention where quantized columns are spelled out before it, as on an NVIDIA GPU; here they run on the CPU.

#[path = "laws/attention.rs"]
mod laws;

/// Makes this program's operations those that are tested.
fn choose() {
    annulus_engine::ops::choose(&annulus_engine::ops::Cuda);
}
