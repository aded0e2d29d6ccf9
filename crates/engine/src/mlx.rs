//! What mlx-rs does not offer, over the raw binding. All of the engine's unsafe code is here.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use annulus_kernels::memory::prefer_large_pages;
use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype, Stream};

use crate::checkpoint::MappedFile;

/// Errors of MLX itself.
pub type Result<T> = std::result::Result<T, Exception>;

/// The version of the libmlx that is loaded, which need not be the one that was linked.
#[must_use]
pub fn version() -> String {
    // SAFETY: `mlx_version` fills the string or leaves it empty; it is freed once.
    unsafe {
        let mut text = mlx_sys::mlx_string_new();
        mlx_sys::mlx_version(&raw mut text);
        let data = mlx_sys::mlx_string_data(text);
        let version = if data.is_null() { String::new() } else { CStr::from_ptr(data).to_string_lossy().into_owned() };
        mlx_sys::mlx_string_free(text);
        version
    }
}

/// Which kinds of GPU this libmlx can use here.
#[must_use]
pub fn available_gpu() -> Option<&'static str> {
    let mut found = false;
    // SAFETY: both calls only write the flag.
    unsafe {
        if mlx_sys::mlx_metal_is_available(&raw mut found) == 0 && found {
            return Some("metal");
        }
        if mlx_sys::mlx_cuda_is_available(&raw mut found) == 0 && found {
            return Some("cuda");
        }
    }
    None
}

/// Calls one function of mlx-c that yields an array.
fn call(operation: &str, f: impl FnOnce(*mut mlx_sys::mlx_array, mlx_sys::mlx_stream) -> i32) -> Result<Array> {
    let stream = Stream::thread_local_or_default();
    // SAFETY: on success `f` has put an owned handle into `array`; on failure the empty handle is freed by `Array`.
    unsafe {
        let mut array = mlx_sys::mlx_array_new();
        let status = f(&raw mut array, stream.as_ptr());
        let array = Array::from_ptr(array);
        if status == 0 { Ok(array) } else { Err(Exception::custom(format!("{operation} failed"))) }
    }
}

/// The part of axis `axis` from `from` up to `to`; a view where MLX makes one.
///
/// # Errors
/// When MLX refuses the range.
pub fn slice(array: &Array, axis: usize, from: i32, to: i32) -> Result<Array> {
    let (start, stop, strides) = along(array.shape(), axis, from, to);
    call("slice", |res, stream| {
        // SAFETY: the arrays live through the call and hold one entry an axis.
        unsafe {
            mlx_sys::mlx_slice(
                res,
                array.as_ptr(),
                start.as_ptr(),
                start.len(),
                stop.as_ptr(),
                stop.len(),
                strides.as_ptr(),
                strides.len(),
                stream,
            )
        }
    })
}

/// `array` with `update` written along `axis` from `from` on: in place when nobody else holds the array.
///
/// # Errors
/// When the shapes do not fit.
pub fn slice_update(array: &Array, update: &Array, axis: usize, from: i32) -> Result<Array> {
    block_update(array, update, &[(axis, from)])
}

/// `array` with `update` written over a block of it: along each named axis from there on as far as the update reaches,
/// along the others everything. In place when nobody else holds the array.
///
/// # Errors
/// When the shapes do not fit.
pub fn block_update(array: &Array, update: &Array, from: &[(usize, i32)]) -> Result<Array> {
    let (mut start, mut stop) = (vec![0; array.ndim()], array.shape().to_vec());
    for (axis, from) in from {
        if let (Some(start), Some(stop)) = (start.get_mut(*axis), stop.get_mut(*axis)) {
            *start = *from;
            *stop = from.saturating_add(update.dim(i32::try_from(*axis).unwrap_or(-1)));
        }
    }
    let strides = vec![1; array.ndim()];
    call("slice_update", |res, stream| {
        // SAFETY: as in `slice`.
        unsafe {
            mlx_sys::mlx_slice_update(
                res,
                array.as_ptr(),
                update.as_ptr(),
                start.as_ptr(),
                start.len(),
                stop.as_ptr(),
                stop.len(),
                strides.as_ptr(),
                strides.len(),
                stream,
            )
        }
    })
}

