//! The default model, which the tests need and do not fetch.

use std::env;
use std::path::PathBuf;

/// The file's name in the folder `models` of the cache.
const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The path of the default model's GGUF file: `ANNULUS_TEST_GGUF`, else its place in the cache.
///
/// # Panics
/// When it is not there: a test that cannot run has failed.
#[must_use]
pub fn default_gguf() -> PathBuf {
    let path = env::var_os("ANNULUS_TEST_GGUF")
        .map_or_else(|| annulus_engine::checkpoint::Places::from_env().models().join(NAME), PathBuf::from);
    assert!(
        path.is_file(),
        "this test needs the default model at {}: `make test` puts it there; otherwise set ANNULUS_TEST_GGUF to where it lies",
        path.display()
    );
    path
}
