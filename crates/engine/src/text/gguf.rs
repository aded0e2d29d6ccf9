//! A tokenizer from the metadata of a GGUF file: byte-level BPE.
//!
//! The file holds tokens, merges and the name of a pre-tokenizer; what the name means is known only to llama.cpp and
//! stated here again, in the form that the model's own `tokenizer.json` has it. An unknown name is an error: a
//! pre-tokenizer that is nearly right gives worse answers and no sign of why.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer as Inner};

use super::vocabulary::Entry;
use super::{SpecialTokens, TextError};
use crate::checkpoint::{GgufFile, LoadError};

/// What a GGUF file holds for a tokenizer.
pub(super) struct Parts {
    pub(super) inner: Inner,
    pub(super) entries: Vec<Option<Entry>>,
    pub(super) special: SpecialTokens,
    pub(super) prefix: Vec<u32>,
    pub(super) suffix: Vec<u32>,
}

/// What a token is, by its number in the file.
mod kind {
    pub(super) const NORMAL: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const CONTROL: u32 = 3;
    pub(super) const USER_DEFINED: u32 = 4;
}

/// Reads tokenizer, special tokens, and what goes around a text.
pub(super) fn read(file: &GgufFile) -> Result<Parts, TextError> {
    let model = required(file, "tokenizer.ggml.model", file.string("tokenizer.ggml.model")?)?;
    if model != "gpt2" {
        return Err(unsupported(
            file,
            format!("tokenizer model {model:?}"),
            "\"gpt2\" (byte-level BPE); for others, use the model's folder with its tokenizer.json",
        ));
    }
    let tokens = required(file, "tokenizer.ggml.tokens", file.strings("tokenizer.ggml.tokens")?)?;
    let merges = required(file, "tokenizer.ggml.merges", file.strings("tokenizer.ggml.merges")?)?;
    let kinds = file.integers("tokenizer.ggml.token_type")?;
    let kinds = kinds.unwrap_or_else(|| vec![kind::NORMAL; tokens.len()]);
    if kinds.len() != tokens.len() {
        let problem = format!("has {} tokens, but {} token types", tokens.len(), kinds.len());
        return Err(TextError::tokenizer(file.file().path(), problem));
    }
    let name = file.string("tokenizer.ggml.pre")?.unwrap_or("default");
    let pre = PreTokenizer::named(name).ok_or_else(|| {
        let possible = format!("{}; for others, use the model's folder with its tokenizer.json", PreTokenizer::NAMES);
        unsupported(file, format!("pre-tokenizer {name:?}"), &possible)
    })?;

    let wrong = |error: Box<dyn std::error::Error + Send + Sync>| {
        TextError::tokenizer(file.file().path(), format!("cannot be built: {error}"))
    };
    let mut inner = Inner::new(bpe(&tokens, &merges, pre.ignores_merges()).map_err(wrong)?);
    inner.with_pre_tokenizer(Some(pre.build().map_err(wrong)?));
    inner.with_decoder(Some(ByteLevel::new(false, false, false)));
    if pre.composes_characters() {
        inner.with_normalizer(Some(NFC)).map_err(wrong)?;
    }
    let mut entries = Vec::with_capacity(tokens.len());
    let mut added = Vec::new();
    for (token, kind) in tokens.iter().zip(&kinds) {
        let is_special = matches!(*kind, kind::CONTROL | kind::UNKNOWN);
        if is_special || *kind == kind::USER_DEFINED {
            added.push(AddedToken::from(*token, is_special).normalized(false));
            entries.push(Some(Entry::Added { content: (*token).to_owned(), special: is_special }));
        } else {
            entries.push(Some(Entry::Model((*token).to_owned())));
        }
    }
    inner.add_tokens(added).map_err(wrong)?;

    let special = SpecialTokens::from_gguf(file, &tokens)?;
    let around = |flag: &str, default: bool, key: &str| -> Result<Vec<u32>, TextError> {
        let wanted = file.bool(flag)?.unwrap_or(default);
        Ok(file.token_id(key)?.filter(|_| wanted).into_iter().collect())
    };
    let prefix = around("tokenizer.ggml.add_bos_token", pre.begins_texts(), "tokenizer.ggml.bos_token_id")?;
    let suffix = around("tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id")?;
    Ok(Parts { inner, entries, special, prefix, suffix })
}

fn required<T>(file: &GgufFile, key: &str, value: Option<T>) -> Result<T, LoadError> {
    value.ok_or_else(|| LoadError::field(file.file().path(), key, "is missing; without it there is no tokenizer"))
}

fn unsupported(file: &GgufFile, what: String, possible: &str) -> TextError {
    TextError::Unsupported { file: file.file().path().to_owned(), what, possible: possible.to_owned() }
}

fn bpe(tokens: &[&str], merges: &[&str], ignore_merges: bool) -> tokenizers::Result<BPE> {
    let vocabulary: Vocab = tokens.iter().map(|token| (*token).to_owned()).zip(0..).collect();
    let merges = merges
        .iter()
        .map(|merge| match merge.split_once(' ') {
            Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
            None => Err(format!("merge {merge:?} must be two tokens with a space between them").into()),
        })
        .collect::<tokenizers::Result<Vec<_>>>()?;
    BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(ignore_merges).build()
}

/// The pre-tokenizers that are known, by what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreTokenizer {
    /// GPT-2's pattern.
    Gpt2,
    /// Single digits, then GPT-2's pattern.
    SmolLm,
    /// llama.cpp's own, for files that name none.
    Default,
    /// Llama 3's pattern.
    Llama3,
    /// Llama 3's with single digits, after composing characters.
    Qwen2,
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl PreTokenizer {
    const NAMES: &'static str = "\"gpt-2\", \"smollm\", \"default\", \"llama-bpe\", \"qwen2\"";

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gpt-2" => Self::Gpt2,
            "smollm" => Self::SmolLm,
            "default" => Self::Default,
            "llama-bpe" => Self::Llama3,
            "qwen2" => Self::Qwen2,
            _ => return None,
        })
    }

    /// Whether a word that is a token is taken whole, whatever the merges say.
    fn ignores_merges(self) -> bool {
        self == Self::Llama3
    }

    /// Whether a text begins with the `bos` token when the file does not say.
    fn begins_texts(self) -> bool {
        self == Self::Llama3
    }

    /// Whether characters are composed first (NFC). llama.cpp leaves that out; the model's `tokenizer.json` has it.
    fn composes_characters(self) -> bool {
        self == Self::Qwen2
    }

    fn build(self) -> tokenizers::Result<Sequence> {
        let split = |pattern: &str| -> tokenizers::Result<PreTokenizerWrapper> {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into())
        };
        let bytes = |with_gpt2_pattern| ByteLevel::new(false, true, with_gpt2_pattern).into();
        Ok(Sequence::new(match self {
            Self::Gpt2 => vec![bytes(true)],
            Self::SmolLm => vec![Digits::new(true).into(), bytes(true)],
            Self::Default => vec![
                split(r"[\p{P}\$\+<=>\^~\|]+")?,
                split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)")?,
                split(r"\p{N}+")?,
                split(r"[0-9][0-9][0-9]")?,
                bytes(false),
            ],
            Self::Llama3 => vec![split(LLAMA3)?, bytes(false)],
            Self::Qwen2 => vec![split(QWEN2)?, bytes(false)],
        }))
    }
}