/// Start, stop and stride of a range along one axis and of everything along the others.
fn along(shape: &[i32], axis: usize, from: i32, to: i32) -> (Vec<i32>, Vec<i32>, Vec<i32>) {
    let mut start = vec![0; shape.len()];
    let mut stop = shape.to_vec();
    if let (Some(start), Some(stop)) = (start.get_mut(axis), stop.get_mut(axis)) {
        *start = from;
        *stop = to;
    }
    (start, stop, vec![1; shape.len()])
}

/// An array over bytes of a mapped file, without a copy; it keeps the file mapped. For the CPU backend only.
///
/// # Errors
/// When MLX refuses the shape.
///
/// # Panics
/// When `bytes` does not lie in the file behind at least eight others, or is not as long as shape and type say.
pub fn array_over_file(file: &Arc<MappedFile>, bytes: &[u8], shape: &[i32], dtype: Dtype) -> Result<Array> {
    let whole = file.bytes();
    let before = (bytes.as_ptr() as usize).checked_sub(whole.as_ptr() as usize);
    let inside = before.is_some_and(|before| before >= 8 && before + bytes.len() <= whole.len());
    assert!(inside, "the bytes must lie in their file, behind eight others");
    assert_eq!(bytes.len(), byte_len(shape, dtype), "{shape:?} {dtype:?}");
    // SAFETY: the bytes live as long as the file is mapped, and lie behind eight others in it.
    unsafe { array_over(Arc::clone(file), bytes.as_ptr(), shape, dtype) }
}

/// Float32 numbers that become an array without a copy, on the CPU backend.
#[derive(Debug)]
pub struct Floats {
    /// The numbers, behind two that nobody reads: MLX keeps a word in front of a buffer.
    padded: Vec<f32>,
}

impl Floats {
    const PADDING: usize = 2;

    /// So many zeros.
    #[must_use]
    pub fn zeros(count: usize) -> Self {
        // Zeroed memory of this size comes from the system untouched: nothing is paid before it is filled in.
        let mut padded = vec![0.0; count + Self::PADDING];
        prefer_large_pages(&mut padded);
        Self { padded }
    }

    /// The numbers, to be filled in.
    pub fn numbers(&mut self) -> &mut [f32] {
        &mut self.padded[Self::PADDING..]
    }

    /// The numbers as an array, which takes the memory over.
    ///
    /// # Errors
    /// When MLX refuses the shape.
    ///
    /// # Panics
    /// When there are not as many as the shape says.
    pub fn into_array(mut self, shape: &[i32]) -> Result<Array> {
        let numbers = self.numbers();
        assert_eq!(size_of_val(numbers), byte_len(shape, Dtype::Float32), "{shape:?}");
        let data = numbers.as_ptr().cast();
        // SAFETY: the numbers live in the vector's heap memory, which moving the vector leaves in place, behind eight
        // bytes of padding.
        unsafe { array_over(self.padded, data, shape, Dtype::Float32) }
    }
}

/// An array over memory that `owner` keeps alive and unchanged.
///
/// # Safety
/// `data` must point to as many bytes as shape and type say, behind eight readable others, all of which stay valid and
/// unchanged until `owner` is dropped, wherever it is moved to.
unsafe fn array_over<O: Send + 'static>(owner: O, data: *const u8, shape: &[i32], dtype: Dtype) -> Result<Array> {
    extern "C" fn release<O>(owner: *mut c_void) {
        // SAFETY: the pointer came from `Box::into_raw` below, and MLX calls this once.
        drop(unsafe { Box::from_raw(owner.cast::<O>()) });
    }
    let dim = i32::try_from(shape.len()).unwrap_or(i32::MAX);
    let owner = Box::into_raw(Box::new(owner)).cast::<c_void>();
    call("an array over memory", |res, _| {
        // SAFETY: the caller vouches for the memory. Nobody writes to it: MLX writes only into arrays that nobody holds
        // but the operation, and the engine holds its weights.
        unsafe {
            mlx_sys::annulus_array_over_memory(
                res,
                data.cast(),
                shape.as_ptr(),
                dim,
                dtype.into(),
                owner,
                Some(release::<O>),
            )
        }
    })
}

