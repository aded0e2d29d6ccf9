//! `annulus perplexity`: how well a model foretells a text.

use std::io;
use std::path::{Path, PathBuf};

use annulus_engine::cache::KvOptions;
use annulus_engine::evaluate::{Evaluation, Text};
use serde_json::json;

use super::{Failure, model};

/// The flags of `annulus perplexity`.
#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::Args,
    /// The text, UTF-8; `-` reads it from standard input.
    #[arg(env = "ANNULUS_FILE", value_name = "FILE")]
    file: PathBuf,
    /// Tokens that run through one cache before the next begins empty; each is scored but the first. By default 2,048, or
    /// as many as the model was made for when that is less.
    #[arg(long, env = "ANNULUS_WINDOW", value_name = "TOKENS")]
    window: Option<usize>,
    /// Score at most so many tokens.
    #[arg(long, env = "ANNULUS_LIMIT", value_name = "TOKENS")]
    limit: Option<usize>,
    /// Run beside it the same model with a plain, unbounded cache, and say how far the distributions are from that.
    #[arg(long, env = "ANNULUS_COMPARE")]
    compare: bool,
    /// Print one JSON object.
    #[arg(long, env = "ANNULUS_JSON")]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let text = read(&args.file)?;
    let mut loaded = args.model.load()?;
    let tokenizer = &loaded.front.tokenizer;
    let prefix = tokenizer.encode("", true)?;
    let mut tokens = tokenizer.encode(&text, false)?;
    tokens.truncate(args.limit.unwrap_or(usize::MAX));
    let context = loaded.front.context_length;
    let window = args.window.unwrap_or(context.min(2048));
    if window > context {
        return Err(
            format!("windows of {window} tokens were asked for, and the model's context holds {context}").into()
        );
    }
    let plain = loaded.session.arrange(KvOptions::default())?;
    let total = tokens.len();
    let mut progress = |done: usize| tracing::info!("{done} of {total} tokens");
    let text = Text { prefix: &prefix, tokens: &tokens, window };
    let found = loaded.session.evaluate(text, args.compare.then_some(&plain), &mut progress)?;
    show(&found, args.json);
    Ok(())
}

fn read(file: &Path) -> Result<String, Failure> {
    if file.as_os_str() == "-" {
        return Ok(io::read_to_string(io::stdin())?);
    }
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()).into())
}

fn show(found: &Evaluation, as_json: bool) {
    let perplexity = found.loss.exp();
    if as_json {
        let compared = found.comparison.map(|compared| {
            json!({
                "kl_divergence": compared.divergence,
                "largest_kl_divergence": compared.most,
                "same_first_choice": compared.same_choice,
            })
        });
        println!("{}", json!({"tokens": found.scored, "perplexity": perplexity, "against_plain_cache": compared}));
        return;
    }
    println!("perplexity {perplexity:.4} over {} tokens", found.scored);
    if let Some(compared) = found.comparison {
        println!(
            "against a plain cache: KL divergence {:.6} (largest {:.4}), same first choice {:.2} %",
            compared.divergence,
            compared.most,
            compared.same_choice * 100.0
        );
    }
}
