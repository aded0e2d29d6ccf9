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
    /// The plan asks for something that the executor does not do yet.
    #[error("{0}")]
    Unsupported(String),
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
