//! Where models lie on this machine, and how a name becomes a path.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::LoadError;
use super::gguf::ShardName;

/// The folders that hold models, in the order they are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The Hugging Face hub cache, which holds `models--org--model` folders.
    pub hub: PathBuf,
    /// Annulus' own cache folder; models lie in its folder `models`.
    pub annulus: PathBuf,
}

/// A model found on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// The name under which [`locate`] finds it.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
}

impl Places {
    /// The folders that the environment of this process names.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_vars(|name| env::var_os(name))
    }

    /// The folders that a set of environment variables names; an empty variable counts as unset.
    ///
    /// The hub cache is `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else `~/.cache/huggingface/hub` with `XDG_CACHE_HOME` in
    /// place of `~/.cache` when it is set. Annulus' cache is `ANNULUS_HOME`, else `annulus` in the system's cache folder.
    #[must_use]
    pub fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = path("HOME").unwrap_or_else(|| PathBuf::from("."));
        // The XDG specification says that a relative path is to be ignored.
        let xdg = path("XDG_CACHE_HOME").filter(|path| path.is_absolute()).unwrap_or_else(|| home.join(".cache"));
        let system = if cfg!(target_os = "macos") { home.join("Library/Caches") } else { xdg.clone() };
        Self {
            hub: path("HF_HUB_CACHE")
                .or_else(|| path("HF_HOME").map(|home| home.join("hub")))
                .unwrap_or_else(|| xdg.join("huggingface/hub")),
            annulus: path("ANNULUS_HOME").unwrap_or_else(|| system.join("annulus")),
        }
    }

    /// See [`locate`].
    ///
    /// # Errors
    /// When nothing is there; the error says where it was looked for.
    pub fn locate(&self, spec: &str) -> Result<PathBuf, LoadError> {
        let mut tried = Vec::new();
        let path = Path::new(spec);
        if path.is_dir() || (path.is_file() && is_gguf(path)) {
            return Ok(path.to_owned());
        }
        tried.push(if path.exists() {
            "this file is no .gguf file".to_owned()
        } else {
            format!("there is no such path from {}", here())
        });
        if let Some((org, model)) = hub_name(spec) {
            let folder = self.hub.join(format!("models--{org}--{model}"));
            match snapshot(&folder) {
                Ok(path) => return Ok(path),
                Err(problem) => tried.push(problem),
            }
        }
        if is_plain_path(spec) {
            let path = self.models().join(spec);
            if holds_model(&path) || (path.is_file() && is_gguf(&path)) {
                return Ok(path);
            }
            tried.push(format!("there is no {}", path.display()));
        }
        Err(LoadError::NotFound { spec: spec.to_owned(), tried: tried.join("; ") })
    }

    /// See [`list`].
    #[must_use]
    pub fn list(&self) -> Vec<Found> {
        let mut found = Vec::new();
        for (name, path) in entries(&self.hub) {
            let name = name.strip_prefix("models--").and_then(|rest| rest.split_once("--"));
            if let Some((org, model)) = name
                && let Ok(path) = snapshot(&path)
                && holds_model(&path)
            {
                found.push(Found { name: format!("{org}/{model}"), path });
            }
        }
        self.list_own(&self.models(), "", &mut found);
        found.sort();
        found
    }

    /// Models in the folder `models`, directly or one level down: `model.gguf`, `model/`, `org/model.gguf`, `org/model/`.
    fn list_own(&self, folder: &Path, prefix: &str, found: &mut Vec<Found>) {
        for name in ggufs(folder) {
            let path = folder.join(&name);
            // The first of several files need not be there.
            if path.is_file() {
                found.push(Found { name: format!("{prefix}{name}"), path });
            }
        }
        for (name, path) in entries(folder) {
            let name = format!("{prefix}{name}");
            if path.is_dir() && holds_model(&path) {
                found.push(Found { name, path });
            } else if prefix.is_empty() && path.is_dir() {
                self.list_own(&path, &format!("{name}/"), found);
            }
        }
    }

    /// Where Annulus keeps models.
    #[must_use]
    pub fn models(&self) -> PathBuf {
        self.annulus.join("models")
    }
}

/// The path of a model: a folder, a `.gguf` file, a name `org/model` in the Hugging Face cache, or a name in the folder
/// `models` of Annulus' cache.
///
/// # Errors
/// When nothing is there; the error says where it was looked for.
pub fn locate(spec: &str) -> Result<PathBuf, LoadError> {
    Places::from_env().locate(spec)
}

/// The models on this machine that [`locate`] finds by name, sorted by name.
#[must_use]
pub fn list() -> Vec<Found> {
    Places::from_env().list()
}

/// Annulus' cache folder: `ANNULUS_HOME`, else `annulus` in `XDG_CACHE_HOME` or `~/.cache` (on macOS in
/// `~/Library/Caches`).
#[must_use]
pub fn cache_dir() -> PathBuf {
    Places::from_env().annulus
}

