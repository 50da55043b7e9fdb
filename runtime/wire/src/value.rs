//! The values in a message.

use bytes::Bytes;

use crate::Array;

/// A msgpack value or a numpy array. A numpy scalar is a number, and a value of an extension type
/// is nil.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nil: Python's `None`.
    Nil,
    /// A boolean: Python's `bool`.
    Bool(bool),
    /// An integer that fits into `i64`: Python's `int`.
    Int(i64),
    /// An integer above [`i64::MAX`].
    Large(u64),
    /// A floating-point number: Python's `float`.
    Float(f64),
    /// A string: Python's `str`.
    Text(String),
    /// Binary data, a slice of the message: Python's `bytes`.
    Bytes(Bytes),
    /// A list: Python's `list`.
    List(Vec<Value>),
    /// A map, in order; of two equal keys, the later one counts. Python's `dict`.
    Map(Vec<(Key, Value)>),
    /// A numpy array: `numpy.ndarray`.
    Array(Array),
}

/// A key of a map; msgpack-python accepts no other types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A string key: Python's `str`.
    Text(String),
    /// A key of binary data: Python's `bytes`.
    Bytes(Bytes),
}

impl Value {
    /// Creates a map with string keys.
    pub fn map<const N: usize>(members: [(&str, Self); N]) -> Self {
        let members = members.into_iter();
        Self::Map(members.map(|(key, value)| (key.into(), value)).collect())
    }

    /// Returns the value of a string key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(members) = self else {
            return None;
        };
        let mut last_first = members.iter().rev();
        let found = last_first.find(|(name, _)| name.is(key));
        found.map(|(_, value)| value)
    }

    /// Returns the string, if the value is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer, if the value is one that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            Self::Large(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the number, if the value is one or a boolean.
    pub fn as_f32(&self) -> Option<f32> {
        match self {
            Self::Int(number) => Some(*number as f32),
            Self::Large(number) => Some(*number as f32),
            Self::Float(number) => Some(*number as f32),
            Self::Bool(flag) => Some(f32::from(u8::from(*flag))),
            _ => None,
        }
    }

    /// Returns the array, if the value is one.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Returns the list, if the value is one.
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns Python's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Large(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "dict",
            Self::Array(_) => "numpy.ndarray",
        }
    }
}

impl Key {
    /// Returns whether the value is this string.
    pub fn is(&self, text: &str) -> bool {
        matches!(self, Self::Text(key) if key == text)
    }

    /// Returns the value as Python shows it inside a `dict`, but strings without quotes.
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => format!("b'{}'", bytes.escape_ascii()),
        }
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Large(number), Self::Int)
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::List(items)
    }
}

/// Converts JSON to the corresponding msgpack values.
impl From<&serde_json::Value> for Value {
    fn from(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::Nil,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(small), _) => Self::Int(small),
                (None, Some(large)) => Self::Large(large),
                (None, None) => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(text.clone()),
            Json::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Json::Object(members) => {
                let members = members.iter();
                Self::Map(
                    members
                        .map(|(key, value)| (key.as_str().into(), value.into()))
                        .collect(),
                )
            }
        }
    }
}
