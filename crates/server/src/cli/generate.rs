//! `annulus generate`: answers one prompt.

use std::io::{self, Read, Write};
use std::time::Duration;

use annulus_engine::job::{Event, FinishReason, Summary, Token};
use serde::Serialize;
use serde_json::json;

use super::session::Session;
use super::{Failure, memory, model, sampling};

/// The flags of `annulus generate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::Args,
    /// What to answer; `-` reads it from standard input.
    #[arg(long, short, env = "ANNULUS_PROMPT")]
    prompt: String,
    /// The most tokens to generate.
    #[arg(long, env = "ANNULUS_MAX_TOKENS", default_value_t = 256)]
    max_tokens: usize,
    #[command(flatten)]
    sampling: sampling::Args,
    /// Continue the prompt as it is, without the chat template.
    #[arg(long, env = "ANNULUS_RAW")]
    raw: bool,
    /// Print one JSON object at the end instead of text as it comes.
    #[arg(long, env = "ANNULUS_JSON")]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    prompt_tokens: usize,
    tokens: Vec<u32>,
    text: String,
    finish_reason: &'static str,
    /// Prompt tokens a second.
    prompt_tps: f64,
    /// Generated tokens a second.
    generation_tps: f64,
    peak_memory_bytes: u64,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let text = prompt(&args.prompt)?;
    let session = Session::open(&args.model)?;
    let prompt = if args.raw {
        session.front.tokenizer.encode(&text, true)?
    } else {
        session.conversation(vec![json!({"role": "user", "content": text})])?
    };
    let sampling = args.sampling.over(&session.front.sampling);
    let mut events = session.start(prompt, args.max_tokens, sampling)?;
    let mut out = io::stdout().lock();
    let (mut all, mut tokens) = (String::new(), Vec::new());
    while let Some(event) = events.blocking_next() {
        match event {
            Event::Text { text, tokens: more } => {
                if !args.json {
                    out.write_all(text.as_bytes())?;
                    out.flush()?;
                }
                all.push_str(&text);
                tokens.extend(more);
            }
            Event::Finished(summary) => {
                if args.json {
                    serde_json::to_writer(&mut out, &report(all, &tokens, &summary))?;
                }
                writeln!(out)?;
                return Ok(());
            }
            Event::Failed(error) => return Err(error.into()),
            Event::Started | Event::Prefill { .. } | Event::Prompt(_) => {}
        }
    }
    Err("the model's thread dropped the prompt without an answer".into())
}

fn prompt(given: &str) -> io::Result<String> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn report(text: String, tokens: &[Token], summary: &Summary) -> Report {
    Report {
        prompt_tokens: summary.prompt_tokens,
        tokens: tokens.iter().map(|token| token.id).collect(),
        text,
        finish_reason: match summary.reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
        },
        prompt_tps: rate(summary.prompt_tokens - summary.cached_tokens, summary.prefill),
        generation_tps: rate(summary.completion_tokens, summary.decode),
        peak_memory_bytes: memory::peak_bytes(),
    }
}

/// Tokens a second; 0 when there was no time to speak of, because JSON has no infinity.
pub(super) fn rate(tokens: usize, took: Duration) -> f64 {
    let seconds = took.as_secs_f64();
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}
