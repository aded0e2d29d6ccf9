//! `annulus doctor`: what this machine offers and what is missing.

use std::io::{self, Write};
use std::process::ExitCode;

use annulus_engine::device::{self, DeviceChoice, MLX_VERSION};
use annulus_engine::load::DEFAULT_MODEL;
use annulus_engine::{checkpoint, mlx, ops};

use super::Failure;

/// The flags of `annulus doctor`; there are none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    found: String,
    /// What to do about it, when something is to be done.
    advice: Option<String>,
}

/// Prints what was found and what to do; the exit status says whether something is missing.
pub(super) fn run(_: &Args) -> Result<ExitCode, Failure> {
    let findings = [program(), mlx_library(), backend(), processor(), kernels(), default_model(), models()];
    let mut out = io::stdout().lock();
    for Finding { what, found, advice } in &findings {
        let mark = if advice.is_some() { "!" } else { " " };
        writeln!(out, "{mark} {what:14} {found}")?;
        if let Some(advice) = advice {
            writeln!(out, "  {:14} -> {advice}", "")?;
        }
    }
    let well = findings.iter().all(|finding| finding.advice.is_none());
    writeln!(out, "\n{}", if well { "Everything is there." } else { "Something is missing; see above." })?;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn program() -> Finding {
    let (version, system, machine) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    Finding { what: "annulus", found: format!("{version} on {system}, {machine}"), advice: None }
}

fn mlx_library() -> Finding {
    let found = mlx::version();
    let advice = (found != MLX_VERSION).then(|| {
        format!("this build needs {MLX_VERSION}: run `make setup`, or take another libmlx out of the loader's path")
    });
    Finding { what: "MLX", found, advice }
}

fn backend() -> Finding {
    match device::start(DeviceChoice::Auto) {
        Ok(backend) => Finding { what: "backend", found: backend.to_string(), advice: None },
        Err(problem) => Finding { what: "backend", found: "none".to_owned(), advice: Some(problem) },
    }
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Finding { what: "processor", found: format!("{cores} cores, {}", features().join(" ")), advice: None }
}

/// Which instructions the kernels for the CPU use.
fn kernels() -> Finding {
    let (path, threads) = (ops::path(), ops::threads());
    let advice = (!ops::is_vectorised()).then(|| {
        "this processor has none of the vector instructions that the kernels know, so they take a slow path that any \
         processor has; a GPU would help"
            .to_owned()
    });
    Finding { what: "kernels", found: format!("{path}, {threads} threads"), advice }
}

/// The features that matter to matrix products.
fn features() -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let known = [
            ("avx2", is_x86_feature_detected!("avx2")),
            ("fma", is_x86_feature_detected!("fma")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
            ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        ];
        found.extend(known.iter().filter(|(_, here)| *here).map(|(name, _)| *name));
    }
    #[cfg(target_arch = "aarch64")]
    {
        let known = [
            ("neon", std::arch::is_aarch64_feature_detected!("neon")),
            ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
            ("bf16", std::arch::is_aarch64_feature_detected!("bf16")),
            ("i8mm", std::arch::is_aarch64_feature_detected!("i8mm")),
        ];
        found.extend(known.iter().filter(|(_, here)| *here).map(|(name, _)| *name));
    }
    found
}

fn default_model() -> Finding {
    match checkpoint::locate(DEFAULT_MODEL) {
        Ok(path) => Finding { what: "default model", found: path.display().to_string(), advice: None },
        Err(_) => Finding {
            what: "default model",
            found: "not here".to_owned(),
            advice: Some("`make setup` fetches it; with a model of your own you do not need it".to_owned()),
        },
    }
}

fn models() -> Finding {
    let count = checkpoint::list().len();
    Finding { what: "models", found: format!("{count}; `annulus list` names them"), advice: None }
}
