//! What a user may choose about the cache of a model.

use annulus_plan::{Growth, Kind, Window};

use super::{Affine, Arrangement, Format};
use crate::error::{Error, Result};
use crate::models::CacheLayer;

/// What a user chooses about the KV cache; each absent choice leaves the model's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvOptions {
    /// Keys and values are quantized to so many bits.
    pub bits: Option<i32>,
    /// Numbers that share a scale, when quantized; 64 when absent, or 32 where heads are too small for that.
    pub group: Option<i32>,
    /// Layers that attend to everything keep at most so many tokens: the first [`SINKS`](Self::SINKS) and the newest.
    pub max_size: Option<u32>,
}

impl KvOptions {
    /// First tokens that a bounded cache keeps: attention rests on them (Xiao et al., 2023, "Efficient Streaming Language
    /// Models with Attention Sinks"; four suffice there).
    pub const SINKS: u32 = 4;

    /// The cache of a model with these layers.
    ///
    /// # Errors
    /// In words for the user, when the model or MLX cannot do what was chosen.
    pub fn arrange(&self, layers: &[CacheLayer]) -> Result<Arrangement> {
        let bounded = self.bound()?;
        let kinds = layers.iter().map(|layer| match (layer.kind, bounded) {
            (Kind::Full, Some(ring)) => ring,
            (kind, _) => kind,
        });
        Ok(Arrangement { kinds: kinds.collect(), format: self.format(layers)?, growth: Growth::default() })
    }

    fn bound(&self) -> Result<Option<Kind>> {
        let Some(size) = self.max_size else { return Ok(None) };
        if size <= Self::SINKS {
            let (sinks, least) = (Self::SINKS, Self::SINKS + 1);
            return Err(Error::Unsupported(format!(
                "a KV cache of at most {size} tokens has no room behind the first {sinks}, which are always kept: choose at \
                 least {least}"
            )));
        }
        Ok(Some(Kind::Ring(Window { size, sinks: Self::SINKS })))
    }

    fn format(&self, layers: &[CacheLayer]) -> Result<Format> {
        let Some(bits) = self.bits else {
            return match self.group {
                Some(_) => {
                    Err(Error::Unsupported("a KV group size without KV bits has no meaning: say both".to_owned()))
                }
                None => Ok(Format::Plain),
            };
        };
        let usual = if layers.iter().all(|layer| layer.heads.head_dim.is_multiple_of(64)) { 64 } else { 32 };
        let affine = Affine::new(bits, self.group.unwrap_or(usual))?;
        layers.iter().try_for_each(|layer| affine.check(layer.heads.head_dim))?;
        Ok(Format::Affine(affine))
    }
}
