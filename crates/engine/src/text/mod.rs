//! Text: between characters and tokens, and between chats and prompts.
//!
//! # Layout
//! - [`Tokenizer`]: text to tokens, and the exact bytes of each token;
//! - [`ChatTemplate`]: messages to a prompt, as Python's transformers renders it;
//! - [`TextStream`]: generated tokens to text that can be shown at once; it is made of [`Utf8Stream`] (whole characters
//!   only) and [`StopScanner`] (no beginning of a stop string), which know nothing of tokens;
//! - [`end_tokens`]: what ends a generation.

mod error;
mod gguf;
mod python;
mod special;
mod stop;
mod stream;
mod template;
#[cfg(test)]
mod testing;
mod tokenizer;
mod utf8;
mod vocabulary;

pub use error::{TemplateError, TextError};
pub use special::{SpecialTokens, end_tokens};
pub use stop::StopScanner;
pub use stream::{ByteStream, Piece, TextStream};
pub use template::{ChatInput, ChatTemplate};
pub use tokenizer::Tokenizer;
pub use utf8::Utf8Stream;
