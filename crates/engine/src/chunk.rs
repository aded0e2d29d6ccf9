//! How many prompt tokens run in one forward pass.
//!
//! A chunk cannot be interrupted, so it is sized to take at most about half a second. The size follows from the model and
//! the machine, not from the last chunk's time: chunks of other sizes may differ in the last bit of a float, and the same
//! seed shall give the same text.

use std::time::Duration;

use crate::device::Backend;

/// What a chunk should take.
const TARGET: Duration = Duration::from_millis(500);

/// What a processor core is taken to do: multiply-adds a second in float32. Measured over the `gemm` crate, two cores of
/// a server with AVX-512 do about 2 * 20e9 on matrices of a small model; half of it leaves room for slower ones.
const CORE: f64 = 10e9;

/// The same where bytes are multiplied and summed in one instruction: measured are 2 * 70e9.
const CORE_WITH_BYTE_PRODUCTS: f64 = 35e9;

/// A GPU does a chunk of this size well within the time, whatever the model.
const ON_GPU: usize = 2048;

/// Fewer tokens than this leave the matrix kernels without work.
const LEAST: usize = 16;

/// The size of chunks, and what was learnt about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize {
    tokens: usize,
}

impl ChunkSize {
    /// The size for a model of so many weights, each of which takes one multiply-add a token; `byte_products` says whether a CPU
    /// multiplies them as integers with instructions made for that.
    #[must_use]
    pub fn new(backend: Backend, weights: usize, cores: usize, byte_products: bool) -> Self {
        let tokens = if backend == Backend::Cpu {
            let core = if byte_products { CORE_WITH_BYTE_PRODUCTS } else { CORE };
            let per_second = core * cores as f64 / weights.max(1) as f64;
            let tokens = (per_second * TARGET.as_secs_f64()) as usize;
            // Powers of two: machines that are nearly alike then compute alike.
            (tokens / 2 + 1).next_power_of_two().clamp(LEAST, ON_GPU)
        } else {
            ON_GPU
        };
        Self { tokens }
    }

    /// Tokens of the next chunk.
    #[must_use]
    pub fn tokens(self) -> usize {
        self.tokens
    }

    /// Reports a chunk. One that took more than twice the target halves those to come.
    pub fn took(&mut self, tokens: usize, time: Duration) {
        if tokens >= self.tokens && time > 2 * TARGET {
            self.tokens = (self.tokens / 2).max(LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_models_run_in_smaller_chunks() {
        let small = ChunkSize::new(Backend::Cpu, 135_000_000, 2, false).tokens();
        let large = ChunkSize::new(Backend::Cpu, 8_000_000_000, 2, true).tokens();
        assert!(LEAST <= large && large < small && small <= ON_GPU, "{large} {small}");
        assert_eq!(ChunkSize::new(Backend::Cuda, 8_000_000_000, 2, false).tokens(), ON_GPU);
    }

    #[test]
    fn only_a_full_chunk_that_took_far_too_long_halves_the_size() {
        let mut chunk = ChunkSize { tokens: 64 };
        chunk.took(64, Duration::from_millis(900));
        chunk.took(8, Duration::from_secs(9));
        assert_eq!(chunk.tokens(), 64);
        chunk.took(64, Duration::from_millis(1100));
        assert_eq!(chunk.tokens(), 32);
        for _ in 0..9 {
            chunk.took(chunk.tokens(), Duration::from_secs(9));
        }
        assert_eq!(chunk.tokens(), LEAST);
    }
}