/// Bytes of an array.
fn byte_len(shape: &[i32], dtype: Dtype) -> usize {
    shape.iter().map(|n| usize::try_from(*n).unwrap_or(0)).product::<usize>() * item_size(dtype)
}

/// An array with a copy of these bytes.
///
/// # Panics
/// When `bytes` is not as long as shape and type say.
#[must_use]
pub fn array_from_bytes(bytes: &[u8], shape: &[i32], dtype: Dtype) -> Array {
    assert_eq!(bytes.len(), byte_len(shape, dtype), "{shape:?} {dtype:?}");
    let mut aligned = Vec::new();
    let data = if bytes.as_ptr().align_offset(item_size(dtype)) == 0 {
        bytes.as_ptr()
    } else {
        // MLX reads elements, which must lie at multiples of their size.
        aligned.resize(bytes.len().div_ceil(8), 0u64);
        // SAFETY: the words hold at least as many bytes, and the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), aligned.as_mut_ptr().cast(), bytes.len()) };
        aligned.as_ptr().cast()
    };
    let dim = i32::try_from(shape.len()).unwrap_or(i32::MAX);
    // SAFETY: the bytes were just counted, and MLX copies them before it returns.
    unsafe { Array::from_ptr(mlx_sys::mlx_array_new_data(data.cast(), shape.as_ptr(), dim, dtype.into())) }
}

/// Bytes of one element.
#[must_use]
pub fn item_size(dtype: Dtype) -> usize {
    match dtype {
        Dtype::Bool | Dtype::Uint8 | Dtype::Int8 => 1,
        Dtype::Uint16 | Dtype::Int16 | Dtype::Float16 | Dtype::Bfloat16 => 2,
        Dtype::Uint32 | Dtype::Int32 | Dtype::Float32 => 4,
        Dtype::Uint64 | Dtype::Int64 | Dtype::Float64 | Dtype::Complex64 => 8,
    }
}

/// A number in float32, in which MLX takes most of its parameters.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "rounding is what was asked for")]
pub fn rounded(value: f64) -> f32 {
    value as f32
}

/// A number as an array without axes, rounded to `dtype` by way of float32, as MLX's own layers make their constants.
#[must_use]
pub fn scalar(value: f64, dtype: Dtype) -> Array {
    let value = rounded(value);
    match dtype {
        Dtype::Float16 => Array::from_slice(&[half::f16::from_f32(value)], &[]),
        Dtype::Bfloat16 => Array::from_slice(&[half::bf16::from_f32(value)], &[]),
        _ => Array::from_f32(value),
    }
}

/// How many operations evaluating `array` would run.
///
/// # Errors
/// When MLX cannot walk the graph.
pub fn graph_size(array: &Array) -> Result<usize> {
    let mut nodes = 0;
    // SAFETY: the call only reads the graph and writes the number.
    match unsafe { mlx_sys::annulus_graph_size(&raw mut nodes, array.as_ptr()) } {
        0 => Ok(nodes),
        _ => Err(Exception::custom("the graph could not be counted")),
    }
}

/// A type of elements, as memory holds them.
pub trait Element: Copy + Default {
    /// What MLX calls it.
    const DTYPE: Dtype;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::Float32;
}

impl Element for i32 {
    const DTYPE: Dtype = Dtype::Int32;
}

impl Element for u32 {
    const DTYPE: Dtype = Dtype::Uint32;
}

/// An array as a computation of our own sees it.
#[derive(Clone, Copy)]
pub struct View<'a>(&'a mlx_sys::annulus_view);

impl<'a> View<'a> {
    /// The extent of each axis.
    #[must_use]
    pub fn shape(self) -> Vec<usize> {
        self.axes().0.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect()
    }

