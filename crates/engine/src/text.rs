//! STUB until branch `text` is merged.
use serde_json::{Map, Value};
#[derive(Debug)]
pub struct Tokenizer {
    pub pieces: Vec<Vec<u8>>,
}
impl Tokenizer {
    pub fn encode(&self, text: &str, _special: bool) -> Result<Vec<u32>, String> {
        Ok(text.bytes().map(u32::from).collect())
    }
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        &self.pieces[id as usize]
    }
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }
}
#[derive(Debug)]
pub struct ChatTemplate;
#[derive(Debug)]
pub struct ChatInput {
    pub messages: Vec<Value>,
    pub tools: Option<Vec<Value>>,
    pub add_generation_prompt: bool,
    pub kwargs: Map<String, Value>,
}
impl ChatTemplate {
    pub fn render(&self, input: &ChatInput) -> Result<String, String> {
        Ok(input
            .messages
            .iter()
            .map(|m| format!("{}:{}\n", m["role"].as_str().unwrap(), m["content"].as_str().unwrap()))
            .collect())
    }
}
