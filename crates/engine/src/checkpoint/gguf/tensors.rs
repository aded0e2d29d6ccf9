//! The tensors of a GGUF file as those of the Hugging Face layout.

use std::borrow::Cow;
use std::path::Path;

use super::{GgufFile, GgufTensor, Packed, Rows, Source, Target, Values};
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
        for_each_row(tensor, self.bytes(tensor), source.rows, |row| {
            tensor.encoding.decode(row, &mut out);
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
        for_each_row(tensor, bytes, rows, |row| {
            owned.extend_from_slice(row);
        });
        Plain::owned(dtype, shape, owned)
    }

    fn affine(&self, tensor: &GgufTensor, bits: usize, group_size: usize, rows: Rows) -> Affine<'static> {
        let shape = tensor.shape.clone();
        let mut packed = Packed::with_capacity(shape.iter().product(), bits, group_size);
        for_each_row(tensor, self.bytes(tensor), rows, |row| {
            tensor.encoding.pack(row, &mut packed);
        });
        packed.finish(bits, group_size, shape)
    }
}

/// Calls `each` with the bytes of every row, in the order of the Hugging Face layout.
fn for_each_row(tensor: &GgufTensor, bytes: &[u8], order: Rows, mut each: impl FnMut(&[u8])) {
    // Rows lie along the first axis; a tensor of one axis has rows of one element.
    let rows = tensor.shape.first().copied().unwrap_or(0).max(1);
    if order == Rows::InOrder {
        return each(bytes);
    }
    let len = bytes.len() / rows;
    for row in 0..rows {
        let start = order.source(row) * len;
        each(bytes.get(start..start + len).unwrap_or(&[]));
    }
}
