//! Rotary position embedding and its scalings.
//!
//! Pair `i` of a head of `dims` numbers is turned by `position / frequency(i)`, with
//! `frequency(i) = theta^(2 i / dims)` (Su et al., 2021, "RoFormer"). Scalings change the frequencies.

use mlx_rs::ops::{arange, gt, logical_and, lt, select};
use mlx_rs::{Array, Dtype, fast};

use annulus_plan::Rope as Positions;

use crate::mlx::Result;

/// How a model stretches its positions beyond those it was first trained on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All positions are divided by `factor` (Chen et al., 2023, "Position Interpolation").
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// Frequencies whose wave is longer than `original / low` positions are multiplied by `factor`, those shorter than
    /// `original / high` are kept, and those between are blended (Llama 3.1's model card).
    Llama3 {
        /// The factor of low frequencies.
        factor: f32,
        /// Waves in the original context below which a frequency is stretched in full.
        low: f32,
        /// Waves in the original context above which a frequency is kept.
        high: f32,
        /// Positions of the original context.
        original: f32,
    },
}

/// A rotation, ready to be applied.
#[derive(Debug)]
pub struct Rope {
    dims: i32,
    traditional: bool,
    scale: f32,
    turns: Turns,
}

#[derive(Debug)]
enum Turns {
    /// `theta`, from which MLX computes the frequencies.
    Base(f32),
    /// `[dims / 2]` frequencies.
    Frequencies(Array),
}

impl Rope {
    /// A rotation of the first `dims` numbers of a head; `traditional` pairs neighbours instead of halves.
    ///
    /// # Errors
    /// When MLX cannot compute the frequencies.
    pub fn new(dims: i32, theta: f32, traditional: bool, scaling: Scaling) -> Result<Self> {
        let (scale, turns) = match scaling {
            Scaling::None => (1.0, Turns::Base(theta)),
            Scaling::Linear { factor } => (1.0 / factor, Turns::Base(theta)),
            Scaling::Llama3 { factor, low, high, original } => {
                (1.0, Turns::Frequencies(llama3(dims, theta, factor, low, high, original)?))
            }
        };
        Ok(Self { dims, traditional, scale, turns })
    }

    /// A rotation whose frequencies are multiplied by factors that the checkpoint holds, `[dims / 2]`: GGUF files store a
    /// scaling so, in place of its parameters.
    ///
    /// # Errors
    /// When MLX cannot compute the frequencies.
    pub fn with_factors(dims: i32, theta: f32, traditional: bool, factors: &Array) -> Result<Self> {
        let frequencies = plain_frequencies(dims, theta)?.multiply(factors)?;
        frequencies.eval()?;
        Ok(Self { dims, traditional, scale: 1.0, turns: Turns::Frequencies(frequencies) })
    }

    /// Turns `x`, `[B, heads, L, dim]`: column `i` of row `r` by the position of row `r` plus `i`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn forward(&self, x: &Array, positions: &RopePositions) -> Result<Array> {
        let (base, frequencies) = match &self.turns {
            Turns::Base(theta) => (Some(*theta), None),
            Turns::Frequencies(frequencies) => (None, Some(frequencies)),
        };
        match positions {
            RopePositions::Same(position) => {
                fast::rope(x, self.dims, self.traditional, base, self.scale, *position, frequencies)
            }
            RopePositions::Each(positions) => {
                fast::rope_dynamic(x, self.dims, self.traditional, base, self.scale, positions, frequencies)
            }
        }
    }
}

/// The positions of a step, captured before its write, in the form in which MLX takes them.
#[derive(Debug)]
pub enum RopePositions {
    /// All rows stand at the same position.
    Same(i32),
    /// `[B]`, int32.
    Each(Array),
}

impl RopePositions {
    /// Takes over what the planner captured.
    #[must_use]
    pub fn new(positions: &Positions) -> Self {
        match positions {
            Positions::Same(position) => Self::Same(position.0),
            Positions::Each(each) => {
                let each: Vec<i32> = each.iter().map(|position| position.0).collect();
                Self::Each(Array::from_slice(&each, &[i32::try_from(each.len()).unwrap_or(i32::MAX)]))
            }
        }
    }
}

/// `theta^(2 i / dims)` in float32 on the device: `[dims / 2]`.
fn plain_frequencies(dims: i32, theta: f32) -> Result<Array> {
    let exponents = arange::<_, f32>(0, dims, 2)?.divide(Array::from_f32(dims as f32))?;
    Array::from_f32(theta).power(exponents)?.as_dtype(Dtype::Float32)
}

/// The frequencies of Llama 3, in float32 on the device: `[dims / 2]`.
fn llama3(dims: i32, theta: f32, factor: f32, low: f32, high: f32, original: f32) -> Result<Array> {
    let plain = plain_frequencies(dims, theta)?;
    let waves = Array::from_f32(2.0 * std::f32::consts::PI).multiply(&plain)?;
    let (longest, shortest) = (Array::from_f32(original / low), Array::from_f32(original / high));
    let stretched = select(gt(&waves, &longest)?, plain.multiply(Array::from_f32(factor))?, &plain)?;
    let between = logical_and(gt(&waves, &shortest)?, lt(&waves, &longest)?)?;
    let blend = Array::from_f32(original)
        .divide(&waves)?
        .subtract(Array::from_f32(low))?
        .divide(Array::from_f32(high - low))?;
    let divisor = Array::from_f32(1.0).subtract(&blend)?.divide(Array::from_f32(factor))?.add(&blend)?;
    let blended = stretched.divide(divisor)?;
    let frequencies = select(between, blended, &stretched)?;
    frequencies.eval()?;
    Ok(frequencies)
}
