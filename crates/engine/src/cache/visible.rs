//! What queries may see, in the form in which attention takes it.

use std::cell::OnceCell;
use std::sync::Arc;

use annulus_plan::{Mask, Runs};
use mlx_rs::ops::{arange, expand_dims_axes, maximum, minimum};
use mlx_rs::{Array, Dtype};

use crate::error::Result;

/// A plan's mask, shared by all layers whose columns lie alike. On the device it is made once a step, when somebody asks
/// for it there.
#[derive(Debug)]
pub struct Visible {
    mask: Arc<Mask>,
    device: OnceCell<Device>,
}

/// A mask on the device.
#[derive(Debug)]
pub(crate) enum Device {
    /// Every query sees every fetched column.
    All,
    /// Of S fetched columns, query i of N sees the first S - N + i + 1.
    Causal,
    /// Booleans, `[B, 1, N, S]`, with B = 1 when all rows see alike.
    Dense(Array),
}

impl Visible {
    pub(super) fn new(mask: Mask) -> Self {
        Self { mask: Arc::new(mask), device: OnceCell::new() }
    }

    /// The plan's own words.
    pub(crate) fn mask(&self) -> Arc<Mask> {
        Arc::clone(&self.mask)
    }

    /// The mask on the device.
    pub(crate) fn device(&self) -> Result<&Device> {
        if let Some(device) = self.device.get() {
            return Ok(device);
        }
        let device = match &*self.mask {
            Mask::None => Device::All,
            Mask::Causal => Device::Causal,
            Mask::Runs(runs) => Device::Dense(dense(runs)?),
        };
        Ok(self.device.get_or_init(|| device))
    }
}

impl Device {
    /// The mask as booleans over `columns` fetched columns of `queries` queries; nothing when all is seen.
    pub(super) fn booleans(&self, queries: i32, columns: i32) -> Result<Option<Array>> {
        Ok(match self {
            Self::All => None,
            Self::Dense(mask) => Some(mask.clone()),
            Self::Causal => {
                let last = arange::<_, i32>(columns - queries, columns, 1)?.reshape(&[1, 1, queries, 1])?;
                Some(last.ge(arange::<_, i32>(0, columns, 1)?)?)
            }
        })
    }
}

/// Spells runs out on the device: see [`Runs`] for what its integers mean.
fn dense(runs: &Runs) -> Result<Array> {
    let alike = runs.rows.windows(2).all(|pair| pair[0] == pair[1]);
    let rows = if alike { &runs.rows[..runs.rows.len().min(1)] } else { &runs.rows[..] };
    let each = |f: &dyn Fn(&annulus_plan::RowRun) -> i64| {
        let values: Vec<i32> = rows.iter().map(|row| saturated(f(row))).collect();
        Array::from_slice(&values, &[saturated(rows.len() as i64), 1, 1, 1])
    };
    let (ring, queries) = (saturated(runs.ring.into()), saturated(runs.queries.into()));
    let query = arange::<_, i32>(0, queries, 1)?.reshape(&[1, 1, queries, 1])?;
    let own = each(&|row| row.head.into()).add(query)?;
    let mut first = each(&|row| row.start.into());
    if let Some(window) = runs.window {
        first = maximum(&first, own.add(Array::from_int(saturated(1 - i64::from(window))))?)?;
    }
    // Temporal columns, in the order in which they lie.
    let temporal = arange::<_, i32>(0, ring, 1)?;
    let temporal = match runs.rotation {
        0 => temporal,
        rotation => {
            let turn = Array::from_int(saturated(i64::from(runs.ring) - i64::from(rotation)));
            temporal.add(turn)?.remainder(Array::from_int(ring))?
        }
    };
    // A query of padding sees its own column, lest a softmax over nothing make numbers that are none.
    let seen = temporal.ge(&first)?.logical_and(temporal.le(&own)?)?.logical_or(temporal.eq(&own)?)?;
    if runs.pinned == 0 {
        return Ok(seen);
    }
    let pinned = saturated(runs.pinned.into());
    let older = each(&|row| row.origin.into()).add(&first)?;
    let older = minimum(maximum(older, Array::from_int(0))?, Array::from_int(pinned))?;
    let pins = arange::<_, i32>(0, pinned, 1)?.lt(&older)?;
    // Only rings have pinned columns, and they have a window: `first`, and so this, has an entry for each query.
    Ok(mlx_rs::ops::concatenate(&[pins, seen], 3)?)
}

/// A mask for scores that have an axis more, `[B, kv_heads, repeats, N, S]`.
pub(super) fn for_grouped_heads(mask: &Array) -> Result<Array> {
    Ok(expand_dims_axes(mask, &[1])?)
}

/// The most negative number of a type: what a score that must not count becomes.
pub(super) fn lowest(dtype: Dtype) -> Result<Array> {
    let lowest = match dtype {
        Dtype::Float16 => -65504.0,
        // The largest that bfloat16 holds; float32 holds it as well.
        Dtype::Bfloat16 => -3.389_531_4e38,
        _ => f32::MIN,
    };
    Ok(Array::from_f32(lowest).as_dtype(dtype)?)
}

fn saturated(number: i64) -> i32 {
    number.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}
