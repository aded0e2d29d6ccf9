//! `annulus logits`: the logits of every position, for comparison with other engines.

use std::path::PathBuf;

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
    /// Run so many tokens in the first forwards and the rest one at a time through the cache, instead of all at once.
    #[arg(long, env = "ANNULUS_SPLIT", value_delimiter = ',')]
    split: Vec<usize>,
    /// The safetensors file to write: float32, key `logits`.
    #[arg(long, env = "ANNULUS_OUT", value_name = "FILE")]
    out: PathBuf,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let tokens = tokens(args)?;
    let _ = (tokens, &args.split, &args.out, &args.model);
    Err("no engine yet".into())
}

fn tokens(args: &Args) -> Result<Vec<u32>, Failure> {
    let Some(file) = &args.tokens_file else {
        return Ok(args.tokens.clone());
    };
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    text.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map_err(|_| format!("{}: {word:?} is no token id", file.display()).into()))
        .collect()
}
