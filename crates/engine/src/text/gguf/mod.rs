//! A tokenizer from the metadata of a GGUF file.
//!
//! The file holds tokens, what it takes to merge them, and names; what a name means is known only to llama.cpp and stated
//! here again, in the form that the model's own `tokenizer.json` has it. An unknown name is an error: a tokenizer that is
//! nearly right gives worse answers and no sign of why.
//!
//! # Layout
//! - [`byte_level`]: model "gpt2";
//! - [`sentencepiece`]: model "llama".

mod byte_level;
mod sentencepiece;

use std::borrow::Cow;
use std::error::Error;

use tokenizers::{AddedToken, Tokenizer as Inner};

use super::vocabulary::{Entry, Spelling};
use super::{SpecialTokens, TextError};
use crate::checkpoint::{GgufFile, LoadError};

/// What a GGUF file holds for a tokenizer.
pub(super) struct Parts {
    pub(super) inner: Inner,
    pub(super) spelling: Spelling,
    pub(super) entries: Vec<Option<Entry>>,
    pub(super) special: SpecialTokens,
    pub(super) prefix: Vec<u32>,
    pub(super) suffix: Vec<u32>,
}

/// A tokenizer without its added tokens.
struct Base {
    inner: Inner,
    spelling: Spelling,
    /// Whether a text begins with the `bos` token when the file does not say.
    begins_texts: bool,
}

/// What a token is, by its number in the file.
mod kind {
    pub(super) const NORMAL: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const CONTROL: u32 = 3;
    pub(super) const USER_DEFINED: u32 = 4;
    pub(super) const BYTE: u32 = 6;
}

/// The tokens in the order of their ids, with a kind for each.
struct Tokens<'a> {
    texts: Vec<&'a str>,
    kinds: Vec<u32>,
}

impl<'a> Tokens<'a> {
    fn read(file: &'a GgufFile) -> Result<Self, TextError> {
        let texts = required(file, "tokenizer.ggml.tokens", file.strings("tokenizer.ggml.tokens")?)?;
        let kinds = file.integers("tokenizer.ggml.token_type")?;
        let kinds = kinds.unwrap_or_else(|| vec![kind::NORMAL; texts.len()]);
        if kinds.len() != texts.len() {
            let problem = format!("has {} tokens, but {} token types", texts.len(), kinds.len());
            return Err(TextError::tokenizer(file.file().path(), problem));
        }
        Ok(Self { texts, kinds })
    }

    fn iter(&self) -> impl Iterator<Item = (&'a str, u32)> {
        self.texts.iter().copied().zip(self.kinds.iter().copied())
    }
}

/// Reads tokenizer, special tokens, and what goes around a text.
pub(super) fn read(file: &GgufFile) -> Result<Parts, TextError> {
    let model = required(file, "tokenizer.ggml.model", file.string("tokenizer.ggml.model")?)?;
    let read = match model {
        "gpt2" => byte_level::read,
        "llama" => sentencepiece::read,
        other => {
            return Err(unsupported(
                file,
                format!("tokenizer model {other:?}"),
                "\"gpt2\" (byte-level BPE), \"llama\" (SentencePiece); for others, use the model's folder with its \
                 tokenizer.json",
            ));
        }
    };
    let tokens = Tokens::read(file)?;
    let Base { mut inner, spelling, begins_texts } = read(file, &tokens)?;
    let mut entries = Vec::with_capacity(tokens.texts.len());
    let mut added = Vec::new();
    for (text, kind) in tokens.iter() {
        let is_special = matches!(kind, kind::CONTROL | kind::UNKNOWN);
        if is_special || kind == kind::USER_DEFINED {
            let content = if is_special { Cow::Borrowed(text) } else { added_text(text, spelling) };
            added.push(AddedToken::from(content.clone(), is_special).normalized(false));
            entries.push(Some(Entry::Added { content: content.into_owned(), special: is_special }));
        } else {
            entries.push(Some(Entry::Model(text.to_owned())));
        }
    }
    inner.add_tokens(added).map_err(|error| wrong(file, error))?;

    let special = SpecialTokens::from_gguf(file, &tokens.texts)?;
    let around = |flag: &str, default: bool, key: &str| -> Result<Vec<u32>, TextError> {
        let wanted = file.bool(flag)?.unwrap_or(default);
        Ok(file.token_id(key)?.filter(|_| wanted).into_iter().collect())
    };
    let prefix = around("tokenizer.ggml.add_bos_token", begins_texts, "tokenizer.ggml.bos_token_id")?;
    let suffix = around("tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id")?;
    Ok(Parts { inner, spelling, entries, special, prefix, suffix })
}

/// The text of a token that a user of SentencePiece defined: llama.cpp's converter writes its spaces as such, and the model
/// has them as `▁`.
fn added_text(text: &str, spelling: Spelling) -> Cow<'_, str> {
    match spelling {
        Spelling::SentencePiece { .. } if text.contains(' ') => text.replace(' ', "▁").into(),
        _ => text.into(),
    }
}

fn required<T>(file: &GgufFile, key: &str, value: Option<T>) -> Result<T, LoadError> {
    value.ok_or_else(|| LoadError::field(file.file().path(), key, "is missing; without it there is no tokenizer"))
}

fn unsupported(file: &GgufFile, what: String, possible: &str) -> TextError {
    TextError::Unsupported { file: file.file().path().to_owned(), what, possible: possible.to_owned() }
}

/// An error of the tokenizer's library.
#[allow(clippy::needless_pass_by_value, reason = "it is the error of a result")]
fn wrong(file: &GgufFile, error: Box<dyn Error + Send + Sync>) -> TextError {
    TextError::tokenizer(file.file().path(), format!("cannot be built: {error}"))
}
