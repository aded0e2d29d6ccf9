//! Text to token ids, and token ids to bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use tokenizers::Tokenizer as Inner;

use super::gguf;
use super::vocabulary::{Entry, Spelling, Vocabulary};
use super::{SpecialTokens, TextError};
use crate::checkpoint::{Checkpoint, GgufFile, LoadError};

/// More token ids than any model has; a file that numbers its tokens higher is wrong, and would cost memory for each
/// number it leaves out.
const MOST_IDS: usize = 1 << 22;

/// A model's tokenizer. It may be used by all threads at once.
pub struct Tokenizer {
    inner: Inner,
    vocabulary: Vocabulary,
    special: SpecialTokens,
    /// Put around a text when special tokens are asked for, beside what the tokenizer's own post-processor adds.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocabulary.len())
            .field("special", &self.special)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer of a checkpoint: `tokenizer.json` of a folder, or the metadata of a GGUF file.
    ///
    /// # Errors
    /// When there is none, or it is damaged or of a kind that is not supported.
    pub fn open(checkpoint: &Checkpoint) -> Result<Self, TextError> {
        match checkpoint.gguf() {
            Some(file) => Self::from_gguf(file),
            None => Self::from_folder(checkpoint.path()),
        }
    }

    /// The tokenizer of a folder: `tokenizer.json`, with `tokenizer_config.json` for the names of special tokens.
    ///
    /// # Errors
    /// As [`Tokenizer::open`].
    pub fn from_folder(folder: &Path) -> Result<Self, TextError> {
        let file = folder.join("tokenizer.json");
        if !file.is_file() {
            return Err(TextError::Unsupported {
                file,
                what: "a model without this file".to_owned(),
                possible:
                    "models with a tokenizer.json, which `AutoTokenizer.from_pretrained(…).save_pretrained(…)` of \
                           Python's transformers writes from any other tokenizer"
                        .to_owned(),
            });
        }
        let bytes = std::fs::read(&file).map_err(|source| LoadError::Io { path: file.clone(), source })?;
        let inner = Inner::from_bytes(&bytes)
            .map_err(|error| TextError::tokenizer(&file, format!("cannot be read: {error}")))?;
        let spelling = spelling(&inner, &file)?;
        let entries = entries(&inner, &file)?;
        Self::new(&file, inner, spelling, entries, SpecialTokens::from_folder(folder)?)
    }

    /// The tokenizer that a GGUF file describes.
    ///
    /// # Errors
    /// As [`Tokenizer::open`].
    pub fn from_gguf(file: &GgufFile) -> Result<Self, TextError> {
        let gguf::Parts { inner, spelling, entries, special, prefix, suffix } = gguf::read(file)?;
        let tokenizer = Self::new(file.file().path(), inner, spelling, entries, special)?;
        Ok(Self { prefix, suffix, ..tokenizer })
    }

    fn new(
        file: &Path,
        mut inner: Inner,
        spelling: Spelling,
        entries: Vec<Option<Entry>>,
        special: SpecialTokens,
    ) -> Result<Self, TextError> {
        // A file may ask for texts to be cut off or filled up, which suits training and would here lose part of a prompt.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| TextError::tokenizer(file, error.to_string()))?;
        Ok(Self {
            inner,
            vocabulary: Vocabulary::new(spelling, entries),
            special,
            prefix: Vec::new(),
            suffix: Vec::new(),
        })
    }

