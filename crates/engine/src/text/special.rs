//! The special tokens that have names, and the tokens that end a generation.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{TextError, Tokenizer};
use crate::checkpoint::{Checkpoint, Config, GgufFile, LoadError};

/// Special tokens by the names that chat templates use for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    named: BTreeMap<String, String>,
    /// Ids of tokens that end a generation, where a file gives ids rather than names.
    end_ids: Vec<u32>,
}

const NAMES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Tokens that end a turn, by how they are written: GGUF files made before there was a key for them have one end token
/// only, and that may be the one that ends a document.
const ENDS_OF_TURN: [&str; 3] = ["<|eot_id|>", "<|im_end|>", "<end_of_turn>"];

impl SpecialTokens {
    /// What `tokenizer_config.json` says, and `special_tokens_map.json` where that says nothing.
    pub(super) fn from_folder(folder: &Path) -> Result<Self, LoadError> {
        let mut named = BTreeMap::new();
        for file in ["tokenizer_config.json", "special_tokens_map.json"] {
            let file = folder.join(file);
            if !file.is_file() {
                continue;
            }
            let config = Config::read(&file)?;
            for name in NAMES {
                if let Some(value) = config.value(name) {
                    // Either the token, or an object that describes it.
                    let token = value.as_str().or_else(|| value.get("content")?.as_str());
                    let token = token.ok_or_else(|| {
                        config.error(name, "must be a string, or an object with a string \"content\"")
                    })?;
                    named.entry(name.to_owned()).or_insert_with(|| token.to_owned());
                }
            }
        }
        Ok(Self { named, end_ids: Vec::new() })
    }

    /// What the metadata of a GGUF file with these tokens says.
    pub(super) fn from_gguf(file: &GgufFile, tokens: &[&str]) -> Result<Self, LoadError> {
        let token = |id: u32| usize::try_from(id).ok().and_then(|id| tokens.get(id));
        let id = |key: &str| {
            let id = file.token_id(key)?;
            match id {
                Some(id) if token(id).is_none() => Err(LoadError::field(
                    file.file().path(),
                    key,
                    format!("must be one of the {} tokens, found {id}", tokens.len()),
                )),
                id => Ok(id),
            }
        };
        let mut named = BTreeMap::new();
        for (name, key) in [
            ("bos_token", "tokenizer.ggml.bos_token_id"),
            ("eos_token", "tokenizer.ggml.eos_token_id"),
            ("unk_token", "tokenizer.ggml.unknown_token_id"),
            ("pad_token", "tokenizer.ggml.padding_token_id"),
        ] {
            if let Some(token) = id(key)?.and_then(token) {
                named.insert(name.to_owned(), (*token).to_owned());
            }
        }
        let mut end_ids = Vec::new();
        for key in ["eos", "eot", "eom"] {
            end_ids.extend(id(&format!("tokenizer.ggml.{key}_token_id"))?);
        }
        let written = tokens.iter().zip(0..).filter(|(token, _)| ENDS_OF_TURN.contains(token));
        end_ids.extend(written.map(|(_, id)| id));
        Ok(Self { named, end_ids })
    }

    /// The token with this name: `bos_token`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.named.get(name).map(String::as_str)
    }

    /// All names with their tokens.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named.iter().map(|(name, token)| (name.as_str(), token.as_str()))
    }

    pub(super) fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }
}

/// The tokens that end a generation: all that `config.json`, `generation_config.json` and the tokenizer's own files name,
/// sorted.
///
/// Files disagree often: a model that was tuned for chat ends a turn with another token than the one its base ended
/// documents with. Each of them is an end.
///
/// # Errors
/// When `eos_token_id` of the config is neither an id nor a list of them.
pub fn end_tokens(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
    let config = checkpoint.config();
    let mut ids = config.token_ids("eos_token_id")?;
    // Models with several parts keep the language model's fields in a section.
    if let Some(Value::Object(_)) = config.value("text_config")
        && let Some(section) = config.section("text_config")?
    {
        ids.extend(section.token_ids("eos_token_id")?);
    }
    ids.extend_from_slice(&checkpoint.generation().eos_token_ids);
    ids.extend(tokenizer.eos());
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
