//! The bytes of a GGUF header, read so that no file can make it panic, loop for long, or allocate more than the file
//! holds: a count is believed only as far as its items are really there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use crate::checkpoint::LoadError;

/// Arrays of arrays are allowed by the format and used by nobody; deeper ones than this are refused.
const MAX_DEPTH: usize = 4;

/// What a read failed on: to be completed with the file's name.
type Read<T> = Result<T, String>;

/// A position in the file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn take(&mut self, len: usize, what: &str) -> Read<&'a [u8]> {
        let taken = self.at.checked_add(len).and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| {
            format!(
                "{what} at byte {} takes {len} bytes, but the file ends after {}; it is truncated or damaged",
                self.at,
                self.bytes.len()
            )
        })?;
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Read<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &str) -> Read<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Read<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length or a count, which no file can hold more of than this machine can address.
    fn len(&mut self, what: &str) -> Read<usize> {
        let at = self.at;
        let len = self.u64(what)?;
        usize::try_from(len).map_err(|_| format!("{what} at byte {at} claims {len} items"))
    }

    pub(super) fn string(&mut self, what: &str) -> Read<&'a str> {
        let at = self.at;
        let len = self.len(what)?;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| format!("{what} at byte {at} is not UTF-8"))
    }
}

/// The type of a metadata value, by its number in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    fn read(cursor: &mut Cursor<'_>, what: &str) -> Read<Self> {
        use Kind::{Array, Bool, F32, F64, I8, I16, I32, I64, String, U8, U16, U32, U64};
        const KINDS: [Kind; 13] = [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        let at = cursor.at();
        let number = cursor.u32(what)?;
        usize::try_from(number)
            .ok()
            .and_then(|number| KINDS.get(number).copied())
            .ok_or_else(|| format!("{what} at byte {at} has value type {number}; types go from 0 to 12"))
    }
}

/// A metadata value. Numbers keep their value, not their width.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    /// Arrays stay in the file until somebody asks: a vocabulary is large, and read once.
    Array(ArrayValue),
}

/// An array that has been walked through once: all its items are there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArrayValue {
    items: Kind,
    len: usize,
    bytes: Range<usize>,
}

/// The key-value part of a header.
pub(super) type Metadata = BTreeMap<String, Value>;

/// Reads `count` key-value pairs.
pub(super) fn read_metadata(cursor: &mut Cursor<'_>, count: u64) -> Read<Metadata> {
    let mut metadata = Metadata::new();
    for index in 0..count {
        let key = cursor.string(&format!("key {index} of {count}"))?;
        let what = format!("the value of {key:?}");
        let kind = Kind::read(cursor, &what)?;
        let value = read_value(cursor, kind, &what)?;
        if metadata.insert(key.to_owned(), value).is_some() {
            return Err(format!("key {key:?} is given twice"));
        }
    }
    Ok(metadata)
}

fn read_value(cursor: &mut Cursor<'_>, kind: Kind, what: &str) -> Read<Value> {
    Ok(match kind {
        Kind::U8 => Value::Unsigned(u8::from_le_bytes(cursor.array(what)?).into()),
        Kind::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array(what)?).into()),
        Kind::U32 => Value::Unsigned(cursor.u32(what)?.into()),
        Kind::U64 => Value::Unsigned(cursor.u64(what)?),
        Kind::I8 => Value::Signed(i8::from_le_bytes(cursor.array(what)?).into()),
        Kind::I16 => Value::Signed(i16::from_le_bytes(cursor.array(what)?).into()),
        Kind::I32 => Value::Signed(i32::from_le_bytes(cursor.array(what)?).into()),
        Kind::I64 => Value::Signed(i64::from_le_bytes(cursor.array(what)?)),
        Kind::F32 => Value::F32(f32::from_le_bytes(cursor.array(what)?)),
        Kind::F64 => Value::F64(f64::from_le_bytes(cursor.array(what)?)),
        Kind::Bool => Value::Bool(cursor.array::<1>(what)? != [0]),
        Kind::String => Value::String(cursor.string(what)?.to_owned()),
        Kind::Array => Value::Array(walk_array(cursor, what, 0)?),
    })
}

/// Steps over an array, and so finds out whether it is all there.
fn walk_array(cursor: &mut Cursor<'_>, what: &str, depth: usize) -> Read<ArrayValue> {
    if depth == MAX_DEPTH {
        return Err(format!("{what} nests arrays more than {MAX_DEPTH} deep"));
    }
    let items = Kind::read(cursor, what)?;
    let len = cursor.len(what)?;
    let start = cursor.at();
    let width = match items {
        Kind::U8 | Kind::I8 | Kind::Bool => 1,
        Kind::U16 | Kind::I16 => 2,
        Kind::U32 | Kind::I32 | Kind::F32 => 4,
        Kind::U64 | Kind::I64 | Kind::F64 => 8,
        Kind::String => {
            for _ in 0..len {
                cursor.string(what)?;
            }
            0
        }
        Kind::Array => {
            for _ in 0..len {
                walk_array(cursor, what, depth + 1)?;
            }
            0
        }
    };
    // When the product overflows no file holds so much; `take` says so in its own words.
    cursor.take(len.saturating_mul(width), what)?;
    Ok(ArrayValue { items, len, bytes: start..cursor.at() })
}

