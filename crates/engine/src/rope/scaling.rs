//! How models stretch their positions, as numbers.

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
    /// By frequency, with a gain (Peng et al., 2023, "YaRN").
    Yarn(Yarn),
    /// Only the first `rotated` numbers of a head turn, at the frequencies they would have if all of it turned, and
    /// slower by `factor` (Gemma 4).
    Proportional {
        /// Numbers that turn: even, and at most the head's width.
        rotated: i32,
        /// The divisor of their speed.
        factor: f32,
    },
}

/// The parameters of YaRN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// The factor of low frequencies.
    pub factor: f32,
    /// Positions of the original context.
    pub original: f64,
    /// Turns in the original context above which a frequency is kept.
    pub fast: f64,
    /// Turns in the original context below which a frequency is stretched in full.
    pub slow: f64,
    /// Whether the pairs between which frequencies are blended are rounded to whole ones.
    pub truncate: bool,
    /// What queries and keys are multiplied with.
    pub gain: f64,
}
