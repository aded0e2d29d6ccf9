//! What several architectures read of a config, and what must hold of it.

use annulus_plan::{Kind, Window};

use super::Load;
use crate::checkpoint::Config;
use crate::rope::Rope;
use crate::weights::Weights;

/// Which columns a layer attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// All.
    Full,
    /// The newest of a window.
    Sliding,
}

/// The rotations of a model whose layers differ in reach.
#[derive(Debug)]
pub(super) struct Ropes {
    /// Of layers that attend to all columns.
    pub(super) full: Rope,
    /// Of layers that attend to a window.
    pub(super) sliding: Rope,
}

impl Ropes {
    /// That of layers of this reach.
    pub(super) fn of(&self, reach: Reach) -> &Rope {
        match reach {
            Reach::Full => &self.full,
            Reach::Sliding => &self.sliding,
        }
    }
}

/// `num_hidden_layers`. A layer has tensors, so a number that no checkpoint could hold ends here.
pub(super) fn layers(weights: &Weights<'_>, config: &Config) -> Load<usize> {
    let field = "num_hidden_layers";
    let (layers, tensors) = (config.count(field)?, weights.checkpoint.names().count());
    if layers > tensors {
        return Err(config.error(field, format!("is {layers}, but the checkpoint has no more than {tensors} tensors")));
    }
    Ok(layers)
}

/// Checks that so many key and value heads, which `field` states, divide the query heads.
pub(super) fn check_groups(config: &Config, field: &str, heads: usize, kv_heads: usize) -> Load<()> {
    if heads.is_multiple_of(kv_heads) {
        return Ok(());
    }
    Err(config.error(field, format!("is {kv_heads}, which does not divide the {heads} of num_attention_heads")))
}

/// Checks that a head, whose width `field` states, consists of pairs.
pub(super) fn check_pairs(config: &Config, field: &str, dim: usize) -> Load<()> {
    if dim.is_multiple_of(2) {
        return Ok(());
    }
    Err(config.error(field, format!("is {dim}, but RoPE turns pairs: it must be even")))
}

/// Checks that the activation, where one of these fields names it, is the one that the architecture has.
pub(super) fn check_activation(config: &Config, fields: &[&str], expected: &str) -> Load<()> {
    for field in fields {
        if let Some(found) = config.optional::<String>(field)?.filter(|found| found != expected) {
            return Err(config.unsupported(&format!("{field} {found:?}"), expected));
        }
    }
    Ok(())
}

/// Checks that a switch is off, or not there.
pub(super) fn check_off(config: &Config, field: &str) -> Load<()> {
    if config.optional_or(field, false)? {
        return Err(config.unsupported(&format!("{field} true"), "false"));
    }
    Ok(())
}

/// Whether the embedding serves as the output projection `head`. Libraries differ in what an absent field means, the weights
/// do not.
pub(super) fn tied(weights: &Weights<'_>, config: &Config, head: &str) -> Load<bool> {
    let stated = config.optional("tie_word_embeddings")?;
    Ok(stated.unwrap_or_else(|| !weights.checkpoint.has(&format!("{head}.weight"))))
}

/// The reach of each layer: `layer_types`, or every `pattern`-th layer full and the others sliding.
pub(super) fn reaches(config: &Config, layers: usize, pattern: usize) -> Load<Vec<Reach>> {
    let Some(types) = config.optional::<Vec<String>>("layer_types")? else {
        let reach = |layer: usize| if (layer + 1).is_multiple_of(pattern) { Reach::Full } else { Reach::Sliding };
        return Ok((0..layers).map(reach).collect());
    };
    if types.len() != layers {
        let problem = format!("has {} entries for the {layers} of num_hidden_layers", types.len());
        return Err(config.error("layer_types", problem));
    }
    let reach = |name: &String| match name.as_str() {
        "full_attention" => Ok(Reach::Full),
        "sliding_attention" => Ok(Reach::Sliding),
        other => Err(config.unsupported(&format!("{other:?} in layer_types"), "full_attention, sliding_attention")),
    };
    types.iter().map(reach).collect()
}

/// Checks that a model without windows has none: `layer_types` names full attention only.
pub(super) fn check_all_full(config: &Config, layers: usize) -> Load<()> {
    match reaches(config, layers, 1)?.contains(&Reach::Sliding) {
        true => Err(config.unsupported("layer_types other than full_attention", "full_attention")),
        false => Ok(()),
    }
}

/// What each reach means for a cache: sliding layers keep a ring of `sliding_window` columns.
pub(super) fn kinds(config: &Config, reaches: &[Reach]) -> Load<Vec<Kind>> {
    let field = "sliding_window";
    let ring = match config.optional(field)? {
        Some(0) => return Err(config.error(field, "must be at least 1, found 0")),
        Some(window) => Some(Kind::Ring(Window::of(window))),
        None if reaches.contains(&Reach::Sliding) => {
            return Err(config.error(field, "is missing, but there are layers with sliding_attention"));
        }
        None => None,
    };
    let kind = |reach: &Reach| match reach {
        Reach::Full => Kind::Full,
        Reach::Sliding => ring.unwrap_or(Kind::Full),
    };
    Ok(reaches.iter().map(kind).collect())
}