    /// The elements between neighbours on each axis.
    #[must_use]
    pub fn strides(self) -> Vec<usize> {
        self.axes().1.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect()
    }

    fn axes(self) -> (&'a [i32], &'a [i64]) {
        if self.0.dim == 0 {
            return (&[], &[]);
        }
        // SAFETY: a view's pointers hold an entry an axis, and live as long as the view.
        unsafe {
            (
                std::slice::from_raw_parts(self.0.shape, self.0.dim),
                std::slice::from_raw_parts(self.0.strides, self.0.dim),
            )
        }
    }

    /// All memory from the first element to the last.
    ///
    /// # Panics
    /// When the elements are of another type, or an axis runs backwards.
    #[must_use]
    pub fn memory<T: Element>(self) -> &'a [T] {
        assert_eq!(self.0.dtype, mlx_sys::mlx_dtype::from(T::DTYPE), "the type of an array's elements");
        let (shape, strides) = self.axes();
        assert!(strides.iter().all(|stride| *stride >= 0), "strides {strides:?}");
        if shape.contains(&0) {
            return &[];
        }
        let last: usize = self.shape().iter().zip(self.strides()).map(|(n, stride)| (n - 1) * stride).sum();
        // SAFETY: MLX keeps the array alive while the computation runs, and the last element is inside it.
        unsafe { std::slice::from_raw_parts(self.0.data.cast(), last + 1) }
    }

    /// The elements in order: as they lie, where they lie in order.
    ///
    /// # Panics
    /// As [`memory`](Self::memory).
    #[must_use]
    pub fn elements<T: Element>(self) -> Cow<'a, [T]> {
        let (shape, strides, memory) = (self.shape(), self.strides(), self.memory::<T>());
        let count: usize = shape.iter().product();
        let mut expected = 1;
        let in_order = shape.iter().zip(&strides).rev().all(|(n, stride)| {
            let fits = *n == 1 || *stride == expected;
            expected *= n;
            fits
        });
        if in_order {
            return Cow::Borrowed(&memory[..count]);
        }
        let mut out = Vec::with_capacity(count);
        let mut index = vec![0; shape.len()];
        for _ in 0..count {
            out.push(memory[index.iter().zip(&strides).map(|(i, stride)| i * stride).sum::<usize>()]);
            for (axis, i) in index.iter_mut().enumerate().rev() {
                *i += 1;
                if *i < shape[axis] {
                    break;
                }
                *i = 0;
            }
        }
        Cow::Owned(out)
    }
}

/// A result that a computation of our own writes, row-major.
pub struct ViewMut<'a>(&'a mlx_sys::annulus_view);

impl ViewMut<'_> {
    /// The elements. What they hold before they are written is arbitrary.
    ///
    /// # Panics
    /// When they are of another type.
    #[must_use]
    pub fn elements<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(self.0.dtype, mlx_sys::mlx_dtype::from(T::DTYPE), "the type of an array's elements");
        let count = View(self.0).shape().iter().product();
        if count == 0 {
            return &mut [];
        }
        // SAFETY: MLX has allocated the array for this computation alone. Fresh memory of these types holds numbers, if
        // arbitrary ones: MLX's allocator may hand out memory that was used before, never undefined by its language.
        unsafe { std::slice::from_raw_parts_mut(self.0.data.cast(), count) }
    }
}

/// The shape and the type of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Like {
    /// The extent of each axis.
    pub shape: Vec<i32>,
    /// The type of the elements.
    pub dtype: Dtype,
}

impl Like {
    /// Float32 of this shape.
    #[must_use]
    pub fn floats(shape: &[i32]) -> Self {
        Self { shape: shape.to_vec(), dtype: Dtype::Float32 }
    }
}

/// What a panic said.
fn panic_message(payload: &(dyn Any + Send)) -> String {
    let said = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    format!("a kernel panicked: {}", said.unwrap_or("it did not say why"))
}

