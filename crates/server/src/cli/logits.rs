//! `annulus logits`: the logits of every position, for comparison with other engines.

use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};

use super::{Failure, model};

/// The flags of `annulus logits`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::Args,
    /// Token ids, separated by commas.
    #[arg(long, env = "ANNULUS_TOKENS", value_delimiter = ',', required_unless_present = "tokens_file")]
    tokens: Vec<u32>,
    /// A file with token ids, separated by commas or white space.
    #[arg(long, env = "ANNULUS_TOKENS_FILE", conflicts_with = "tokens", value_name = "FILE")]
    tokens_file: Option<PathBuf>,
    /// Let the first forwards take so many tokens each and the rest go one at a time through the cache; without it, one
    /// forward takes all.
    #[arg(long, env = "ANNULUS_SPLIT", value_delimiter = ',', value_name = "LENGTHS")]
    split: Vec<usize>,
    /// The safetensors file to write: float32, key `logits`.
    #[arg(long, env = "ANNULUS_OUT", value_name = "FILE")]
    out: PathBuf,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let tokens = match &args.tokens_file {
        Some(file) => read_tokens(file)?,
        None => args.tokens.clone(),
    };
    if tokens.is_empty() {
        return Err("there are no tokens; --tokens and --tokens-file need at least one".into());
    }
    let mut loaded = args.model.load()?;
    check(&tokens, loaded.session.vocabulary())?;
    let all_at_once = [tokens.len()];
    let split = if args.split.is_empty() { &all_at_once[..] } else { &args.split };
    let logits = loaded.session.all_logits(&tokens, split)?;
    write(&args.out, tokens.len(), &logits)
}

fn read_tokens(file: &Path) -> Result<Vec<u32>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    text.split(|character: char| character == ',' || character.is_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map_err(|_| format!("{}: {word:?} is no token id", file.display()).into()))
        .collect()
}

/// MLX reads past the embedding's end without a word, so ids are checked here.
fn check(tokens: &[u32], vocabulary: usize) -> Result<(), Failure> {
    match tokens.iter().find(|id| usize::try_from(**id).map_or(true, |id| id >= vocabulary)) {
        Some(id) => Err(format!("the model has no token {id}; its {vocabulary} tokens begin at 0").into()),
        None => Ok(()),
    }
}

fn write(file: &Path, tokens: usize, logits: &[f32]) -> Result<(), Failure> {
    let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![tokens, logits.len() / tokens], &bytes)?;
    serialize_to_file([("logits", view)], None, file)
        .map_err(|error| format!("cannot write {}: {error}", file.display()).into())
}