fn here() -> String {
    env::current_dir().map_or_else(|_| "here".to_owned(), |path| path.display().to_string())
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The GGUF models of a folder, by the names of their files; of a model in several, by the first.
pub(super) fn ggufs(folder: &Path) -> Vec<String> {
    let files = entries(folder).into_iter().filter(|(_, path)| path.is_file() && is_gguf(path));
    let models: BTreeSet<String> =
        files.map(|(name, _)| ShardName::parse(&name).map_or_else(|| name.clone(), |shard| shard.sibling(1))).collect();
    models.into_iter().collect()
}

/// Whether a folder looks like a checkpoint; whether it is one shows when it is opened.
fn holds_model(folder: &Path) -> bool {
    folder.join("config.json").is_file() || entries(folder).iter().any(|(_, path)| is_gguf(path))
}

/// A path of ordinary names only, so that joining it to a folder cannot lead out of that folder.
fn is_plain_path(spec: &str) -> bool {
    use std::path::Component;
    !spec.is_empty() && Path::new(spec).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Splits `org/model`, if it is made of the characters that the hub allows.
fn hub_name(spec: &str) -> Option<(&str, &str)> {
    let allowed = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    spec.split_once('/').filter(|(org, model)| allowed(org) && allowed(model))
}

/// The snapshot folder that `refs/main` of a repository in the hub cache names.
fn snapshot(repository: &Path) -> Result<PathBuf, String> {
    if !repository.is_dir() {
        return Err(format!("there is no {}", repository.display()));
    }
    let reference = repository.join("refs/main");
    let revision =
        fs::read_to_string(&reference).map_err(|error| format!("{} cannot be read ({error})", reference.display()))?;
    let revision = revision.trim();
    if revision.is_empty() || !revision.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(format!("{} names no revision", reference.display()));
    }
    let folder = repository.join("snapshots").join(revision);
    if folder.is_dir() {
        Ok(folder)
    } else {
        Err(format!(
            "{} names revision {revision}, but {} is not there: its download did not finish",
            reference.display(),
            folder.display()
        ))
    }
}

/// The entries of a folder, by name; none when it cannot be read. Names that are not UTF-8 are left out: nobody could
/// ask for them.
pub(super) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    entries.sort();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(vars: &[(&str, &str)]) -> Places {
        Places::from_vars(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn variables_take_precedence_in_order() {
        let home = places(&[("HOME", "/h")]);
        assert_eq!(home.hub, Path::new("/h/.cache/huggingface/hub"));
        if cfg!(target_os = "macos") {
            assert_eq!(home.annulus, Path::new("/h/Library/Caches/annulus"));
        } else {
            assert_eq!(home.annulus, Path::new("/h/.cache/annulus"));
        }

        let xdg = places(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]);
        assert_eq!(xdg.hub, Path::new("/x/huggingface/hub"));
        let relative = places(&[("HOME", "/h"), ("XDG_CACHE_HOME", "x")]);
        assert_eq!(relative.hub, home.hub);

        let hf = places(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/f")]);
        assert_eq!(hf.hub, Path::new("/f/hub"));
        let all = places(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c"), ("ANNULUS_HOME", "/a")]);
        assert_eq!(all.hub, Path::new("/c"));
        assert_eq!(all.annulus, Path::new("/a"));
        assert_eq!(places(&[("HOME", "/h"), ("HF_HUB_CACHE", "")]), home);
    }

    fn cache_with_models() -> (tempfile::TempDir, Places) {
        let root = tempfile::tempdir().unwrap();
        let places = Places { hub: root.path().join("hub"), annulus: root.path().join("own") };
        let repository = places.hub.join("models--org--small.model");
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(repository.join("refs/main"), "abc123\n");
        write(repository.join("snapshots/abc123/config.json"), "{}");
        write(repository.join("snapshots/old/config.json"), "{}");
        write(places.hub.join("models--org--half/refs/main"), "f00");
        write(places.hub.join("models--org--evil/refs/main"), "../../..");
        write(places.models().join("tiny.gguf"), "");
        write(places.models().join("org/deep/config.json"), "{}");
        write(places.models().join("notes.txt"), "");
        (root, places)
    }

    #[test]
    fn names_lead_to_paths() {
        let (_root, places) = cache_with_models();
        let hub = places.hub.join("models--org--small.model/snapshots/abc123");
        assert_eq!(places.locate("org/small.model").unwrap(), hub);
        let own = places.models().join("tiny.gguf");
        assert_eq!(places.locate("tiny.gguf").unwrap(), own);
        assert_eq!(places.locate(own.to_str().unwrap()).unwrap(), own);
        assert_eq!(places.locate("org/deep").unwrap(), places.models().join("org/deep"));
        let names: Vec<_> = places.list().into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["org/deep", "org/small.model", "tiny.gguf"]);
        for name in names {
            places.locate(&name).unwrap();
        }
    }

    #[test]
    fn errors_say_what_was_tried() {
        let (_root, places) = cache_with_models();
        let error = |spec: &str| places.locate(spec).unwrap_err().to_string();
        assert!(error("org/half").contains("its download did not finish"));
        assert!(error("org/evil").contains("names no revision"));
        assert!(error("org/none").contains("models--org--none"));
        assert!(error("org/none").contains("no such path"));
        assert!(error("notes.txt").contains("annulus list"));
        let notes = places.models().join("notes.txt");
        assert!(error(notes.to_str().unwrap()).contains("no .gguf file"));
        for spec in ["", "../own/models/tiny.gguf", "org/../tiny.gguf", "a/b/c", "org/"] {
            assert!(!error(spec).is_empty(), "{spec} leads out of the caches");
        }
    }
}