/// Typed access to metadata, with errors that name file and key.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) file: &'a Path,
    pub(super) bytes: &'a [u8],
    pub(super) metadata: &'a Metadata,
}

impl<'a> Fields<'a> {
    fn wrong(self, key: &str, expected: &str) -> LoadError {
        let found = match self.metadata.get(key) {
            None => "nothing".to_owned(),
            Some(Value::Unsigned(value)) => value.to_string(),
            Some(Value::Signed(value)) => value.to_string(),
            Some(Value::F32(value)) => value.to_string(),
            Some(Value::F64(value)) => value.to_string(),
            Some(Value::Bool(value)) => value.to_string(),
            Some(Value::String(_)) => "a string".to_owned(),
            Some(Value::Array(array)) => format!("an array of {} {:?}", array.len, array.items),
        };
        LoadError::field(self.file, key, format!("must be {expected}, found {found}"))
    }

    /// A whole number that is not negative.
    pub(super) fn unsigned(self, key: &str) -> Result<Option<u64>, LoadError> {
        let value = match self.metadata.get(key) {
            None => return Ok(None),
            Some(Value::Unsigned(value)) => Some(*value),
            Some(Value::Signed(value)) => u64::try_from(*value).ok(),
            Some(_) => None,
        };
        value.map(Some).ok_or_else(|| self.wrong(key, "a whole number that is not negative"))
    }

    /// A finite number. A float32 is widened by way of its shortest decimal form, so that the 1e-5 that was written
    /// reads as 1e-5 and not as 9.999999747378752e-6; rounded back to float32, both are the same.
    pub(super) fn number(self, key: &str) -> Result<Option<f64>, LoadError> {
        #[allow(clippy::cast_precision_loss, reason = "no such number is that large")]
        let value = match self.metadata.get(key) {
            None => return Ok(None),
            Some(Value::F32(value)) => value.to_string().parse().ok(),
            Some(Value::F64(value)) => Some(*value),
            Some(Value::Unsigned(value)) => Some(*value as f64),
            Some(Value::Signed(value)) => Some(*value as f64),
            Some(_) => None,
        };
        value.filter(|value| value.is_finite()).map(Some).ok_or_else(|| self.wrong(key, "a finite number"))
    }

    pub(super) fn bool(self, key: &str) -> Result<Option<bool>, LoadError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    pub(super) fn string(self, key: &str) -> Result<Option<&'a str>, LoadError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(key, "a string")),
        }
    }

    /// An array of strings, borrowed from the file.
    pub(super) fn strings(self, key: &str) -> Result<Option<Vec<&'a str>>, LoadError> {
        let array = match self.metadata.get(key) {
            None => return Ok(None),
            Some(Value::Array(array)) if array.items == Kind::String => array,
            Some(_) => return Err(self.wrong(key, "an array of strings")),
        };
        let mut cursor = Cursor { bytes: self.bytes, at: array.bytes.start };
        (0..array.len)
            .map(|_| cursor.string(key))
            .collect::<Read<_>>()
            .map(Some)
            .map_err(|problem| LoadError::damaged(self.file, problem))
    }

    /// An array of float32 numbers.
    pub(super) fn floats(self, key: &str) -> Result<Option<Vec<f32>>, LoadError> {
        let array = match self.metadata.get(key) {
            None => return Ok(None),
            Some(Value::Array(array)) if array.items == Kind::F32 => array,
            Some(_) => return Err(self.wrong(key, "an array of float32 numbers")),
        };
        let (items, _) = self.bytes[array.bytes.clone()].as_chunks::<4>();
        Ok(Some(items.iter().map(|&item| f32::from_le_bytes(item)).collect()))
    }

    /// An array of 32-bit integers that are not negative.
    pub(super) fn integers(self, key: &str) -> Result<Option<Vec<u32>>, LoadError> {
        let array = match self.metadata.get(key) {
            None => return Ok(None),
            Some(Value::Array(array)) if matches!(array.items, Kind::I32 | Kind::U32) => array,
            Some(_) => return Err(self.wrong(key, "an array of 32-bit integers")),
        };
        let (items, _) = self.bytes[array.bytes.clone()].as_chunks::<4>();
        let values: Vec<u32> = items.iter().map(|&item| u32::from_le_bytes(item)).collect();
        // A negative one reads as a number above all that is meant here.
        if array.items == Kind::I32 && values.iter().any(|&value| value > i32::MAX as u32) {
            return Err(self.wrong(key, "an array without negative numbers"));
        }
        Ok(Some(values))
    }
}
