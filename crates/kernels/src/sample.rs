//! Choosing a token of a distribution without sorting the vocabulary.

/// How a distribution is cut before one of it is chosen, in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// What logits are divided by; above 0.
    pub temperature: f32,
    /// The likeliest that are kept; 0 keeps all.
    pub top_k: usize,
    /// The fewest likeliest whose probabilities reach this are kept; 1 keeps all.
    pub top_p: f32,
    /// Those are kept that are at least this many times as likely as the likeliest.
    pub min_p: f32,
}

/// A token and its weight, that of the likeliest being 1.
type Candidate = (f32, u32);

/// The index that `random`, from 0 up to 1, falls on when the intervals of the kept probabilities lie side by side.
/// Each cut takes time in proportion to the vocabulary. Logits that are not numbers are never chosen; without any number the
/// first is.
#[must_use]
pub fn sample(logits: &[f32], choice: Choice, random: f64) -> u32 {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut all: Vec<Candidate> =
        (0u32..)
            .zip(logits)
            .map(|(index, logit)| {
                if *logit == greatest { (1.0, index) } else { (((logit - greatest) / choice.temperature).exp(), index) }
            })
            .filter(|(weight, _)| *weight > 0.0)
            .collect();
    let kept = keep_count(&mut all, choice.top_k);
    let kept = if choice.top_p < 1.0 { keep_mass(kept, f64::from(choice.top_p)) } else { kept };
    let chosen = kept.iter().filter(|(weight, _)| *weight >= choice.min_p);
    let mut left = random * chosen.clone().map(|(weight, _)| f64::from(*weight)).sum::<f64>();
    let mut last = 0;
    for (weight, index) in chosen {
        last = *index;
        left -= f64::from(*weight);
        if left < 0.0 {
            break;
        }
    }
    last
}

/// The likelier first; of the equally likely the one that comes first.
fn order(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The `count` likeliest, in no order.
fn keep_count(all: &mut [Candidate], count: usize) -> &mut [Candidate] {
    if count == 0 || count >= all.len() {
        return all;
    }
    all.select_nth_unstable_by(count - 1, order);
    &mut all[..count]
}

/// The fewest likeliest that hold this share of the whole, at least one, in no order: halves whose mass decides which of
/// them the boundary is in.
fn keep_mass(all: &mut [Candidate], share: f64) -> &mut [Candidate] {
    let mass = |part: &[Candidate]| part.iter().map(|(weight, _)| f64::from(*weight)).sum::<f64>();
    let wanted = share * mass(all);
    let (mut from, mut to, mut before) = (0, all.len(), 0.0);
    // All before `from` are kept, with a mass of `before`; all from `to` on are not needed.
    while to - from > 1 {
        let middle = (to - from) / 2;
        all[from..to].select_nth_unstable_by(middle, order);
        let upper = mass(&all[from..from + middle]);
        if before + upper >= wanted {
            to = from + middle;
        } else {
            before += upper;
            from += middle;
        }
    }
    &mut all[..to]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The tokens that are kept, by sorting.
    fn kept(logits: &[f32], choice: Choice) -> Vec<(f64, u32)> {
        let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |x: f32| f64::from(if x == greatest { 1.0 } else { ((x - greatest) / choice.temperature).exp() });
        let mut all: Vec<(f64, u32)> = logits.iter().map(|x| weight(*x)).zip(0..).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        if choice.top_k > 0 {
            all.truncate(choice.top_k);
        }
        if choice.top_p < 1.0 {
            let wanted = all.iter().map(|(w, _)| w).sum::<f64>() * f64::from(choice.top_p);
            let mut before = 0.0;
            all.retain(|(weight, _)| {
                let keep = before < wanted;
                before += weight;
                keep
            });
        }
        all.retain(|(weight, _)| *weight >= f64::from(choice.min_p) && *weight > 0.0);
        all
    }

    proptest! {
        #[test]
        fn chances_are_those_of_the_sorted_definition(
            logits in prop::collection::vec((-40i32..40).prop_map(|x| x as f32 / 4.0), 1..300),
            temperature in 0.1f32..3.0,
            top_k in prop_oneof![Just(0usize), 1usize..20],
            top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0],
            min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
        ) {
            let choice = Choice { temperature, top_k, top_p, min_p };
            let kept = kept(&logits, choice);
            let total: f64 = kept.iter().map(|(weight, _)| weight).sum();
            let steps = 2000;
            let mut counts = vec![0usize; logits.len()];
            for step in 0..steps {
                counts[sample(&logits, choice, (step as f64 + 0.5) / steps as f64) as usize] += 1;
            }
            for (index, count) in counts.iter().enumerate() {
                let share = kept.iter().find(|(_, id)| *id as usize == index).map_or(0.0, |(weight, _)| weight / total);
                // An interval of this length has room for so many of the evenly spaced numbers, give or take one.
                prop_assert!((*count as f64 - share * steps as f64).abs() <= 1.01, "{index}: {count} of {share}");
            }
        }
    }

    #[test]
    fn what_is_no_number_is_not_chosen() {
        let choice = Choice { temperature: 1.0, top_k: 0, top_p: 0.9, min_p: 0.0 };
        for random in [0.0, 0.5, 0.999_999] {
            assert_eq!(sample(&[f32::NAN, f32::NEG_INFINITY, 3.0, f32::NAN], choice, random), 2);
            assert_eq!(sample(&[f32::NAN; 3], choice, random), 0);
            assert_eq!(sample(&[f32::INFINITY, 1.0], choice, random), 0);
        }
    }
}
