//! Every architecture over tiny random models: what it computes is tied to the definition of attention and to its own
//! other ways of computing it. That it equals mlx-lm to the bit is what `make parity` shows.

use annulus_engine::job::{Event, FinishReason, Job, Sampling, Sink};
use annulus_engine::load::{LoadOptions, Loaded, load};
use annulus_engine::worker::Generator;
use annulus_tests::architectures::{Model, VOCABULARY, WINDOW};
use serde_json::json;

fn open(model: &Model) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    model.write(folder.path()).unwrap();
    let options = LoadOptions { model: Some(folder.path().display().to_string()), ..LoadOptions::default() };
    load(&options).unwrap_or_else(|error| panic!("{error}"))
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 37 + 11) % 250).collect()
}

/// The logits of one position.
fn at(logits: &[f32], position: usize) -> &[f32] {
    &logits[position * VOCABULARY..(position + 1) * VOCABULARY]
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Collects the tokens and the end of a job.
#[derive(Default)]
struct Collect {
    ids: Vec<u32>,
    reason: Option<FinishReason>,
}

/// A sink over it.
struct Borrowed<'a>(&'a std::sync::Mutex<Collect>);

impl Sink for Borrowed<'_> {
    fn send(&mut self, event: Event) {
        let mut collect = self.0.lock().unwrap();
        match event {
            Event::Text { tokens, .. } => collect.ids.extend(tokens.iter().map(|token| token.id)),
            Event::Finished(summary) => collect.reason = Some(summary.reason),
            _ => {}
        }
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// Rings turn several times while an answer is written, and each token is the one that a forward of all before it prefers.
#[test]
fn greedy_answers_are_those_of_a_plain_forward() {
    for (name, model) in Model::all() {
        let mut model = open(&model);
        let prompt = tokens(5);
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        let collect = std::sync::Mutex::default();
        let job = Job { prompt: prompt.clone(), max_tokens: 5 * WINDOW, sampling, ..Job::default() };
        model.session.run(&job, &mut Borrowed(&collect)).unwrap();
        let Collect { ids, reason } = collect.into_inner().unwrap();
        assert!(reason == Some(FinishReason::Stop) || ids.len() == 5 * WINDOW, "{name}: {} tokens", ids.len());
        let all: Vec<u32> = prompt.iter().chain(&ids).copied().collect();
        let logits = model.session.all_logits(&all, &[all.len()]).unwrap();
        for (position, id) in ids.iter().enumerate() {
            let row = at(&logits, prompt.len() - 1 + position);
            let best = row.iter().copied().fold(f32::MIN, f32::max);
            assert!(best - row[*id as usize] < 1e-4, "{name}: token {position} is {id}, which is not the likeliest");
        }
    }
}

/// Chunks of any size, and single steps, give the logits of one forward.
#[test]
fn a_prompt_in_parts_is_one_forward() {
    for (name, model) in Model::all() {
        let mut model = open(&model);
        let tokens = tokens(45);
        let whole = model.session.all_logits(&tokens, &[45]).unwrap();
        for split in [&[][..], &[WINDOW, WINDOW, 1, 20], &[1, 43, 1], &[WINDOW - 1, 2, WINDOW + 1], &[30]] {
            let parts = model.session.all_logits(&tokens, split).unwrap();
            let difference = largest_difference(&whole, &parts);
            assert!(difference < 1e-3, "{name}, {split:?}: {difference}");
        }
    }
}

/// A position depends on nothing behind it, and on what it can reach before it.
#[test]
fn a_position_sees_what_is_before_it_and_nothing_behind() {
    for (name, model) in Model::all() {
        let mut model = open(&model);
        let all = tokens(40);
        let logits = model.session.all_logits(&all, &[40]).unwrap();
        for changed in [0, 20, 38] {
            let mut other = all.clone();
            other[changed] = (other[changed] + 1) % 250;
            let found = model.session.all_logits(&other, &[40]).unwrap();
            assert!(
                logits[..changed * VOCABULARY] == found[..changed * VOCABULARY],
                "{name}: {changed} is seen before"
            );
            // A layer of full attention carries the first token to the last position.
            assert!(at(&logits, 39) != at(&found, 39), "{name}: {changed} is not seen at the end");
        }
    }
}

/// Without full attention, a token reaches as far as its windows, laid end to end, and no farther.
#[test]
fn sliding_layers_reach_as_far_as_their_windows() {
    let mut model = Model::gemma3();
    model.config["layer_types"] = json!(["sliding_attention", "sliding_attention", "sliding_attention"]);
    let mut model = open(&model);
    let all = tokens(60);
    let logits = model.session.all_logits(&all, &[60]).unwrap();
    let mut other = all.clone();
    other[0] = 99;
    let reach = 3 * (WINDOW - 1);
    for split in [&[60][..], &[10]] {
        let found = model.session.all_logits(&other, split).unwrap();
        assert!(largest_difference(at(&logits, reach), at(&found, reach)) > 1e-6, "{split:?}");
        assert!(largest_difference(at(&logits, reach + 1), at(&found, reach + 1)) < 1e-4, "{split:?}");
    }
}

/// The same weights under the names that libraries give to a model with towers.
#[test]
fn a_text_model_is_found_inside_a_larger_one() {
    for (mut model, kind) in [(Model::gemma3(), "gemma3"), (Model::gemma4_shared(), "gemma4")] {
        let alone = open(&model).session.all_logits(&tokens(20), &[20]).unwrap();
        // As published, the vocabulary is a fact of the whole, or of the embedding alone.
        model.config.as_object_mut().unwrap().remove("vocab_size");
        for to in ["language_model.model", "model.language_model"] {
            let mut loaded = open(&model.clone().nested(kind, to));
            assert!(loaded.session.all_logits(&tokens(20), &[20]).unwrap() == alone, "{kind}, {to}");
        }
    }
}

/// Experts in one tensor a projection are the same as gate and up in one.
#[test]
fn experts_are_read_in_both_layouts() {
    let model = Model::gemma4_experts();
    let fused = open(&model).session.all_logits(&tokens(40), &[40]).unwrap();
    let mut apart = model.clone();
    apart.tensors.clear();
    for (name, shape, elements) in model.tensors {
        if let Some(path) = name.strip_suffix(".gate_up_proj") {
            let [experts, rows, columns] = shape[..] else { panic!("{name}: {shape:?}") };
            for (part, which) in ["gate_proj", "up_proj"].into_iter().enumerate() {
                let half = rows / 2 * columns;
                let own = elements.chunks(2 * half).flat_map(|expert| &expert[part * half..(part + 1) * half]);
                let name = format!("{path}.switch_glu.{which}.weight");
                apart.tensors.push((name, vec![experts, rows / 2, columns], own.copied().collect()));
            }
        } else if let Some(path) = name.strip_suffix(".experts.down_proj") {
            apart.tensors.push((format!("{path}.experts.switch_glu.down_proj.weight"), shape, elements));
        } else {
            apart.tensors.push((name, shape, elements));
        }
    }
    assert!(open(&apart).session.all_logits(&tokens(40), &[40]).unwrap() == fused);
}

/// Logits are bent into the range that the config states.
#[test]
fn the_softcap_bounds_logits() {
    let mut model = Model::gemma4();
    model.config["final_logit_softcapping"] = json!(0.5);
    let capped = open(&model).session.all_logits(&tokens(20), &[20]).unwrap();
    model.config.as_object_mut().unwrap().remove("final_logit_softcapping");
    let free = open(&model).session.all_logits(&tokens(20), &[20]).unwrap();
    assert!(free.iter().any(|logit| logit.abs() > 0.5));
    for (capped, free) in capped.iter().zip(&free) {
        assert!((capped - (free / 0.5).tanh() * 0.5).abs() < 1e-5);
    }
}
