//! Prints our token ids: reads one JSON string a line, writes one JSON list of ids a line.
//!
//! `cargo run -p annulus-tests --example tokens -- MODEL < strings.jsonl`

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use annulus_engine::checkpoint::{Checkpoint, locate};
use annulus_engine::text::Tokenizer;

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: tokens MODEL < strings.jsonl")?;
    let tokenizer = Tokenizer::open(&Checkpoint::open(&locate(&model)?)?)?;
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        let ids = tokenizer.encode(&text, false)?;
        writeln!(out, "{}", serde_json::to_string(&ids)?)?;
    }
    Ok(())
}
