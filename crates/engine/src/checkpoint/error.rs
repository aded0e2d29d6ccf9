//! What can be wrong with a checkpoint, each said so that its reader knows what to do.

use std::path::{Path, PathBuf};

/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Nothing was found under the name that was asked for.
    #[error(
        "no model {spec:?}: {tried}. Give a folder with config.json and safetensors, a .gguf file, or org/model as \
         `annulus list` shows it"
    )]
    NotFound {
        /// What was asked for.
        spec: String,
        /// Every place that was looked at, and what was there.
        tried: String,
    },
    /// The operating system did not give a file.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A folder lacks a file, or holds several where one is needed.
    #[error("{}: {problem}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A file is not what its name says: truncated, damaged, or of another kind.
    #[error("{}: {problem}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
    /// A field of a JSON file or of GGUF metadata is missing or has a value that cannot be.
    #[error("{}: field {field:?} {problem}", file.display())]
    Field {
        /// The file that holds the field, or should.
        file: PathBuf,
        /// The field, with the fields around it: `rope_scaling.factor`.
        field: String,
        /// What was expected and what was found, to be read after the field's name.
        problem: String,
    },
    /// The checkpoint has no tensor of this name.
    #[error("{}: there is no tensor {tensor:?}{hint}", file.display())]
    MissingTensor {
        /// The file, or the folder when tensors lie in several files.
        file: PathBuf,
        /// The tensor's name in the Hugging Face layout.
        tensor: String,
        /// Names that come near, or why it may be missing.
        hint: String,
    },
    /// A tensor's bytes, type or place are not what they must be.
    #[error("{}: tensor {tensor:?} {problem}", file.display())]
    Tensor {
        /// The file.
        file: PathBuf,
        /// The tensor's name in that file.
        tensor: String,
        /// What was expected and what was found, to be read after the tensor's name.
        problem: String,
    },
    /// A tensor's shape does not fit the config.
    #[error(
        "{}: tensor {tensor:?} has shape {found:?}, but the config asks for {expected:?}; config and weights are not of \
         the same model",
        file.display()
    )]
    Shape {
        /// The file.
        file: PathBuf,
        /// The tensor's name in the Hugging Face layout.
        tensor: String,
        /// The shape that follows from the config.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// The checkpoint is sound, but uses something that is not supported.
    #[error("{}: {what} is not supported; supported: {possible}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What it uses.
        what: String,
        /// What could stand there instead.
        possible: String,
    },
}

impl LoadError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(file: &Path, problem: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), problem: problem.into() }
    }

    pub(crate) fn field(file: &Path, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { file: file.to_owned(), field: field.into(), problem: problem.into() }
    }

    pub(crate) fn tensor(file: &Path, tensor: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { file: file.to_owned(), tensor: tensor.to_owned(), problem: problem.into() }
    }
}
