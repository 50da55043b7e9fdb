//! The msgpack maps that represent arrays, in each dialect. `Npy` and `Kind` are GR00T's.
//!
//! ```text
//! Npy     {"__ndarray_class__": true, "as_npy": <npy file>}                         to 2026-05-06
//! Kind    {b"nd": true, b"type": "<f4", b"kind": b"", b"shape": [2, 3], b"data": …} since then
//!         {b"nd": false, b"type": "<f4", b"data": …}                                one number
//! Openpi  {b"__ndarray__": true, b"data": …, b"dtype": "<f4", b"shape": [2, 3]}     openpi-client
//!         {b"__npgeneric__": true, b"data": 1.5, b"dtype": "<f4"}                   one number
//! VlaEval {"__ndarray__": true, "data": b…, "dtype": "<f4", "shape": [2, 3]}        vla-eval
//! ```

use bytes::Bytes;

use crate::{Array, Dtype, Key, Value, npy};

/// The representation of arrays in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// GR00T N1.6, and N1.7 until 2026-05-06: npy files.
    Npy,
    /// GR00T N1.7 since 2026-05-07: maps with binary keys.
    Kind,
    /// openpi: `openpi_client.msgpack_numpy`.
    Openpi,
    /// vla-eval: `vla_eval.protocol.numpy_codec`.
    VlaEval,
}

impl Dialect {
    /// Returns the key that marks a map as a modality configuration of GR00T.
    pub fn modality_marker(self) -> &'static str {
        match self {
            Self::Npy => "__ModalityConfig_class__",
            Self::Kind | Self::Openpi | Self::VlaEval => "__ModalityConfig__",
        }
    }
}

/// Returns the array or the number that these map entries represent, if they represent one.
pub(super) fn recognise(members: &[(Key, Value)]) -> Result<Option<(Dialect, Value)>, String> {
    let [bytes, text] = [false, true].map(|has_text_keys| Members {
        members,
        has_text_keys,
    });
    let found = if let Some(nd) = bytes.get("nd") {
        let value = match nd {
            Value::Bool(true) => bytes.kind()?,
            _ => Array::new(bytes.dtype("type")?, Vec::new(), bytes.data()?)?.first(),
        };
        (Dialect::Kind, value)
    } else if bytes.get("__ndarray__").is_some() {
        (Dialect::Openpi, bytes.array("dtype")?)
    } else if bytes.get("__npgeneric__").is_some() {
        (Dialect::Openpi, bytes.openpi_scalar()?)
    } else if text.get("__ndarray__").is_some() {
        (Dialect::VlaEval, text.array("dtype")?)
    } else if text.get("__ndarray_class__").is_some() {
        let Some(Value::Bytes(file)) = text.get("as_npy") else {
            return Err(wrong("as_npy"));
        };
        (Dialect::Npy, Value::Array(npy::read(file)?))
    } else {
        return Ok(None);
    };
    Ok(Some(found))
}

/// The reason why the map of an array cannot be read.
fn wrong(field: &str) -> String {
    format!("an array's `{field}` is missing or of a wrong type")
}

struct Members<'a> {
    members: &'a [(Key, Value)],
    /// Whether the properties of the array have string keys, not binary ones.
    has_text_keys: bool,
}

impl<'a> Members<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        let is_it = |key: &Key| match key {
            Key::Text(text) => self.has_text_keys && text == name,
            Key::Bytes(bytes) => !self.has_text_keys && bytes == name.as_bytes(),
        };
        let mut members = self.members.iter().rev();
        members.find(|(key, _)| is_it(key)).map(|(_, value)| value)
    }

    fn kind(&self) -> Result<Value, String> {
        match self.get("kind") {
            Some(Value::Bytes(kind)) if kind == "O" => Err(Dtype::objects()),
            Some(Value::Bytes(_)) => self.array("type"),
            _ => Err(wrong("kind")),
        }
    }

    fn array(&self, dtype: &str) -> Result<Value, String> {
        let array = Array::new(self.dtype(dtype)?, self.shape()?, self.data()?)?;
        Ok(Value::Array(array))
    }

    /// Reads a single number. Its type is checked but not kept, because it is not needed.
    fn openpi_scalar(&self) -> Result<Value, String> {
        self.dtype("dtype")?;
        match self.get("data") {
            Some(number @ (Value::Bool(_) | Value::Int(_) | Value::Large(_) | Value::Float(_))) => {
                Ok(number.clone())
            }
            _ => Err(wrong("data")),
        }
    }

    fn dtype(&self, field: &str) -> Result<Dtype, String> {
        match self.get(field) {
            Some(Value::Text(descr)) => Dtype::new(descr),
            Some(Value::Bytes(descr)) => Dtype::new(&String::from_utf8_lossy(descr)),
            _ => Err(wrong(field)),
        }
    }

    fn shape(&self) -> Result<Vec<usize>, String> {
        let Some(Value::List(edges)) = self.get("shape") else {
            return Err(wrong("shape"));
        };
        let edge = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let shape: Option<Vec<usize>> = edges.iter().map(edge).collect();
        shape
            .filter(|shape| shape.len() <= npy::MOST_EDGES)
            .ok_or_else(|| wrong("shape"))
    }

    fn data(&self) -> Result<Bytes, String> {
        match self.get("data") {
            Some(Value::Bytes(data)) => Ok(data.clone()),
            _ => Err(wrong("data")),
        }
    }
}

/// Returns the map that represents an array.
pub(super) fn map_of(array: &Array, dialect: Dialect) -> Value {
    let edges = array.shape().iter().map(|edge| Value::from(*edge as u64));
    let shape = Value::List(edges.collect());
    let descr = Value::from(array.dtype().descr());
    let data = Value::Bytes(array.data().clone());
    let members = match dialect {
        Dialect::Npy => vec![
            ("__ndarray_class__", true.into()),
            ("as_npy", Value::Bytes(npy::write(array))),
        ],
        Dialect::Kind => vec![
            ("nd", true.into()),
            ("type", descr),
            ("kind", Value::Bytes(Bytes::new())),
            ("shape", shape),
            ("data", data),
        ],
        Dialect::Openpi | Dialect::VlaEval => vec![
            ("__ndarray__", true.into()),
            ("data", data),
            ("dtype", descr),
            ("shape", shape),
        ],
    };
    let key = |name: &'static str| match dialect {
        Dialect::Npy | Dialect::VlaEval => Key::from(name),
        Dialect::Kind | Dialect::Openpi => Key::Bytes(Bytes::from_static(name.as_bytes())),
    };
    let members = members.into_iter();
    Value::Map(members.map(|(name, value)| (key(name), value)).collect())
}
