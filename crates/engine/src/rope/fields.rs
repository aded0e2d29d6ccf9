//! Rotations as configs describe them.

use super::{Rope, Scaling, Yarn};
use crate::checkpoint::{Config, LoadError};
use crate::mlx::rounded;
use crate::weights::{Weights, int};

type Result<T> = std::result::Result<T, LoadError>;

/// The rotation of a model that has one for all layers: `rope_parameters`, or `rope_theta` with `rope_scaling`.
///
/// # Errors
/// When a field is wrong, or names a scaling that is not supported.
pub fn read(weights: &Weights<'_>, config: &Config, dims: usize, theta: Option<f32>) -> Result<Rope> {
    // Newer configs gather everything about RoPE in one object.
    let parameters = config.section("rope_parameters")?;
    let stated = match &parameters {
        Some(parameters) => parameters.optional("rope_theta")?,
        None => None,
    };
    let theta = match stated.or(config.optional("rope_theta")?).or(theta) {
        Some(theta) => theta,
        None => return Err(config.error("rope_theta", "is missing; it must be a number above 0")),
    };
    let traditional = config.optional_or("rope_traditional", false)?;
    match parameters.or(config.section("rope_scaling")?) {
        // GGUF files hold the outcome of a scaling in place of its parameters.
        Some(scaling) if scaling.optional::<String>("rope_type")?.as_deref() == Some("factors") => {
            let factors = weights.vector(&scaling.required::<String>("tensor")?, dims / 2)?;
            Rope::with_factors(int(dims), theta, traditional, &factors).map_err(|error| refused(config, &error))
        }
        Some(scaling) => build(config, dims, theta, traditional, read_scaling(&scaling, dims)?),
        None => build(config, dims, theta, traditional, Scaling::None),
    }
}

/// A rotation of heads of `dims` numbers; `config` is what errors name.
///
/// # Errors
/// When `theta` is not above 0, or MLX cannot compute the frequencies.
pub fn build(config: &Config, dims: usize, theta: f32, traditional: bool, scaling: Scaling) -> Result<Rope> {
    if theta <= 0.0 {
        return Err(config.error("rope_theta", format!("must be above 0, found {theta}")));
    }
    Rope::new(int(dims), theta, traditional, scaling).map_err(|error| refused(config, &error))
}

fn refused(config: &Config, error: &mlx_rs::error::Exception) -> LoadError {
    config.error("rope_scaling", format!("was refused by MLX: {error}"))
}

/// The scaling that an object describes, for heads of `dims` numbers.
///
/// # Errors
/// When a field is wrong, or the type is not supported.
pub fn read_scaling(scaling: &Config, dims: usize) -> Result<Scaling> {
    let named = scaling.optional::<String>("rope_type")?.or(scaling.optional("type")?);
    let partial: f64 = scaling.optional_or("partial_rotary_factor", 1.0)?;
    if named.as_deref() == Some("proportional") {
        return read_proportional(scaling, dims, partial);
    }
    if partial != 1.0 {
        let problem = format!("is {partial}, but only rope_type \"proportional\" turns a part of a head");
        return Err(scaling.error("partial_rotary_factor", problem));
    }
    match named.as_deref() {
        None | Some("default") => Ok(Scaling::None),
        Some("linear") => Ok(Scaling::Linear { factor: scaling.above_zero("factor")? }),
        Some("llama3") => llama3(scaling),
        Some("yarn") => yarn(scaling).map(Scaling::Yarn),
        Some(other) => {
            Err(scaling.unsupported(&format!("rope_type {other:?}"), "default, linear, llama3, yarn, proportional"))
        }
    }
}

fn llama3(scaling: &Config) -> Result<Scaling> {
    let (low, high) = (scaling.optional_or("low_freq_factor", 1.0)?, scaling.optional_or("high_freq_factor", 4.0)?);
    if high <= low {
        return Err(scaling.error("high_freq_factor", format!("is {high}, not above low_freq_factor {low}")));
    }
    Ok(Scaling::Llama3 {
        factor: scaling.above_zero("factor")?,
        low,
        high,
        original: scaling.optional_or("original_max_position_embeddings", 8192.0)?,
    })
}

