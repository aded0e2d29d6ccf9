//! `annulus bench`: prefill and decode at lengths and batch sizes.

use annulus_engine::generate::Session;
use annulus_engine::timing::{Load, Timing};
use serde_json::json;

use super::generate::rate;
use super::{Failure, model};

/// The flags of `annulus bench`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::Args,
    /// Tokens of a prompt; several lengths are measured one after the other.
    #[arg(long, env = "ANNULUS_PROMPT_TOKENS", value_delimiter = ',', default_value = "512", value_name = "LENGTHS")]
    prompt_tokens: Vec<usize>,
    /// Tokens to decode behind each prompt.
    #[arg(long, env = "ANNULUS_DECODE_TOKENS", default_value_t = 64, value_name = "TOKENS")]
    decode_tokens: usize,
    /// Rows that run together; several are measured one after the other.
    #[arg(long, env = "ANNULUS_BATCH", value_delimiter = ',', default_value = "1", value_name = "ROWS")]
    batch: Vec<usize>,
    /// Columns that the cache has room for from the start, to see that a step's time does not depend on it.
    #[arg(long, env = "ANNULUS_CAPACITY", value_delimiter = ',', default_value = "0", value_name = "COLUMNS")]
    capacity: Vec<usize>,
    /// Copy the first row out after its prompt and hold it, as a server that keeps prefixes would.
    #[arg(long, env = "ANNULUS_SNAPSHOT")]
    snapshot: bool,
    /// How often each is run; the fastest counts, since others may use the machine.
    #[arg(long, env = "ANNULUS_REPEAT", default_value_t = 3, value_name = "TIMES")]
    repeat: usize,
    /// Print one JSON object a line.
    #[arg(long, env = "ANNULUS_JSON")]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut loaded = args.model.load()?;
    if !args.json {
        println!("rows  prompt  capacity  prompt tokens/s  decode tokens/s  ms a step  nodes a step  cache MB");
    }
    for &prompt in &args.prompt_tokens {
        for &rows in &args.batch {
            for &reserve in &args.capacity {
                let load = Load { rows, prompt, decode: args.decode_tokens, reserve, snapshot: args.snapshot };
                show(load, fastest(&mut loaded.session, load, args.repeat)?, args.json);
            }
        }
    }
    Ok(())
}

fn fastest(session: &mut Session, load: Load, repeat: usize) -> Result<Timing, Failure> {
    // The first run of a shape may compile kernels; it is not measured.
    session.time(Load { decode: load.decode.min(2), ..load })?;
    let mut best = session.time(load)?;
    for _ in 1..repeat {
        let timing = session.time(load)?;
        best = Timing { prefill: best.prefill.min(timing.prefill), decode: best.decode.min(timing.decode), ..timing };
    }
    Ok(best)
}

fn show(load: Load, timing: Timing, as_json: bool) {
    let Load { rows, prompt, decode, reserve, .. } = load;
    let (prefill, decoded) = (rate(rows * prompt, timing.prefill), rate(rows * decode, timing.decode));
    let step = timing.decode.as_secs_f64() * 1e3 / decode.max(1) as f64;
    if as_json {
        let line = json!({
            "rows": rows, "prompt_tokens": prompt, "decode_tokens": decode, "capacity": reserve,
            "prompt_tps": prefill, "decode_tps": decoded, "step_ms": step, "step_nodes": timing.step_nodes,
            "cache_bytes": timing.cache_bytes,
        });
        println!("{line}");
    } else {
        let megabytes = timing.cache_bytes as f64 / 1e6;
        println!(
            "{rows:4}  {prompt:6}  {reserve:8}  {prefill:15.1}  {decoded:15.1}  {step:9.2}  {:12}  {megabytes:8.1}",
            timing.step_nodes
        );
    }
}
