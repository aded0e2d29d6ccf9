//! Models in GGUF's encodings, run beside the same numbers in float32.

use std::fs;
use std::path::Path;

use annulus_engine::checkpoint::{Checkpoint, TensorData};
use annulus_engine::load::{ActivationForm, LoadOptions, WeightForm, load};
use annulus_tests::gguf::{Gguf, Kind, llama_of};
use annulus_tests::tiny::{self, Tensor};
use serde_json::Value;
use tempfile::TempDir;

const TOKENS: [u32; 12] = [72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100];

fn logits(model: &Path, weights: WeightForm) -> Vec<f32> {
    // Activations as they are: what is compared is the weights.
    let activations = ActivationForm::F32;
    let options =
        LoadOptions { model: Some(model.display().to_string()), weights, activations, ..LoadOptions::default() };
    let mut loaded = load(&options).unwrap_or_else(|error| panic!("{error}"));
    loaded.session.all_logits(&TOKENS, &[TOKENS.len()]).unwrap()
}

fn written(file: &Gguf) -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, file.to_bytes()).unwrap();
    (dir, path)
}

/// The model as a folder of float32 numbers. (`blocks.rs` shows that they are those that the file stands for.)
fn spelled_out(gguf: &Path) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(gguf).unwrap();
    let tensor = |name: &str| {
        let (shape, _) = checkpoint.describe(name).unwrap();
        (name.to_owned(), shape, checkpoint.to_f32(name).unwrap())
    };
    let tensors: Vec<Tensor> = checkpoint.names().map(tensor).collect();
    tiny::write(dir.path(), &Value::Object(checkpoint.config().fields().clone()), &tensors).unwrap();
    dir
}

/// The root mean square of the differences, relative to that of the numbers.
fn difference(ours: &[f32], theirs: &[f32]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let power = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|number| f64::from(number).powi(2)).sum::<f64>();
    let difference = power(&mut ours.iter().zip(theirs).map(|(ours, theirs)| ours - theirs));
    (difference / power(&mut theirs.iter().copied())).sqrt()
}

/// Every encoding by itself, packed as MLX packs it and spelled out.
#[test]
fn every_encoding_gives_the_logits_of_its_numbers() {
    use Kind::{F32, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    for kind in [F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K] {
        let (_dir, path) = written(&llama_of(|_| kind));
        let folder = spelled_out(&path);
        let expected = logits(folder.path(), WeightForm::Dense);
        assert!(expected.iter().all(|logit| logit.is_finite()) && expected[0] != expected[1]);
        let dense = logits(&path, WeightForm::Dense);
        assert!(dense == expected, "{kind:?}, dense: {}", difference(&dense, &expected));
        let packed = logits(&path, WeightForm::Packed);
        // Q6_K is requantized with an error below half a percent a matrix.
        let allowed = if kind == Q6_K { 0.02 } else { 1e-5 };
        let found = difference(&packed, &expected);
        assert!(found < allowed, "{kind:?}, packed: {found}");
        assert!(kind != Q6_K || found > 1e-5, "Q6_K cannot be exact in groups of 32");
    }
}

/// As files named Q4_K_M are made: half of the matrices that matter most in Q6_K, all others in Q4_K.
#[test]
fn a_mixed_file_runs() {
    let kind = |name: &str| match name {
        "token_embd.weight" | "blk.0.attn_v.weight" | "blk.0.ffn_down.weight" => Kind::Q6_K,
        "blk.1.attn_k.weight" => Kind::Q5_K,
        "blk.1.attn_output.weight" => Kind::Q5_0,
        _ => Kind::Q4_K,
    };
    let (_dir, path) = written(&llama_of(kind));
    let checkpoint = Checkpoint::open(&path).unwrap();
    let bits = |name: &str| match checkpoint.tensor(name, None).unwrap() {
        TensorData::Affine(affine) => (affine.bits, affine.group_size),
        TensorData::Plain(_) => panic!("{name} is plain"),
    };
    assert_eq!(bits("model.embed_tokens.weight"), (6, 16));
    assert_eq!(bits("model.layers.1.self_attn.k_proj.weight"), (5, 32));
    assert_eq!(bits("model.layers.1.mlp.down_proj.weight"), (4, 32));
    let folder = spelled_out(&path);
    let expected = logits(folder.path(), WeightForm::Dense);
    assert!(logits(&path, WeightForm::Dense) == expected);
    let found = difference(&logits(&path, WeightForm::Packed), &expected);
    assert!(found < 0.02, "{found}");
}