fn yarn(scaling: &Config) -> Result<Yarn> {
    let above_zero = |field: &str, default: f64| match scaling.optional_or(field, default)? {
        value if value > 0.0 => Ok(value),
        value => Err(scaling.error(field, format!("must be above 0, found {value}"))),
    };
    let (fast, slow) = (above_zero("beta_fast", 32.0)?, above_zero("beta_slow", 1.0)?);
    if fast < slow {
        return Err(scaling.error("beta_fast", format!("is {fast}, below beta_slow {slow}")));
    }
    let factor: f64 = scaling.required("factor")?;
    if factor < 1.0 {
        return Err(scaling.error("factor", format!("must be at least 1, found {factor}")));
    }
    let gain = |weight: f64| if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 };
    let gain = match scaling.optional("attention_factor")? {
        Some(gain) => gain,
        None => gain(scaling.optional_or("mscale", 1.0)?) / gain(scaling.optional_or("mscale_all_dim", 0.0)?),
    };
    Ok(Yarn {
        factor: rounded(factor),
        original: above_zero("original_max_position_embeddings", 4096.0)?,
        fast,
        slow,
        truncate: scaling.optional_or("truncate", true)?,
        gain,
    })
}

fn read_proportional(scaling: &Config, dims: usize, partial: f64) -> Result<Scaling> {
    if !(0.0..=1.0).contains(&partial) {
        return Err(scaling.error("partial_rotary_factor", format!("must be from 0 to 1, found {partial}")));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small whole number")]
    let rotated = (dims as f64 * partial) as usize;
    if !rotated.is_multiple_of(2) {
        let problem = format!("is {partial}, which makes {rotated} of a head's {dims} numbers turn: pairs turn");
        return Err(scaling.error("partial_rotary_factor", problem));
    }
    let factor = scaling.optional_or("factor", 1.0)?;
    if factor <= 0.0 {
        return Err(scaling.error("factor", format!("must be above 0, found {factor}")));
    }
    Ok(Scaling::Proportional { rotated: int(rotated), factor })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn scaling(value: Value) -> Scaling {
        let Value::Object(fields) = value else { panic!("{value} is no object") };
        read_scaling(&Config::new(Path::new("config.json"), fields), 64).unwrap()
    }

    /// The gain of the paper is `0.1 ln(factor) + 1`; DeepSeek's two weights divide one such gain by another.
    #[test]
    fn yarn_has_the_gain_of_its_paper() {
        let gain = |more: Value| {
            let mut fields = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            match scaling(fields) {
                Scaling::Yarn(yarn) => yarn.gain,
                other => panic!("{other:?}"),
            }
        };
        let paper = 0.1 * 4f64.ln() + 1.0;
        assert_eq!(gain(json!({})), paper);
        assert_eq!(gain(json!({"mscale": 1.0, "mscale_all_dim": 1.0})), 1.0);
        assert_eq!(gain(json!({"mscale_all_dim": 0.5})), paper / (0.05 * 4f64.ln() + 1.0));
        assert_eq!(gain(json!({"attention_factor": 1.25})), 1.25);
    }

    #[test]
    fn a_part_of_a_head_turns_in_whole_pairs() {
        let quarter = json!({"rope_type": "proportional", "partial_rotary_factor": 0.25});
        assert_eq!(scaling(quarter), Scaling::Proportional { rotated: 16, factor: 1.0 });
        assert_eq!(scaling(json!({"rope_type": "proportional"})), Scaling::Proportional { rotated: 64, factor: 1.0 });
        assert_eq!(scaling(json!({"partial_rotary_factor": 1.0})), Scaling::None);
    }
}
