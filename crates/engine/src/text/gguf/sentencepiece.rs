//! SentencePiece's BPE, `tokenizer.ggml.model` "llama": the neighbours that make the token of the highest score are merged
//! first, over a text whose spaces are written `▁`.

use std::collections::HashSet;

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace, Sequence};
use tokenizers::{Result as Built, Tokenizer as Inner};

use super::{Base, Tokens, added_text, kind, required, wrong};
use crate::checkpoint::GgufFile;
use crate::text::TextError;
use crate::text::vocabulary::Spelling;

/// The longest token that is looked for in its parts, in bytes: SentencePiece makes none of more than some dozen. It keeps a
/// file of one huge token from taking hours.
const LONGEST: usize = 1024;

/// Reads scores, and the habit of beginning texts with a space.
pub(super) fn read(file: &GgufFile, tokens: &Tokens<'_>) -> Result<Base, TextError> {
    let scores = required(file, "tokenizer.ggml.scores", file.floats("tokenizer.ggml.scores")?)?;
    let invalid = |problem: String| TextError::tokenizer(file.file().path(), problem);
    if scores.len() != tokens.texts.len() {
        return Err(invalid(format!("has {} tokens, but {} scores", tokens.texts.len(), scores.len())));
    }
    if !are_in_an_order(tokens, &scores) {
        return Err(invalid(
            "gives all its tokens one score, from which no order of merging follows: the file was converted without the \
             model's tokenizer.model. Convert it again beside that, or use the model's folder with its tokenizer.json"
                .to_owned(),
        ));
    }
    let byte_tokens = tokens.kinds.contains(&kind::BYTE);
    let spelling = Spelling::SentencePiece { byte_tokens };
    let mut inner = Inner::new(bpe(tokens, &scores, spelling).map_err(|error| wrong(file, error))?);
    let prepends_space = file.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let normalizer = normalizer(prepends_space).map_err(|error| wrong(file, error))?;
    inner.with_normalizer(Some(normalizer)).map_err(|error| wrong(file, error))?;
    Ok(Base { inner, spelling, begins_texts: true })
}

/// Whether scores differ, as they do in every vocabulary that was trained.
fn are_in_an_order(tokens: &Tokens<'_>, scores: &[f32]) -> bool {
    let normal = tokens.iter().zip(scores).filter(|((_, kind), _)| *kind == kind::NORMAL);
    let scores: Vec<f32> = normal.map(|(_, score)| *score).collect();
    scores.len() < 2 || scores.iter().any(|score| *score != scores[0])
}

fn normalizer(prepends_space: bool) -> Built<Sequence> {
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    if prepends_space {
        steps.push(Prepend::new("▁".to_owned()).into());
    }
    steps.push(Replace::new(" ", "▁")?.into());
    Ok(Sequence::new(steps))
}

fn bpe(tokens: &Tokens<'_>, scores: &[f32], spelling: Spelling) -> Built<BPE> {
    let mut vocabulary = Vocab::default();
    let mut pieces = Vec::new();
    let mut unknown = None;
    for (((text, kind), score), id) in tokens.iter().zip(scores).zip(0..) {
        let text = match kind {
            kind::USER_DEFINED => added_text(text, spelling).into_owned(),
            _ => text.to_owned(),
        };
        match kind {
            kind::NORMAL => pieces.push((text.clone(), *score)),
            // These come before all merging, wherever they stand in a text.
            kind::USER_DEFINED => pieces.push((text.clone(), f32::INFINITY)),
            kind::UNKNOWN => unknown = Some(text.clone()),
            _ => {}
        }
        vocabulary.insert(text, id);
    }
    let mut builder = BPE::builder().vocab_and_merges(vocabulary, merges(&pieces)).fuse_unk(true);
    if let Some(unknown) = unknown {
        builder = builder.unk_token(unknown);
    }
    let Spelling::SentencePiece { byte_tokens } = spelling else {
        return builder.build();
    };
    builder.byte_fallback(byte_tokens).build()
}

/// The pairs of pieces that make a piece, in the order in which they are merged: by score, and for the same piece with the
/// longest left part first, as transformers converts such vocabularies.
fn merges(pieces: &[(String, f32)]) -> Merges {
    let known: HashSet<&str> = pieces.iter().map(|(text, _)| text.as_str()).collect();
    let mut pairs = Vec::new();
    for (text, score) in pieces.iter().filter(|(text, _)| text.len() <= LONGEST) {
        let characters = text.chars().count();
        for (left_characters, (at, _)) in text.char_indices().enumerate().skip(1) {
            let (left, right) = text.split_at(at);
            if known.contains(left) && known.contains(right) {
                pairs.push((*score, left_characters, characters - left_characters, left, right));
            }
        }
    }
    // Equal ones stay in the order of ids.
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)));
    pairs.into_iter().map(|(_, _, _, left, right)| (left.to_owned(), right.to_owned())).collect()
}
