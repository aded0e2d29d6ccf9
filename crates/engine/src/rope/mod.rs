//! Rotary position embedding and its scalings.
//!
//! Pair `i` of a head of `dims` numbers is turned by `position / frequency(i)`, with
//! `frequency(i) = theta^(2 i / dims)` (Su et al., 2021, "RoFormer"). Scalings change the frequencies.

mod fields;
mod frequencies;
mod scaling;

use std::sync::{Arc, OnceLock};

use mlx_rs::{Array, fast};

use annulus_kernels::rope::Rope as Kernel;
use annulus_plan::Rope as Positions;

pub use fields::{build, read, read_scaling};
pub use scaling::{Scaling, Yarn};

use crate::mlx::{Result, scalar};
use crate::ops;

/// A rotation, ready to be applied.
#[derive(Debug)]
pub struct Rope {
    dims: i32,
    traditional: bool,
    scale: f32,
    turns: Turns,
    /// What heads are multiplied with before they are turned, where it is not 1.
    gain: Option<f64>,
    /// The same for this project's kernels, once they have asked for it.
    kernel: OnceLock<Option<Arc<Kernel>>>,
}

#[derive(Debug)]
enum Turns {
    /// `theta`, from which MLX computes the frequencies.
    Base(f32),
    /// `[dims / 2]` frequencies.
    Frequencies(Array),
}

impl Rope {
    /// A rotation of heads of `dims` numbers; `traditional` pairs neighbours instead of halves.
    ///
    /// # Errors
    /// When MLX cannot compute the frequencies.
    pub fn new(dims: i32, theta: f32, traditional: bool, scaling: Scaling) -> Result<Self> {
        let (mut scale, mut gain) = (1.0, None);
        let turns = match scaling {
            Scaling::None => Turns::Base(theta),
            Scaling::Linear { factor } => {
                scale = 1.0 / factor;
                Turns::Base(theta)
            }
            Scaling::Llama3 { factor, low, high, original } => {
                Turns::Frequencies(frequencies::llama3(dims, theta, factor, low, high, original)?)
            }
            Scaling::Yarn(yarn) => {
                gain = Some(yarn.gain).filter(|gain| *gain != 1.0);
                Turns::Frequencies(frequencies::yarn(dims, theta, &yarn)?)
            }
            Scaling::Proportional { rotated, factor } => {
                Turns::Frequencies(frequencies::proportional(dims, theta, rotated, factor)?)
            }
        };
        Ok(Self { dims, traditional, scale, turns, gain, kernel: OnceLock::new() })
    }

    /// A rotation whose frequencies are multiplied by factors that the checkpoint holds, `[dims / 2]`: GGUF files store a
    /// scaling so, in place of its parameters.
    ///
    /// # Errors
    /// When MLX cannot compute the frequencies.
    pub fn with_factors(dims: i32, theta: f32, traditional: bool, factors: &Array) -> Result<Self> {
        let frequencies = frequencies::plain(dims, theta)?.multiply(factors)?;
        frequencies.eval()?;
        let turns = Turns::Frequencies(frequencies);
        Ok(Self { dims, traditional, scale: 1.0, turns, gain: None, kernel: OnceLock::new() })
    }

    /// Turns `x`, `[B, heads, L, dim]`: column `i` of row `r` by the position of row `r` plus `i`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn forward(&self, x: &Array, positions: &RopePositions) -> Result<Array> {
        ops::one(ops::chosen().rope(self, &[x], positions))
    }

    /// The same for queries and keys.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn forward_both(&self, queries: &Array, keys: &Array, positions: &RopePositions) -> Result<[Array; 2]> {
        let turned = ops::chosen().rope(self, &[queries, keys], positions)?;
        turned.try_into().map_err(|_| mlx_rs::error::Exception::custom("a rotation without a result"))
    }

    /// The rotation in the form of this project's kernels; `None` when they do not know it.
    pub(crate) fn kernel(&self) -> Option<Arc<Kernel>> {
        let build = || {
            let pairs = usize::try_from(self.dims / 2).ok().filter(|_| self.gain.is_none())?;
            let scale = f64::from(self.scale);
            let rates: Vec<f64> = match &self.turns {
                Turns::Base(theta) => {
                    (0..pairs).map(|pair| scale * f64::from(*theta).powf(-(pair as f64) / pairs as f64)).collect()
                }
                Turns::Frequencies(frequencies) => {
                    let frequencies = frequencies.contiguous().ok()?;
                    frequencies.try_as_slice::<f32>().ok()?.iter().map(|each| scale / f64::from(*each)).collect()
                }
            };
            (rates.len() == pairs).then(|| Arc::new(Kernel::new(rates, self.traditional)))
        };
        self.kernel.get_or_init(build).clone()
    }

    /// [`forward`](Self::forward) by MLX's own operation.
    pub(crate) fn with_mlx(&self, x: &Array, positions: &RopePositions) -> Result<Array> {
        let strengthened = self.gain.map(|gain| x.multiply(scalar(gain, x.dtype()))).transpose()?;
        let x = strengthened.as_ref().unwrap_or(x);
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
