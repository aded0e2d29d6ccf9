//! Where a checkpoint keeps its text model: by itself, or as a part of one that also sees and hears.

use std::collections::BTreeSet;

use super::fields;
use crate::checkpoint::{Checkpoint, Config, LoadError};
use crate::weights::Weights;

/// The modules of the layers and of the output projection: of a text model by itself, and of one that is a part, as
/// mlx-lm and as transformers name them.
const PLACES: [Place; 3] = [
    Place { body: "model", head: "lm_head" },
    Place { body: "language_model.model", head: "language_model.lm_head" },
    Place { body: "model.language_model", head: "lm_head" },
];

#[derive(Debug, Clone, Copy)]
struct Place {
    body: &'static str,
    head: &'static str,
}

impl Place {
    fn of(checkpoint: &Checkpoint) -> Option<Self> {
        PLACES.into_iter().find(|place| checkpoint.has(&embedding(place.body)))
    }
}

fn embedding(body: &str) -> String {
    format!("{body}.embed_tokens.weight")
}

/// The name of the tensor with one row a token, where there is one.
pub(crate) fn embedding_name(checkpoint: &Checkpoint) -> Option<String> {
    Place::of(checkpoint).map(|place| embedding(place.body))
}

/// Roughly how many weights a token is multiplied with: those of the text model, without rows that are only looked up, and of
/// experts as many as a token runs through.
pub(crate) fn multiplied(checkpoint: &Checkpoint) -> usize {
    let Some(Place { body, head }) = Place::of(checkpoint) else { return 0 };
    let whole = checkpoint.config();
    let text = whole.section("text_config").ok().flatten();
    let count = |field| text.as_ref().unwrap_or(whole).optional::<usize>(field).ok().flatten();
    let (experts, chosen) = (count("num_experts"), count("top_k_experts"));
    let weights = |name: &str| {
        let elements: usize = checkpoint.describe(name).map_or(0, |(shape, _)| shape.iter().product());
        match (experts, chosen) {
            _ if name.contains(".embed_tokens_per_layer.") => 0,
            (Some(experts), Some(chosen)) if name.contains(".experts.") => elements / experts.max(1) * chosen,
            _ => elements,
        }
    };
    checkpoint.names().filter(|name| name.starts_with(body) || name.starts_with(head)).map(weights).sum()
}

/// A checkpoint's text model.
#[derive(Debug)]
pub(super) struct TextPart {
    /// Its config: `text_config` where there is one, else the whole.
    pub(super) config: Config,
    /// The config of the whole.
    whole: Config,
    /// The module that holds embedding, layers and last norm.
    pub(super) body: &'static str,
    /// The output projection's module, which need not be there.
    pub(super) head: &'static str,
}

impl TextPart {
    /// Finds the text model; tensors of other parts are left alone, and logged.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn find(weights: &Weights<'_>) -> Result<Self, LoadError> {
        let checkpoint = weights.checkpoint;
        let Some(Place { body, head }) = Place::of(checkpoint) else {
            return Err(checkpoint.missing(&embedding(PLACES[0].body)));
        };
        let whole = weights.config().clone();
        let config = whole.section("text_config")?.unwrap_or_else(|| whole.clone());
        let part = Self { config, whole, body, head };
        part.log_others(checkpoint);
        Ok(part)
    }

    fn log_others(&self, checkpoint: &Checkpoint) {
        let (body, head) = (format!("{}.", self.body), format!("{}.", self.head));
        let others: Vec<&str> =
            checkpoint.names().filter(|name| !name.starts_with(&body) && !name.starts_with(&head)).collect();
        if others.is_empty() {
            return;
        }
        let module = |name: &str| name.trim_start_matches("model.").split('.').next().unwrap_or(name).to_owned();
        let modules: BTreeSet<String> = others.iter().map(|name| module(name)).collect();
        let modules: Vec<String> = modules.into_iter().collect();
        tracing::info!(tensors = others.len(), modules = modules.join(", "), "parts that are not text are not used");
    }

    /// The number of tokens: as stated by the text model or by the whole, else as the embedding has rows.
    pub(super) fn vocabulary(&self, weights: &Weights<'_>) -> Result<usize, LoadError> {
        let stated = match self.config.optional("vocab_size")? {
            None => self.whole.optional("vocab_size")?,
            stated => stated,
        };
        let rows = || {
            let (shape, _) = weights.checkpoint.describe(&embedding(self.body))?;
            shape.first().copied()
        };
        match stated.or_else(rows) {
            Some(0) | None => Err(self.config.error("vocab_size", "must be at least 1")),
            Some(count) => Ok(count),
        }
    }

    /// Whether the embedding serves as output projection: as the text model says, else as the whole does.
    pub(super) fn tied(&self, weights: &Weights<'_>) -> Result<bool, LoadError> {
        match self.config.optional("tie_word_embeddings")? {
            Some(tied) => Ok(tied),
            None => fields::tied(weights, &self.whole, self.head),
        }
    }
}
