//! Models in several GGUF files.

use std::fs;
use std::path::Path;

use annulus_engine::checkpoint::{Checkpoint, Places};
use annulus_engine::load::{LoadOptions, load};
use annulus_tests::gguf::{Gguf, Kind, Value, llama_of, split};
use tempfile::TempDir;

fn model() -> Gguf {
    llama_of(|name| if name.contains("attn_v") { Kind::Q6_K } else { Kind::Q4_K })
}

fn name(number: usize) -> String {
    format!("tiny-{number:05}-of-00003.gguf")
}

fn write(folder: &Path, shards: &[Gguf]) {
    for (number, shard) in (1..).zip(shards) {
        fs::write(folder.join(name(number)), shard.to_bytes()).unwrap();
    }
}

/// The model in three files, each of them changed.
fn changed(change: impl Fn(usize, &mut Gguf)) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut shards = split(&model(), 3);
    shards.iter_mut().zip(1..).for_each(|(shard, number)| change(number, shard));
    write(dir.path(), &shards);
    dir
}

#[track_caller]
fn refuse(path: &Path, parts: &[&str]) {
    let error = Checkpoint::open(path).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn the_parts_are_the_whole() {
    let dir = changed(|_, _| {});
    let whole_path = dir.path().join("sub/whole.gguf");
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(&whole_path, model().to_bytes()).unwrap();
    let whole = Checkpoint::open(&whole_path).unwrap();
    // Any of the files, and the folder, stand for the model.
    for path in [dir.path().join(name(1)), dir.path().join(name(3)), dir.path().to_owned()] {
        let parts = Checkpoint::open(&path).unwrap();
        assert_eq!(parts.config().fields(), whole.config().fields());
        assert!(parts.names().eq(whole.names()));
        for name in parts.names() {
            assert!(parts.to_f32(name).unwrap() == whole.to_f32(name).unwrap(), "{name}");
        }
    }
    let parts = Checkpoint::open(dir.path()).unwrap();
    let files: Vec<_> = parts.gguf().unwrap().files().iter().map(|file| file.path().to_owned()).collect();
    assert_eq!(files, [1, 2, 3].map(|number| dir.path().join(name(number))));
    let sizes: u64 = files.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert_eq!(parts.total_bytes() as u64, sizes);
}

#[test]
fn a_model_in_parts_is_one_model() {
    let root = tempfile::tempdir().unwrap();
    let places = Places { hub: root.path().join("hub"), annulus: root.path().join("own") };
    fs::create_dir_all(places.models()).unwrap();
    write(&places.models(), &split(&model(), 3));
    let names: Vec<String> = places.list().into_iter().map(|found| found.name).collect();
    assert_eq!(names, [name(1)]);
    let path = places.locate(&names[0]).unwrap();
    let options = LoadOptions { model: Some(path.display().to_string()), ..LoadOptions::default() };
    let loaded = load(&options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.front.id, "tiny");
    // One that is not all there is not offered.
    fs::remove_file(path).unwrap();
    assert_eq!(places.list(), []);
}

#[test]
fn a_missing_part_is_named() {
    for missing in 1..=3 {
        let dir = changed(|_, _| {});
        fs::remove_file(dir.path().join(name(missing))).unwrap();
        let others: Vec<usize> = (1..=3).filter(|number| *number != missing).collect();
        for path in [dir.path().join(name(others[0])), dir.path().join(name(others[1])), dir.path().to_owned()] {
            refuse(&path, &["of the 3 files of tiny", &format!("missing: {};", name(missing)), "in one folder"]);
        }
    }
    let dir = changed(|_, _| {});
    for gone in [1, 3] {
        fs::remove_file(dir.path().join(name(gone))).unwrap();
    }
    refuse(dir.path(), &[&format!("missing: {}, {};", name(1), name(3))]);
}

#[test]
fn parts_of_different_models_are_refused() {
    let number = |value: u16| Value::Raw(2, value.to_le_bytes().into());
    let other_count = changed(|part, shard| {
        if part == 2 {
            shard.set("split.count", number(4));
        }
    });
    refuse(other_count.path(), &[&name(2), "not the file that its name says"]);
    let other_number = changed(|part, shard| {
        if part == 3 {
            shard.set("split.no", number(1));
        }
    });
    refuse(other_number.path(), &[&name(3), "not the file that its name says"]);
    let whole = changed(|part, shard| {
        if part == 2 {
            shard.metadata.clear();
        }
    });
    refuse(whole.path(), &[&name(2), "not the file that its name says"]);
    let fewer = changed(|part, shard| {
        if part == 2 {
            shard.tensors.pop();
        }
    });
    refuse(fewer.path(), &[&name(1), "split.tensors.count", "is 20, but the files hold 19"]);
    let first = model().tensors[0].clone();
    let twice = changed(|part, shard| {
        if part == 3 {
            shard.tensors[0] = first.clone();
        }
    });
    refuse(twice.path(), &[&name(3), "\"token_embd.weight\"", &name(1)]);
}

#[test]
fn a_renamed_part_is_refused() {
    let dir = changed(|_, _| {});
    let renamed = dir.path().join("renamed.gguf");
    fs::rename(dir.path().join(name(2)), &renamed).unwrap();
    refuse(&renamed, &["file 2 of 3", "-00002-of-00003.gguf"]);
    let huge = changed(|part, shard| {
        if part == 1 {
            shard.set("split.count", Value::U64(u64::MAX)).set("split.no", Value::U64(u64::MAX));
        }
    });
    refuse(&huge.path().join(name(1)), &["-18446744073709551615"]);
}
