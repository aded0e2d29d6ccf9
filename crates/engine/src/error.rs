//! What can go wrong between a loaded model and its next token.

/// An error of a forward pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// MLX refused or failed.
    #[error("MLX: {0}")]
    Mlx(#[from] mlx_rs::error::Exception),
    /// The planner refused the operation.
    #[error(transparent)]
    Plan(#[from] annulus_plan::Error),
    /// What was asked cannot be done.
    #[error("{0}")]
    Unsupported(String),
    /// An earlier evaluation failed, and with it the cache lost its planes.
    #[error("this cache was lost when an earlier step failed: {0}")]
    Poisoned(String),
    /// The result cannot be read.
    #[error("MLX gave no result to read: {0}")]
    Read(String),
}

impl From<mlx_rs::error::AsSliceError> for Error {
    fn from(error: mlx_rs::error::AsSliceError) -> Self {
        Self::Read(error.to_string())
    }
}

/// The result of a step.
pub type Result<T> = std::result::Result<T, Error>;