    /// The tokens of a text.
    ///
    /// Special tokens that are written out in the text (`<|im_start|>`) become those tokens, as chat templates need it.
    /// With `add_special` the tokens that the model expects around a text are added, such as one that begins it; a
    /// rendered chat template has them written out already.
    ///
    /// Some vocabularies lack a byte: SmolLM2's has no token for the control character U+001D, for example. It is left out
    /// then, by every tokenizer.
    ///
    /// # Errors
    /// When the tokenizer fails on the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        let encoding =
            self.inner.encode_fast(text, add_special).map_err(|error| TextError::Encode(error.to_string()))?;
        let mut ids = Vec::with_capacity(encoding.len() + 2);
        if add_special {
            ids.extend_from_slice(&self.prefix);
        }
        ids.extend_from_slice(encoding.get_ids());
        if add_special {
            ids.extend_from_slice(&self.suffix);
        }
        Ok(ids)
    }

    /// The exact bytes of a token: a part of a character for some. A special token's are the text it is written as. An id
    /// that no token has, such as one that pads the embedding, has none.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// Whether a token is a mark rather than text: generated text leaves it out.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.vocabulary.is_special(id)
    }

    /// The text of tokens, special ones left out; what is no UTF-8 becomes U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> =
            ids.iter().filter(|&&id| !self.is_special(id)).flat_map(|&id| self.token_bytes(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The token written like this, if there is one. Tokens of the model are written in its own spelling.
    #[must_use]
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// One more than the highest token id. The model's logits may have more places; none of those is ever a token.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// The token that begins a text, for models that have one.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.id_of(self.special.get("bos_token")?)
    }

    /// The tokens that end a generation as far as the tokenizer's files know; see [`end_tokens`](super::end_tokens) for
    /// all of them.
    #[must_use]
    pub fn eos(&self) -> Vec<u32> {
        let named = self.special.get("eos_token").and_then(|token| self.id_of(token));
        let mut ids: Vec<u32> = named.into_iter().chain(self.special.end_ids().iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The special tokens by their names in templates: `bos_token`, `eos_token` and the like.
    #[must_use]
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }
}

/// How tokens spell bytes, which only the decoder tells.
fn spelling(inner: &Inner, file: &Path) -> Result<Spelling, TextError> {
    let decoder = inner.get_decoder().and_then(|decoder| serde_json::to_value(decoder).ok());
    let steps: Vec<serde_json::Value> = match decoder {
        None => Vec::new(),
        Some(decoder) => match decoder.get("decoders").and_then(|steps| steps.as_array()) {
            Some(steps) => steps.clone(),
            None => vec![decoder],
        },
    };
    let kinds: Vec<&str> = steps.iter().filter_map(|step| step.get("type")?.as_str()).collect();
    if kinds == ["ByteLevel"] {
        return Ok(Spelling::ByteLevel);
    }
    let replaces_underscores = steps.iter().any(|step| match step["type"].as_str() {
        Some("Metaspace") => step["replacement"] == "▁",
        Some("Replace") => step["pattern"]["String"] == "▁" && step["content"] == " ",
        _ => false,
    });
    let known = ["Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"];
    if replaces_underscores && kinds.iter().all(|kind| known.contains(kind)) {
        return Ok(Spelling::SentencePiece { byte_tokens: kinds.contains(&"ByteFallback") });
    }
    Err(TextError::Unsupported {
        file: file.to_owned(),
        what: format!("a decoder of the steps {kinds:?}"),
        possible: "ByteLevel, and SentencePiece's Metaspace or Replace with ByteFallback, Fuse and Strip".to_owned(),
    })
}

/// All tokens in the order of their ids.
fn entries(inner: &Inner, file: &Path) -> Result<Vec<Option<Entry>>, TextError> {
    let added: BTreeMap<u32, Entry> = inner
        .get_added_tokens_decoder()
        .into_iter()
        .map(|(id, token)| {
            let entry = Entry::Added { content: token.content, special: token.special };
            (id, entry)
        })
        .collect();
    let model = inner.get_vocab(false);
    let highest = model.values().chain(added.keys()).max();
    let len = highest.map_or(Some(0), |&id| usize::try_from(id).ok()?.checked_add(1));
    let len = len.filter(|&len| len <= MOST_IDS).ok_or_else(|| {
        let id = highest.copied().unwrap_or(0);
        TextError::tokenizer(file, format!("numbers a token {id}; ids below {MOST_IDS} were expected"))
    })?;
    let mut entries = vec![None; len];
    let model = model.into_iter().map(|(token, id)| (id, Entry::Model(token)));
    // Added ones come last: one that is in the model's vocabulary too counts as added.
    for (id, entry) in model.chain(added) {
        if let Some(place) = usize::try_from(id).ok().and_then(|id| entries.get_mut(id)) {
            *place = Some(entry);
        }
    }
    Ok(entries)
}
