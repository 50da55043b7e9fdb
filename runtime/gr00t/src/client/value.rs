//! Values as a Python client sends them, and their Python representations, because error messages
//! match the reference's.

use std::ops::Range;

use bytes::Bytes;
use jobs::refusal::Refusal;

use crate::error::input;

/// Maximum number of bytes of a value in an error message; a client decides how long the value is.
const LONGEST_REPR: usize = 1000;

/// A value as a Python client sends it.
#[derive(Clone, Debug, PartialEq)]
pub enum PyObject {
    /// Python's `None`.
    None,
    /// A boolean, `bool`.
    Bool(bool),
    /// An integer, `int`, within 64 bits.
    Int(i64),
    /// A floating-point number, `float`.
    Float(f64),
    /// A string, `str`.
    Text(String),
    /// Binary data, `bytes`.
    Bytes(Bytes),
    /// A list, `list`.
    List(Vec<PyObject>),
    /// A tuple, `tuple`.
    Tuple(Vec<PyObject>),
    /// A map with string keys in order, `dict`.
    Map(Vec<(String, PyObject)>),
    /// A numpy array, `numpy.ndarray`.
    Array(PyArray),
}

/// A numpy array: little endian, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct PyArray {
    dtype: String,
    shape: Vec<usize>,
    bytes: Bytes,
}

impl PyArray {
    /// Creates an array of numpy's `dtype` (`uint8`, `float32`, …), with `item_size` bytes per
    /// element.
    ///
    /// # Errors
    /// Returns [`Refusal`] if shape and bytes contradict each other.
    pub fn new(
        dtype: &str,
        item_size: usize,
        shape: &[usize],
        bytes: Bytes,
    ) -> Result<Self, Refusal> {
        let wanted = shape
            .iter()
            .try_fold(item_size, |size, edge| size.checked_mul(*edge));
        if wanted != Some(bytes.len()) {
            let found = format!("{} bytes", bytes.len());
            let wanted = format!(
                "expected {item_size} bytes per number for the shape {}",
                tuple(shape)
            );
            return Err(input(format!("an array of {dtype}"), found, wanted));
        }
        Ok(Self {
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            bytes,
        })
    }

    /// Returns numpy's name of the element type.
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// Returns the size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the given range of the first dimension, sharing the same memory. The range is
    /// clamped to the array; an array without dimensions is returned whole.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        let Some((&first, rest)) = self.shape.split_first() else {
            return self.clone();
        };
        let rows = rows.start.min(first)..rows.end.min(first);
        let row_bytes = self.bytes.len().checked_div(first).unwrap_or(0);
        let bytes = self
            .bytes
            .slice(rows.start * row_bytes..rows.end * row_bytes);
        let shape = std::iter::once(rows.len())
            .chain(rest.iter().copied())
            .collect();
        Self {
            dtype: self.dtype.clone(),
            shape,
            bytes,
        }
    }

    /// Returns the elements, little endian and row-major.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the elements, little endian and row-major, in the same memory.
    pub fn shared(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl PyObject {
    /// Returns the value of a `dict`'s key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(members) = self else {
            return None;
        };
        members
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// Returns `str(type(value))`.
    pub(super) fn class(&self) -> String {
        format!("<class '{}'>", self.type_name())
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Map(_) => "dict",
            Self::Array(_) => "numpy.ndarray",
        }
    }

    /// Returns `len(value)`, or Python's `TypeError`.
    pub(super) fn len(&self) -> Result<usize, Refusal> {
        match self {
            Self::Text(text) => Ok(text.chars().count()),
            Self::Bytes(bytes) => Ok(bytes.len()),
            Self::List(items) | Self::Tuple(items) => Ok(items.len()),
            Self::Map(members) => Ok(members.len()),
            Self::Array(array) => array
                .shape
                .first()
                .copied()
                .ok_or_else(|| Refusal::new("len() of unsized object")),
            _ => Err(Refusal::new(format!(
                "object of type '{}' has no len()",
                self.type_name()
            ))),
        }
    }

    /// Returns `repr(value)`, with two exceptions: for arrays only type and shape, and for a long
    /// value only its beginning.
    pub(super) fn repr(&self) -> String {
        let mut text = String::new();
        self.write_repr(&mut text);
        if text.len() > LONGEST_REPR {
            let end = text.floor_char_boundary(LONGEST_REPR);
            text.truncate(end);
            text.push('…');
        }
        text
    }

    /// Writes the representation and stops at some point after [`LONGEST_REPR`] bytes.
    fn write_repr(&self, out: &mut String) {
        match self {
            Self::None => out.push_str("None"),
            Self::Bool(true) => out.push_str("True"),
            Self::Bool(false) => out.push_str("False"),
            Self::Int(number) => out.push_str(&number.to_string()),
            Self::Float(number) => out.push_str(&format!("{number:?}")),
            Self::Text(text) => out.push_str(&quoted(text)),
            Self::Bytes(bytes) => {
                out.push_str(&format!(
                    "b'{}'",
                    bytes[..bytes.len().min(LONGEST_REPR)].escape_ascii()
                ));
            }
            Self::List(items) => {
                write_items(out, ["[", "]"], items, |item, out| item.write_repr(out))
            }
            Self::Tuple(items) => {
                let end = if items.len() == 1 { ",)" } else { ")" };
                write_items(out, ["(", end], items, |item, out| item.write_repr(out));
            }
            Self::Map(members) => write_items(out, ["{", "}"], members, |(key, value), out| {
                out.push_str(&format!("{}: ", quoted(key)));
                value.write_repr(out);
            }),
            Self::Array(array) => {
                out.push_str(&format!(
                    "array(shape={}, dtype={})",
                    tuple(&array.shape),
                    array.dtype
                ));
            }
        }
    }
}

