//! What attention over a KV cache means, in float32 and without a cache: rows are lists of keys and values, and every query
//! looks at exactly the positions that the definition names.

/// The measures of an attention layer.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub dim: usize,
}

/// Which positions a query sees.
#[derive(Debug, Clone, Copy)]
pub struct Sees {
    /// The most tokens that a query sees, itself included; all when absent.
    pub window: Option<usize>,
    /// How many of them are the first of the row.
    pub sinks: usize,
}

impl Sees {
    /// Whether a query at one position sees the key at another.
    #[must_use]
    pub fn sees(self, query: usize, key: usize) -> bool {
        let recent = match self.window {
            None => true,
            Some(window) => key + (window - self.sinks) > query,
        };
        key <= query && (recent || key < self.sinks)
    }
}

/// The keys and values of one row, position by position. A key is stored as it was turned, `[kv_heads * dim]`.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Keys.
    pub keys: Vec<Vec<f32>>,
    /// Values.
    pub values: Vec<Vec<f32>>,
}

impl History {
    /// What a query at `position` attends to: `query` is `[heads * dim]`, turned; so is the result.
    #[must_use]
    pub fn attend(&self, position: usize, query: &[f32], shape: Shape, sees: Sees, scale: f32) -> Vec<f32> {
        let Shape { heads, kv_heads, dim } = shape;
        let seen: Vec<usize> = (0..self.keys.len()).filter(|key| sees.sees(position, *key)).collect();
        let mut out = vec![0.0; heads * dim];
        for head in 0..heads {
            let of = |numbers: &[f32]| -> Vec<f64> {
                let from = head * kv_heads / heads * dim;
                numbers[from..from + dim].iter().map(|number| f64::from(*number)).collect()
            };
            let query = &query[head * dim..][..dim];
            let score = |key: &usize| {
                let key = of(&self.keys[*key]);
                f64::from(scale) * query.iter().zip(key).map(|(q, k)| f64::from(*q) * k).sum::<f64>()
            };
            let scores: Vec<f64> = seen.iter().map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            for (weight, key) in weights.iter().zip(&seen) {
                for (out, value) in out[head * dim..].iter_mut().zip(of(&self.values[*key])) {
                    *out += (weight / total * value) as f32;
                }
            }
        }
        out
    }
}

/// Turns one token's heads, `[heads * dim]`, to a position: pair `i` of a head is its numbers `i` and `i + dim / 2`, turned by
/// `position / theta^(2 i / dim)`.
#[must_use]
pub fn turn(heads: &[f32], dim: usize, position: i64, theta: f64) -> Vec<f32> {
    let mut out = heads.to_vec();
    for head in out.chunks_exact_mut(dim) {
        for i in 0..dim / 2 {
            let angle = position as f64 / theta.powf(2.0 * i as f64 / dim as f64);
            let (a, b) = (f64::from(head[i]), f64::from(head[i + dim / 2]));
            head[i] = (a * angle.cos() - b * angle.sin()) as f32;
            head[i + dim / 2] = (a * angle.sin() + b * angle.cos()) as f32;
        }
    }
    out
}

/// Numbers that look random and are the same at each run (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Numbers spread evenly between -1.5 and 1.5.
    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.bits() >> 40) as f32 / (1u64 << 24) as f32 * 3.0 - 1.5).collect()
    }
}
