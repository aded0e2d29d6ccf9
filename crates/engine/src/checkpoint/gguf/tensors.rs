//! The tensors of a GGUF file as those of the Hugging Face layout.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use super::{GgufFile, GgufTensor, Packed, Rows, Source, Target, Values};
use crate::checkpoint::parallel::in_parts;
use crate::checkpoint::{Affine, Dtype, LoadError, Place, Plain, TensorData};

impl GgufFile {
    /// A tensor in the representation that it is used in.
    pub(in crate::checkpoint) fn tensor(&self, source: &Source) -> Result<TensorData<'_>, LoadError> {
        let tensor = self.described(source)?;
        if source.values == Values::OneMore {
            let numbers = self.decode(source)?;
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            return Ok(TensorData::Plain(Plain::owned(Dtype::F32, tensor.shape.clone(), bytes)));
        }
        Ok(match tensor.encoding.layout().target {
            Target::Plain(dtype) => TensorData::Plain(self.plain(tensor, dtype, source.rows)),
            Target::Affine { bits, group_size } => {
                TensorData::Affine(self.affine(tensor, bits, group_size, source.rows))
            }
        })
    }

    /// A tensor in float32.
    pub(in crate::checkpoint) fn decode(&self, source: &Source) -> Result<Vec<f32>, LoadError> {
        let tensor = self.described(source)?;
        let mut out = Vec::with_capacity(tensor.shape.iter().product());
        let (rows, bytes) = (matrix(&tensor.shape, source.rows).0, self.bytes(tensor));
        for_each_row(0..rows, bytes.len() / rows, source.rows, |row| {
            tensor.encoding.decode(bytes.get(row).unwrap_or(&[]), &mut out);
        });
        if source.values == Values::OneMore {
            out.iter_mut().for_each(|number| *number -= 1.0);
        }
        Ok(out)
    }

    /// The shape of a tensor, and the type of its elements or of its scales.
    pub(in crate::checkpoint) fn describe(&self, source: &Source) -> Option<(Vec<usize>, Dtype)> {
        let tensor = self.tensors.get(&source.name)?;
        let dtype = match (tensor.encoding.layout().target, source.values) {
            (Target::Plain(dtype), Values::AsStored) => dtype,
            _ => Dtype::F32,
        };
        Some((tensor.shape.clone(), dtype))
    }

    /// The file that holds a tensor.
    pub(in crate::checkpoint) fn file_of(&self, source: &Source) -> &Path {
        self.tensors.get(&source.name).map_or(self.file(), |tensor| self.shard(tensor)).path()
    }

    fn described(&self, source: &Source) -> Result<&GgufTensor, LoadError> {
        self.tensors
            .get(&source.name)
            .ok_or_else(|| LoadError::tensor(self.file().path(), &source.name, "is not in the file"))
    }

    fn plain(&self, tensor: &GgufTensor, dtype: Dtype, rows: Rows) -> Plain<'_> {
        let bytes = self.bytes(tensor);
        let shape = tensor.shape.clone();
        if rows == Rows::InOrder {
            let place = Some(Place { file: self.shard(tensor), offset: tensor.offset });
            return Plain { dtype, shape, bytes: Cow::Borrowed(bytes), place };
        }
        let mut owned = Vec::with_capacity(bytes.len());
        let count = matrix(&shape, rows).0;
        for_each_row(0..count, bytes.len() / count, rows, |row| {
            owned.extend_from_slice(bytes.get(row).unwrap_or(&[]));
        });
        Plain::owned(dtype, shape, owned)
    }

    fn affine(&self, tensor: &GgufTensor, bits: usize, group_size: usize, order: Rows) -> Affine<'static> {
        let (rows, columns) = matrix(&tensor.shape, order);
        let bytes = self.bytes(tensor);
        let parts = in_parts(rows, columns, |range| {
            let mut packed = Packed::with_capacity(range.len() * columns, bits, group_size);
            for_each_row(range, bytes.len() / rows, order, |row| {
                tensor.encoding.pack(bytes.get(row).unwrap_or(&[]), &mut packed);
            });
            packed
        });
        self.shard(tensor).release(bytes);
        Packed::concat(parts).finish(bits, group_size, tensor.shape.clone())
    }
}

/// Rows and their length. Rows lie along the first axis; a vector is one row, or rows of one element where these have an
/// order of their own.
fn matrix(shape: &[usize], order: Rows) -> (usize, usize) {
    match (shape, order) {
        ([columns], Rows::InOrder) => (1, *columns),
        (shape, _) => (shape.first().copied().unwrap_or(1), shape.iter().skip(1).product()),
    }
}

/// Calls `each` with the places of these rows' bytes, `len` a row, in the order of the Hugging Face layout.
fn for_each_row(rows: Range<usize>, len: usize, order: Rows, mut each: impl FnMut(Range<usize>)) {
    if order == Rows::InOrder {
        return each(rows.start * len..rows.end * len);
    }
    for row in rows {
        let start = order.source(row) * len;
        each(start..start + len);
    }
}
