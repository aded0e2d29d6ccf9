//! Read-only copies of a layer's columns, for drafters that attend to a model's cache while it goes on.

use annulus_plan::{ColumnOp, Columns, Donor};
use mlx_rs::{Array, transforms};

use super::attention::{Fetched, attend_with_mlx};
use super::execute::gather_columns;
use super::planes::Planes;
use super::visible::Device;
use super::{Cache, Format};
use crate::error::{Error, Result};

/// One layer's newest columns, all rows, in the order of time. The copy owns its memory: whatever happens to the cache later,
/// it stays as it was.
///
/// Layers that share a cache within one pass need no copy: see [`Pass::share`](super::Pass::share).
#[derive(Debug)]
pub struct DonorColumns {
    donor: Donor,
    format: Format,
    /// None while no row has a token.
    columns: Option<Fetched>,
}

impl Cache {
    /// Copies what a drafter may read of one layer. The copy is evaluated.
    ///
    /// # Errors
    /// When there is no such layer. A failed evaluation poisons the cache.
    pub fn donor(&mut self, layer: usize) -> Result<DonorColumns> {
        self.usable()?;
        let Some(slot) = self.layers.get(layer) else {
            let layers = self.layers.len();
            return Err(Error::Unsupported(format!("layer {layer} has no cache: {layers} layers have one")));
        };
        let capture = self.layouts[slot.layout].donor();
        let columns = match (&slot.planes, capture.ops.as_slice()) {
            (Some(planes), [ColumnOp::CopyColumns { ranges }]) => {
                let copies = planes.0.iter().map(|plane| gather_columns(plane, ranges));
                copies.collect::<Result<Option<Vec<_>>>>()?.map(Planes)
            }
            _ => None,
        };
        let evaluated = transforms::eval(columns.iter().flat_map(|planes| &planes.0));
        self.guard(|| Ok(evaluated?))?;
        let columns = columns.map(|planes| Fetched::new(&planes, Columns::new(0, capture.donor.width)));
        Ok(DonorColumns { donor: capture.donor, format: self.arrangement.format, columns })
    }
}

impl DonorColumns {
    /// Which columns are whose.
    #[must_use]
    pub fn describe(&self) -> &Donor {
        &self.donor
    }

    /// Attention of one query a row, already turned to its position, to the row's newest tokens: at most `window` of them, or
    /// all that the layer keeps. `queries` is `[B, heads, N, D]`; all N queries of a row see the same.
    ///
    /// # Errors
    /// When a row has no token to attend to, or shapes do not fit.
    pub fn attend(&self, queries: &Array, window: Option<u32>, scale: f32) -> Result<Array> {
        let rows = self.donor.offsets.len();
        let bare = (0..rows).find(|row| self.donor.recent(*row, 1).is_empty());
        let (Some(columns), None) = (&self.columns, bare) else {
            let (row, columns) = (bare.unwrap_or(0), self.donor.width);
            return Err(Error::Unsupported(format!(
                "row {row} has no token to attend to in the {columns} columns of this donor"
            )));
        };
        let visible = match window {
            None if self.donor.is_whole() => Device::All,
            window => Device::Dense(self.mask(window)?),
        };
        attend_with_mlx(queries, columns, self.format, scale, &visible)
    }

    /// Booleans, `[B, 1, 1, width]`.
    fn mask(&self, window: Option<u32>) -> Result<Array> {
        let (rows, width) = (self.donor.offsets.len(), self.donor.width as usize);
        let mut seen = vec![false; rows * width];
        for (row, seen) in seen.chunks_mut(width.max(1)).enumerate() {
            // A window of the reader's own looks at the newest only.
            let pins = if window.is_none() { self.donor.pins(row) } else { Columns::default() };
            for columns in [pins, self.donor.recent(row, window.unwrap_or(u32::MAX))] {
                seen[columns.from as usize..columns.to as usize].fill(true);
            }
        }
        let size = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        Ok(Array::from_slice(&seen, &[size(rows), 1, 1, size(width)]))
    }
}
