//! Values as a Python client sends them, and what Python calls them: error texts are the reference's.

use bytes::Bytes;

use super::ProcessorError;

/// A value as a Python client sends it.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// `None`.
    None,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `float`.
    Float(f64),
    /// `str`.
    Text(String),
    /// `bytes`.
    Bytes(Bytes),
    /// `list`.
    List(Vec<Object>),
    /// `tuple`.
    Tuple(Vec<Object>),
    /// `dict` with string keys, in order.
    Map(Vec<(String, Object)>),
    /// `numpy.ndarray`.
    Array(Array),
}

/// A numpy array: little endian, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    dtype: String,
    shape: Vec<usize>,
    bytes: Bytes,
}

impl Array {
    /// An array of numpy's `dtype` (`uint8`, `float32`, …), `item_size` bytes each.
    ///
    /// # Errors
    /// [`ProcessorError::Input`] if shape and bytes contradict each other.
    pub fn new(dtype: &str, item_size: usize, shape: &[usize], bytes: Bytes) -> Result<Self, ProcessorError> {
        let wanted = shape.iter().try_fold(item_size, |size, edge| size.checked_mul(*edge));
        if wanted != Some(bytes.len()) {
            let found = format!("{} bytes", bytes.len());
            let wanted = format!("{item_size} a number for the shape {} are needed", tuple(shape));
            return Err(ProcessorError::input(format!("an array of {dtype}"), found, wanted));
        }
        Ok(Self { dtype: dtype.to_owned(), shape: shape.to_vec(), bytes })
    }

    /// numpy's name of the type.
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// Edges.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Little endian, row-major.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Object {
    /// The value of a `dict`'s key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(members) = self else { return None };
        members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// `str(type(value))`.
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

    /// `len(value)`, or the text of Python's `TypeError`.
    pub(super) fn len(&self) -> Result<usize, String> {
        match self {
            Self::Text(text) => Ok(text.chars().count()),
            Self::Bytes(bytes) => Ok(bytes.len()),
            Self::List(items) | Self::Tuple(items) => Ok(items.len()),
            Self::Map(members) => Ok(members.len()),
            Self::Array(array) => array.shape.first().copied().ok_or_else(|| "len() of unsized object".to_owned()),
            _ => Err(format!("object of type '{}' has no len()", self.type_name())),
        }
    }

    /// `repr(value)`, but for arrays, of which only type and shape are shown.
    pub(super) fn repr(&self) -> String {
        let list = |items: &[Self]| items.iter().map(Self::repr).collect::<Vec<_>>().join(", ");
        match self {
            Self::None => "None".to_owned(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => format!("{number:?}"),
            Self::Text(text) => quoted(text),
            Self::Bytes(bytes) => format!("b'{}'", bytes.escape_ascii()),
            Self::List(items) => format!("[{}]", list(items)),
            Self::Tuple(items) if items.len() == 1 => format!("({},)", list(items)),
            Self::Tuple(items) => format!("({})", list(items)),
            Self::Map(members) => {
                let members = members.iter().map(|(key, value)| format!("{}: {}", quoted(key), value.repr()));
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
            Self::Array(array) => format!("array(shape={}, dtype={})", tuple(&array.shape), array.dtype),
        }
    }
}

/// `str` of a tuple of numbers.
pub(super) fn tuple(numbers: &[usize]) -> String {
    match numbers {
        [only] => format!("({only},)"),
        _ => format!("({})", numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let escape = |letter: char| match letter {
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        '\r' => "\\r".to_owned(),
        '\\' => "\\\\".to_owned(),
        _ if letter == quote => format!("\\{letter}"),
        _ => letter.to_string(),
    };
    format!("{quote}{}{quote}", text.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_in_python() {
        let text = Object::List(vec![
            Object::Text("it's".to_owned()),
            Object::Tuple(vec![Object::Int(1)]),
            Object::Float(1.0),
            Object::Map(vec![("a".to_owned(), Object::None)]),
        ]);
        assert_eq!(text.repr(), r#"["it's", (1,), 1.0, {'a': None}]"#);
        assert_eq!(Object::Int(3).len().unwrap_err(), "object of type 'int' has no len()");
    }

    #[test]
    fn an_array_whose_shape_and_bytes_differ_is_refused() {
        assert!(Array::new("float32", 4, &[2, 3], vec![0; 24].into()).is_ok());
        assert!(Array::new("float32", 4, &[2, 3], vec![0; 23].into()).is_err());
        assert!(Array::new("float32", 4, &[usize::MAX, 3], vec![0; 8].into()).is_err());
    }
}
