//! What the inspector's "Copy Rust test" gives, as it gives it.

#[test]
fn br_01_a_lost_key() {
    let line = r#"{"id": "BR-01: a lost key", "scenario": {"cache": {"kind":"rotating","max_size":3}, "ops": [
        {"op":"merge","rows":[[1000],[2000,2001,2002]]},
        {"op":"append","tokens":[[1001],[2003]]},
        {"op":"prepare","lengths":[1,2],"right_padding":[1,0]},
        {"op":"append","tokens":[[1002,0],[2004,2005]]},
        {"op":"finalize"}
    ]}}"#;
    let inspection = annulus_plan::inspect::inspect(line, annulus_plan::inspect::Options::default());
    assert_eq!(inspection.error.and_then(|error| error.step), None);
    for (step, frame) in inspection.frames.iter().enumerate() {
        for law in &frame.invariants {
            assert!(law.holds, "step {step}: {} {:?}", law.words, law.broken);
        }
    }
}

#[test]
fn refused() {
    let line = r#"{"id": "refused", "scenario": {"cache": {"kind":"full"}, "ops": [
        {"op":"empty","rows":1},
        {"op":"trim","n":1}
    ]}}"#;
    let inspection = annulus_plan::inspect::inspect(line, annulus_plan::inspect::Options::default());
    assert_eq!(inspection.error.and_then(|error| error.step), Some(1));
    for (step, frame) in inspection.frames.iter().enumerate() {
        for law in &frame.invariants {
            assert!(law.holds, "step {step}: {} {:?}", law.words, law.broken);
        }
    }
}
