//! Byte-level BPE, `tokenizer.ggml.model` "gpt2": texts are cut by a pattern, and the bytes of each piece are merged.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer as Inner};

use super::{Base, Tokens, required, unsupported, wrong};
use crate::checkpoint::GgufFile;
use crate::text::TextError;
use crate::text::vocabulary::Spelling;

/// Reads merges and pre-tokenizer.
pub(super) fn read(file: &GgufFile, tokens: &Tokens<'_>) -> Result<Base, TextError> {
    let merges = required(file, "tokenizer.ggml.merges", file.strings("tokenizer.ggml.merges")?)?;
    let name = file.string("tokenizer.ggml.pre")?.unwrap_or("default");
    let pre = PreTokenizer::named(name).ok_or_else(|| {
        let possible = format!("{}; for others, use the model's folder with its tokenizer.json", PreTokenizer::NAMES);
        unsupported(file, format!("pre-tokenizer {name:?}"), &possible)
    })?;
    let wrong = |error| wrong(file, error);
    let mut inner = Inner::new(bpe(&tokens.texts, &merges, pre.ignores_merges()).map_err(wrong)?);
    inner.with_pre_tokenizer(Some(pre.build().map_err(wrong)?));
    if pre.composes_characters() {
        inner.with_normalizer(Some(NFC)).map_err(wrong)?;
    }
    Ok(Base { inner, spelling: Spelling::ByteLevel, begins_texts: pre.begins_texts() })
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
