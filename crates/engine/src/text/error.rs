//! What can be wrong on the way between text and tokens.

use std::path::{Path, PathBuf};

use crate::checkpoint::LoadError;

/// Why a tokenizer or a chat template cannot be loaded, or a text not be encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file or a field of the checkpoint cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The tokenizer's description contradicts itself, or is not one.
    #[error("{}: the tokenizer {problem}", file.display())]
    Tokenizer {
        /// The file.
        file: PathBuf,
        /// What is wrong, to be read after "the tokenizer".
        problem: String,
    },
    /// The tokenizer is of a kind that is not supported.
    #[error("{}: {what} is not supported; supported: {possible}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What it uses.
        what: String,
        /// What could stand there instead, and what to do.
        possible: String,
    },
    /// The chat template is not valid Jinja.
    #[error("{}: the chat template cannot be compiled: {problem}", file.display())]
    Template {
        /// The file.
        file: PathBuf,
        /// What is wrong, with the line.
        problem: String,
    },
    /// A text could not be turned into tokens.
    #[error("the text cannot be tokenized: {0}")]
    Encode(String),
}

impl TextError {
    pub(crate) fn tokenizer(file: &Path, problem: impl Into<String>) -> Self {
        Self::Tokenizer { file: file.to_owned(), problem: problem.into() }
    }
}

/// Why a chat could not be rendered. It is the caller's messages that do not fit the template, or the template that is
/// wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template refuses the chat with `raise_exception`; this is its message.
    #[error("the chat template refuses this chat: {0}")]
    Raised(String),
    /// Rendering failed.
    #[error("the chat template failed: {0}")]
    Failed(String),
}
