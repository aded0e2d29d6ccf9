//! Generation over tiny random models: what comes out, when it ends, and what a listener can rely on.

use std::sync::{Arc, Mutex};

use annulus_engine::job::{Event, FinishReason, Job, Sampling, Sink, Summary, Token};
use annulus_engine::load::{LoadOptions, Loaded, load};
use annulus_engine::worker::Generator;
use annulus_tests::tiny::{END_OF_TEXT, IM_END, TinyOptions, tiny_llama};

fn open(options: TinyOptions) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    tiny_llama(folder.path(), options).unwrap();
    load(&LoadOptions { model: Some(folder.path().display().to_string()), ..LoadOptions::default() })
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Keeps what it is sent; closes after so many events when told to.
#[derive(Clone, Default)]
struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
    closes_after: Option<usize>,
}

impl Sink for Recorder {
    fn send(&mut self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    fn is_closed(&self) -> bool {
        self.closes_after.is_some_and(|count| self.events.lock().unwrap().len() >= count)
    }
}

/// What a job led to.
struct Outcome {
    text: String,
    tokens: Vec<Token>,
    summary: Summary,
    events: Vec<Event>,
}

fn run(model: &mut Loaded, job: &Job) -> Outcome {
    let mut recorder = Recorder::default();
    model.session.run(job, &mut recorder).unwrap();
    let events = recorder.events.lock().unwrap().clone();
    let (mut text, mut tokens, mut summary) = (String::new(), Vec::new(), None);
    for event in &events {
        match event {
            Event::Text { text: piece, tokens: new } => {
                text.push_str(piece);
                tokens.extend_from_slice(new);
            }
            Event::Finished(found) => summary = Some(found.clone()),
            _ => {}
        }
    }
    let Some(summary) = summary else { panic!("no end: {events:?}") };
    Outcome { text, tokens, summary, events }
}

fn job(max_tokens: usize) -> Job {
    let sampling = Sampling { temperature: 1.0, seed: Some(5), ..Sampling::default() };
    Job { prompt: b"Hello".iter().map(|b| u32::from(*b)).collect(), max_tokens, sampling, ..Job::default() }
}

fn ids(outcome: &Outcome) -> Vec<u32> {
    outcome.tokens.iter().map(|token| token.id).collect()
}

#[test]
fn a_seed_repeats_and_two_seedless_jobs_differ() {
    let mut model = open(TinyOptions::default());
    let (first, second) = (run(&mut model, &job(40)), run(&mut model, &job(40)));
    assert_eq!((ids(&first), &first.text), (ids(&second), &second.text));
    let mut other = job(40);
    other.sampling.seed = None;
    assert_ne!(ids(&run(&mut model, &other)), ids(&run(&mut model, &other)));
}

#[test]
fn the_greedy_choice_is_the_largest_logit_of_a_plain_forward() {
    let mut model = open(TinyOptions::default());
    let mut job = job(12);
    job.sampling.temperature = 0.0;
    let found = ids(&run(&mut model, &job));
    let mut tokens = job.prompt.clone();
    for expected in &found {
        let logits = model.session.all_logits(&tokens, &[tokens.len()]).unwrap();
        let last = &logits[logits.len() - 320..];
        let best = (0..320u32).max_by(|a, b| last[*a as usize].total_cmp(&last[*b as usize])).unwrap();
        assert_eq!(best, *expected);
        tokens.push(best);
    }
}

#[test]
fn max_tokens_ends_with_length() {
    let mut model = open(TinyOptions::default());
    for count in [0, 1, 2, 30] {
        let outcome = run(&mut model, &job(count));
        // The tiny model may choose its end token earlier.
        if outcome.summary.reason == FinishReason::Length {
            assert_eq!((outcome.summary.completion_tokens, outcome.tokens.len()), (count, count));
        }
        assert!(outcome.summary.completion_tokens <= count);
        assert_eq!(outcome.summary.prompt_tokens, 5);
    }
    assert_eq!(run(&mut model, &job(0)).summary.reason, FinishReason::Length);
}

#[test]
fn the_context_ends_a_generation() {
    let mut model = open(TinyOptions { context: 32, ..TinyOptions::default() });
    for length in [1usize, 31, 32] {
        let job = Job { prompt: vec![65; length], ..job(1000) };
        let outcome = run(&mut model, &job);
        let room = 32 - length;
        match outcome.summary.reason {
            FinishReason::Length => assert_eq!(outcome.summary.completion_tokens, room),
            FinishReason::Stop => assert!(outcome.summary.completion_tokens < room),
        }
    }
    let error = model.session.run(&Job { prompt: vec![65; 33], ..job(1) }, &mut Recorder::default()).unwrap_err();
    assert!(error.to_string().contains("33 tokens") && error.to_string().contains("32"), "{error}");
}

#[test]
fn prompts_that_cannot_run_are_errors_and_the_next_job_runs() {
    let mut model = open(TinyOptions::default());
    for prompt in [vec![], vec![320], vec![u32::MAX]] {
        model.session.run(&Job { prompt, ..job(4) }, &mut Recorder::default()).unwrap_err();
    }
    run(&mut model, &job(4));
}

#[test]
fn a_stop_string_ends_the_text_and_is_not_part_of_it() {
    let mut model = open(TinyOptions::default());
    let free = run(&mut model, &job(60));
    let ascii: Vec<char> = free.text.chars().collect();
    let stop: String = ascii[ascii.len() / 2..ascii.len() / 2 + 2].iter().collect();
    let at = free.text.find(&stop).unwrap();
    let stopped = run(&mut model, &Job { stop: vec![stop.clone()], ..job(60) });
    assert_eq!(stopped.text, &free.text[..at]);
    assert_eq!(stopped.summary.reason, FinishReason::Stop);
}

#[test]
fn log_probabilities_are_those_of_the_logits() {
    let mut model = open(TinyOptions::default());
    let job = Job { logprobs: Some(3), prompt_logprobs: true, ..job(6) };
    let outcome = run(&mut model, &job);
    let mut tokens = job.prompt.clone();
    tokens.extend(ids(&outcome));
    let logits = model.session.all_logits(&tokens, &[tokens.len()]).unwrap();
    let logprob = |position: usize, id: u32| {
        let row = &logits[position * 320..(position + 1) * 320];
        let total: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        f64::from(row[id as usize]) - total.ln()
    };
    let Some(Event::Prompt(prompt)) = outcome.events.iter().find(|event| matches!(event, Event::Prompt(_))) else {
        panic!("no scores of the prompt")
    };
    assert_eq!(prompt.len(), job.prompt.len());
    assert_eq!(prompt[0], None);
    let generated = outcome.tokens.iter().map(|token| token.logprob.as_ref().unwrap());
    let scores = prompt.iter().skip(1).map(|score| score.as_ref().unwrap()).chain(generated);
    for (position, score) in scores.enumerate() {
        assert_eq!(score.id, tokens[position + 1]);
        assert!((f64::from(score.logprob) - logprob(position, score.id)).abs() < 1e-4, "{position}");
        let mut best: Vec<u32> = (0..320).collect();
        best.sort_by(|a, b| logprob(position, *b).total_cmp(&logprob(position, *a)));
        assert_eq!(score.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), best[..3]);
        for (id, found) in &score.top {
            assert!((f64::from(*found) - logprob(position, *id)).abs() < 1e-4);
        }
    }
}

