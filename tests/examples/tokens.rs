//! Prints our token ids: reads one JSON string a line, writes one JSON list of ids a line.
//!
//! `cargo run --release -p annulus-tests --example tokens -- MODEL [--special] [--texts] < strings.jsonl`
//!
//! `MODEL` is a `.gguf` file, a folder or a name; neither needs weights. With `--special` the tokens that the model expects
//! around a text are added. With `--texts` each line is a list of two: the ids, and the text that they stand for.

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use annulus_engine::checkpoint::{GgufFile, locate};
use annulus_engine::text::Tokenizer;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let (flags, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let path = locate(names.first().ok_or("usage: tokens MODEL [--special] [--texts] < strings.jsonl")?)?;
    let has = |flag: &str| flags.iter().any(|other| other == flag);
    let tokenizer = match path.is_dir() {
        true => Tokenizer::from_folder(&path)?,
        false => Tokenizer::from_gguf(&GgufFile::open(&path)?)?,
    };
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        let ids = tokenizer.encode(&text, has("--special"))?;
        let line = if has("--texts") { json!([ids, tokenizer.decode(&ids)]) } else { json!(ids) };
        writeln!(out, "{line}")?;
    }
    Ok(())
}