fn write_items<T>(
    out: &mut String,
    [start, end]: [&str; 2],
    items: &[T],
    write: impl Fn(&T, &mut String),
) {
    out.push_str(start);
    for (index, item) in items.iter().enumerate() {
        if out.len() > LONGEST_REPR {
            return;
        }
        out.push_str(if index > 0 { ", " } else { "" });
        write(item, out);
    }
    out.push_str(end);
}

/// Returns `str` of a tuple of numbers.
pub(super) fn tuple(numbers: &[usize]) -> String {
    match numbers {
        [only] => format!("({only},)"),
        _ => format!(
            "({})",
            numbers
                .iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let escape = |letter: char| match letter {
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        '\r' => "\\r".to_owned(),
        '\\' => "\\\\".to_owned(),
        _ if letter == quote => format!("\\{letter}"),
        _ => letter.to_string(),
    };
    format!(
        "{quote}{}{quote}",
        text.chars()
            .take(LONGEST_REPR)
            .map(escape)
            .collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_in_python() {
        let text = PyObject::List(vec![
            PyObject::Text("it's".to_owned()),
            PyObject::Tuple(vec![PyObject::Int(1)]),
            PyObject::Float(1.0),
            PyObject::Map(vec![("a".to_owned(), PyObject::None)]),
        ]);
        assert_eq!(text.repr(), r#"["it's", (1,), 1.0, {'a': None}]"#);
        assert_eq!(
            PyObject::Int(3).len().unwrap_err().to_string(),
            "object of type 'int' has no len()"
        );
    }

    #[test]
    fn a_value_of_a_whole_message_is_shown_by_its_beginning() {
        let bytes = PyObject::Bytes(vec![0; 1 << 20].into());
        let nested = (0..10).fold(bytes, |inner, _| PyObject::List(vec![inner.clone(), inner]));
        let repr = nested.repr();
        assert!(
            repr.starts_with("[[[") && repr.ends_with('…') && repr.len() < LONGEST_REPR + 4,
            "{}",
            repr.len()
        );
        let text = PyObject::Text("é".repeat(1 << 20)).repr();
        assert!(
            text.starts_with("'éé") && text.len() < LONGEST_REPR + 4,
            "{}",
            text.len()
        );
    }

    #[test]
    fn a_part_of_an_array_is_its_rows_in_the_same_memory() {
        let array = PyArray::new("uint8", 1, &[3, 2], vec![0, 1, 2, 3, 4, 5].into()).unwrap();
        let part = array.part(1..3);
        assert_eq!(
            (part.shape(), part.bytes()),
            (&[2, 2][..], &[2, 3, 4, 5][..])
        );
        assert!(
            array
                .bytes()
                .as_ptr_range()
                .contains(&part.bytes().as_ptr())
        );
        assert_eq!(array.part(2..9).shape(), [1, 2]);
        let empty = PyArray::new("uint8", 1, &[0, 2], Vec::new().into()).unwrap();
        assert_eq!(empty.part(0..1), empty);
    }

    #[test]
    fn an_array_whose_shape_and_bytes_differ_is_refused() {
        assert!(PyArray::new("float32", 4, &[2, 3], vec![0; 24].into()).is_ok());
        assert!(PyArray::new("float32", 4, &[2, 3], vec![0; 23].into()).is_err());
        assert!(PyArray::new("float32", 4, &[usize::MAX, 3], vec![0; 8].into()).is_err());
    }
}