/// A listener that goes away ends the job within one step, whatever phase it is in.
#[test]
fn a_closed_listener_ends_the_job_early() {
    let mut model = open(TinyOptions { context: 4096, ..TinyOptions::default() });
    for closes_after in [0, 1, 3] {
        let mut recorder = Recorder { closes_after: Some(closes_after), ..Recorder::default() };
        model.session.run(&job(2000), &mut recorder).unwrap();
        let events = recorder.events.lock().unwrap();
        assert!(events.len() <= closes_after + 1, "{} events after closing at {closes_after}", events.len());
        assert!(!events.iter().any(|event| matches!(event, Event::Finished(_))));
    }
}

#[test]
fn prefill_reports_every_chunk() {
    let mut model = open(TinyOptions { context: 8192, ..TinyOptions::default() });
    let job = Job { prompt: vec![70; 5000], ..job(1) };
    let outcome = run(&mut model, &job);
    let done: Vec<usize> = outcome
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Prefill { done, total: 5000 } => Some(*done),
            _ => None,
        })
        .collect();
    assert!(done.len() > 1 && done.is_sorted() && done.last() == Some(&5000), "{done:?}");
}

/// With log-probabilities, the end token has an entry of its own, last and without text; without them it is not seen.
#[test]
fn an_end_token_is_reported_to_those_who_score() {
    let mut model = open(TinyOptions::default());
    let mut ended = 0;
    for seed in 0..20 {
        let sampling = Sampling { temperature: 3.0, seed: Some(seed), ..Sampling::default() };
        let plain = Job { sampling, ..job(200) };
        let scored = Job { logprobs: Some(1), ..plain.clone() };
        let (without, with) = (run(&mut model, &plain), run(&mut model, &scored));
        assert_eq!((&without.text, without.summary.completion_tokens), (&with.text, with.summary.completion_tokens));
        assert_eq!(without.tokens.len(), without.summary.completion_tokens);
        if with.summary.reason == FinishReason::Stop {
            ended += 1;
            let last = with.tokens.last().unwrap();
            assert!([IM_END, END_OF_TEXT].contains(&last.id) && last.logprob.is_some(), "{last:?}");
            assert_eq!(with.tokens.len(), with.summary.completion_tokens + 1);
        } else {
            assert_eq!(with.tokens.len(), 200);
        }
    }
    assert!(ended > 0, "no seed led to an end token: the test has tested nothing");
}