/// As much of a message as there is room for, with a zero behind it.
fn write_problem(message: &str, room: &mut [u8]) {
    let Some(most) = room.len().checked_sub(1) else { return };
    let end = (0..=most.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    room[..end].copy_from_slice(&message.as_bytes()[..end]);
    room[end] = 0;
}

/// One lazy operation on the CPU whose arithmetic is `run`: it is called once, on the thread of the stream, with views of
/// the inputs and of the results. `name` is what MLX's messages call it. When `run` panics, the evaluation fails.
///
/// # Errors
/// When MLX refuses the shapes.
pub fn compute<F>(name: &'static CStr, inputs: &[&Array], outputs: &[Like], run: F) -> Result<Vec<Array>>
where
    F: Fn(&[View<'_>], &mut [ViewMut<'_>]) + Send + Sync + 'static,
{
    extern "C" fn call<F: Fn(&[View<'_>], &mut [ViewMut<'_>])>(
        owner: *mut c_void,
        inputs: *const mlx_sys::annulus_view,
        input_count: usize,
        outputs: *const mlx_sys::annulus_view,
        output_count: usize,
        problem: *mut c_char,
        problem_size: usize,
    ) -> i32 {
        // SAFETY: MLX passes as many views as it says, the owner that it was given, and room for a message.
        let (run, inputs, outputs, problem) = unsafe {
            let views =
                |from: *const _, count| if count == 0 { &[][..] } else { std::slice::from_raw_parts(from, count) };
            let problem = std::slice::from_raw_parts_mut(problem.cast::<u8>(), problem_size);
            (&*owner.cast::<F>(), views(inputs, input_count), views(outputs, output_count), problem)
        };
        let inputs: Vec<View<'_>> = inputs.iter().map(View).collect();
        let mut outputs: Vec<ViewMut<'_>> = outputs.iter().map(ViewMut).collect();
        // An unwind must not reach C++.
        match panic::catch_unwind(AssertUnwindSafe(|| run(&inputs, &mut outputs))) {
            Ok(()) => 0,
            Err(payload) => {
                write_problem(&panic_message(payload.as_ref()), problem);
                1
            }
        }
    }
    extern "C" fn release<F>(owner: *mut c_void) {
        // SAFETY: the pointer came from `Box::into_raw` below, and MLX calls this once.
        drop(unsafe { Box::from_raw(owner.cast::<F>()) });
    }
    let views: Vec<_> = outputs
        .iter()
        .map(|like| mlx_sys::annulus_view {
            data: std::ptr::null_mut(),
            shape: like.shape.as_ptr(),
            strides: std::ptr::null(),
            dim: like.shape.len(),
            dtype: like.dtype.into(),
        })
        .collect();
    let computation = mlx_sys::annulus_computation {
        owner: Box::into_raw(Box::new(run)).cast(),
        run: Some(call::<F>),
        release: Some(release::<F>),
    };
    let stream = Stream::thread_local_or_default();
    // SAFETY: all pointers live through the call; the vectors are freed once, and the arrays taken out of the results are
    // handles of their own.
    unsafe {
        let arrays = mlx_sys::mlx_vector_array_new();
        for input in inputs {
            mlx_sys::mlx_vector_array_append_value(arrays, input.as_ptr());
        }
        let mut results = mlx_sys::mlx_vector_array_new();
        let status = mlx_sys::annulus_compute(
            &raw mut results,
            name.as_ptr(),
            arrays,
            views.as_ptr(),
            views.len(),
            computation,
            stream.as_ptr(),
        );
        mlx_sys::mlx_vector_array_free(arrays);
        let take = |index| {
            let mut array = mlx_sys::mlx_array_new();
            let got = mlx_sys::mlx_vector_array_get(&raw mut array, results, index);
            let array = Array::from_ptr(array);
            if got == 0 { Ok(array) } else { Err(Exception::custom("a result is missing")) }
        };
        let taken = if status == 0 {
            (0..outputs.len()).map(take).collect()
        } else {
            Err(Exception::custom(format!("{} failed", name.to_string_lossy())))
        };
        mlx_sys::mlx_vector_array_free(results);
        taken
    }
}
