//! The flags that say how tokens are chosen.

use annulus_engine::job::Sampling;

/// How tokens are chosen; what is not given is as the checkpoint recommends.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// Divide the logits by this; 0 takes the most likely token.
    #[arg(long, env = "ANNULUS_TEMPERATURE", value_parser = temperature)]
    temperature: Option<f32>,
    /// Keep the most likely tokens whose probabilities add up to this much.
    #[arg(long, env = "ANNULUS_TOP_P", value_parser = top_p)]
    top_p: Option<f32>,
    /// Keep so many of the most likely tokens; 0 keeps all.
    #[arg(long, env = "ANNULUS_TOP_K")]
    top_k: Option<u32>,
    /// Drop tokens less likely than this share of the most likely one.
    #[arg(long, env = "ANNULUS_MIN_P", value_parser = min_p)]
    min_p: Option<f32>,
    /// The same seed gives the same text.
    #[arg(long, env = "ANNULUS_SEED")]
    seed: Option<u64>,
}

impl Args {
    /// `default` with what was given.
    pub(super) fn over(&self, default: &Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_p: self.top_p.unwrap_or(default.top_p),
            top_k: self.top_k.unwrap_or(default.top_k),
            min_p: self.min_p.unwrap_or(default.min_p),
            seed: self.seed.or(default.seed),
        }
    }
}

fn temperature(text: &str) -> Result<f32, String> {
    number(text, |number| (0.0..=2.0).contains(&number), "between 0 and 2")
}

fn top_p(text: &str) -> Result<f32, String> {
    number(text, |number| number > 0.0 && number <= 1.0, "more than 0 and at most 1")
}

fn min_p(text: &str) -> Result<f32, String> {
    number(text, |number| (0.0..1.0).contains(&number), "from 0 on and less than 1")
}

fn number(text: &str, fits: impl Fn(f32) -> bool, range: &str) -> Result<f32, String> {
    text.parse().ok().filter(|number| fits(*number)).ok_or_else(|| format!("it must be a number {range}"))
}
