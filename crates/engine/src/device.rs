//! The device that MLX computes on, and the check that the MLX that was loaded is the one that this build speaks.

use std::fmt;

use mlx_rs::{Device, DeviceType, Dtype};

use crate::mlx;

/// The release of MLX whose interface this build was made for.
pub const MLX_VERSION: &str = "0.32.2";

/// What MLX computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The processor.
    Cpu,
    /// An Apple GPU.
    Metal,
    /// An NVIDIA GPU.
    Cuda,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Metal => "metal",
            Self::Cuda => "cuda",
        })
    }
}

/// Which device to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The GPU where there is one.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The GPU, or an error.
    Gpu,
}

/// The type that activations have and that unquantized weights are converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ComputeDtype {
    /// Float32 on the CPU, where half types are slow; elsewhere the type of the checkpoint.
    #[default]
    Auto,
    /// Float32.
    F32,
    /// Bfloat16.
    Bf16,
    /// Float16.
    F16,
}

impl ComputeDtype {
    /// The MLX type on this backend for a checkpoint whose weights are stored as `stored`.
    #[must_use]
    pub fn resolve(self, backend: Backend, stored: Dtype) -> Dtype {
        match self {
            Self::Auto if backend == Backend::Cpu => Dtype::Float32,
            Self::Auto => stored,
            Self::F32 => Dtype::Float32,
            Self::Bf16 => Dtype::Bfloat16,
            Self::F16 => Dtype::Float16,
        }
    }
}

/// Checks the version of libmlx and makes the chosen device the default of this process.
///
/// # Errors
/// When another version is loaded, or no GPU can be used and one was asked for.
pub fn start(choice: DeviceChoice) -> Result<Backend, String> {
    // The first call through mlx-rs installs its error handler; without it MLX ends the process at an error.
    mlx_rs::memory::active_memory().map_err(|error| error.to_string())?;
    check_version(&mlx::version())?;
    let gpu = match choice {
        DeviceChoice::Cpu => None,
        DeviceChoice::Auto | DeviceChoice::Gpu => mlx::available_gpu(),
    };
    let (device, backend) = match gpu {
        Some("metal") => (DeviceType::Gpu, Backend::Metal),
        Some(_) => (DeviceType::Gpu, Backend::Cuda),
        None if choice == DeviceChoice::Gpu => {
            return Err("a GPU was asked for, but the MLX that is loaded finds none. Use `--device cpu`, or install \
                        MLX's wheel for your GPU with `make setup BACKEND=cuda13`."
                .to_owned());
        }
        None => (DeviceType::Cpu, Backend::Cpu),
    };
    Device::set_default(&Device::new(device, 0));
    Ok(backend)
}

fn check_version(found: &str) -> Result<(), String> {
    if found == MLX_VERSION {
        return Ok(());
    }
    Err(format!(
        "libmlx is version {found:?}, but this build of Annulus needs {MLX_VERSION}. Run `make setup`, or take another \
         libmlx out of the loader's path (LD_LIBRARY_PATH)."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_refused_with_both_versions_named() {
        assert_eq!(check_version("0.32.2"), Ok(()));
        for found in ["0.32.1", "0.33.0", ""] {
            let error = check_version(found).unwrap_err();
            assert!(error.contains(&format!("{found:?}")) && error.contains("0.32.2"), "{error}");
        }
    }

    #[test]
    fn half_types_are_avoided_on_the_cpu_only() {
        let auto = ComputeDtype::Auto;
        assert_eq!(auto.resolve(Backend::Cpu, Dtype::Bfloat16), Dtype::Float32);
        assert_eq!(auto.resolve(Backend::Cuda, Dtype::Bfloat16), Dtype::Bfloat16);
        assert_eq!(ComputeDtype::F16.resolve(Backend::Cpu, Dtype::Float32), Dtype::Float16);
    }
}
