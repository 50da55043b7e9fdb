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

use crate::write::MsgpackEncoder;
use crate::{Array, Dtype, Key, Value, WireError, npy};

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

/// Returns the array that these map entries represent, if they represent one.
pub(super) fn recognise(members: &[(Key, Value)]) -> Result<Option<(Dialect, Value)>, WireError> {
    let map = Members {
        members,
        has_text_keys: false,
    };
    let found = if let Some(nd) = map.bytes("nd") {
        let is_array = *nd == Value::Bool(true);
        (
            Dialect::Kind,
            if is_array {
                map.kind()?
            } else {
                map.kind_scalar()?
            },
        )
    } else if map.bytes("__ndarray__").is_some() {
        (Dialect::Openpi, map.array()?)
    } else if map.bytes("__npgeneric__").is_some() {
        (Dialect::Openpi, map.openpi_scalar()?)
    } else if map.text("__ndarray__").is_some() {
        let map = Members {
            has_text_keys: true,
            ..map
        };
        (Dialect::VlaEval, map.array()?)
    } else if map.text("__ndarray_class__").is_some() {
        (Dialect::Npy, map.npy()?)
    } else {
        return Ok(None);
    };
    Ok(Some(found))
}

struct Members<'a> {
    members: &'a [(Key, Value)],
    /// Whether the properties of the array have string keys, not binary ones.
    has_text_keys: bool,
}

impl<'a> Members<'a> {
    fn bytes(&self, name: &str) -> Option<&'a Value> {
        let is_it = |key: &Key| matches!(key, Key::Bytes(bytes) if bytes == name.as_bytes());
        self.members
            .iter()
            .rev()
            .find(|(key, _)| is_it(key))
            .map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> Option<&'a Value> {
        self.members
            .iter()
            .rev()
            .find(|(key, _)| key.is(name))
            .map(|(_, value)| value)
    }

    /// Returns a property of the array.
    fn property(&self, name: &str) -> Option<&'a Value> {
        if self.has_text_keys {
            self.text(name)
        } else {
            self.bytes(name)
        }
    }

    fn kind(&self) -> Result<Value, WireError> {
        match self.bytes("kind") {
            Some(Value::Bytes(kind)) if kind == "O" => return Err(WireError::Object),
            Some(Value::Bytes(_)) => {}
            _ => return Err(WireError::Field { field: "kind" }),
        }
        let array = Array::new(self.dtype("type")?, self.shape()?, self.data()?)?;
        Ok(Value::Array(array))
    }

    fn kind_scalar(&self) -> Result<Value, WireError> {
        Ok(Value::Scalar(Array::new(
            self.dtype("type")?,
            Vec::new(),
            self.data()?,
        )?))
    }

    fn array(&self) -> Result<Value, WireError> {
        Ok(Value::Array(Array::new(
            self.dtype("dtype")?,
            self.shape()?,
            self.data()?,
        )?))
    }

    /// Reads a single number. Its type is checked but not kept, because it is not needed.
    fn openpi_scalar(&self) -> Result<Value, WireError> {
        self.dtype("dtype")?;
        match self.bytes("data") {
            Some(number @ (Value::Bool(_) | Value::Int(_) | Value::Large(_) | Value::Float(_))) => {
                Ok(number.clone())
            }
            _ => Err(WireError::Field { field: "data" }),
        }
    }

    fn npy(&self) -> Result<Value, WireError> {
        match self.text("as_npy") {
            Some(Value::Bytes(file)) => Ok(Value::Array(npy::read(file)?)),
            _ => Err(WireError::Field { field: "as_npy" }),
        }
    }

    fn dtype(&self, field: &'static str) -> Result<Dtype, WireError> {
        match self.property(field) {
            Some(Value::Text(descr)) => Dtype::new(descr),
            Some(Value::Bytes(descr)) => Dtype::new(&String::from_utf8_lossy(descr)),
            _ => Err(WireError::Field { field }),
        }
    }

    fn shape(&self) -> Result<Vec<usize>, WireError> {
        let wrong = || WireError::Field { field: "shape" };
        let Some(Value::List(edges)) = self.property("shape") else {
            return Err(wrong());
        };
        if edges.len() > npy::MOST_EDGES {
            return Err(wrong());
        }
        let edge = |value: &Value| {
            value
                .as_u64()
                .and_then(|edge| usize::try_from(edge).ok())
                .ok_or_else(wrong)
        };
        edges.iter().map(edge).collect()
    }

    fn data(&self) -> Result<Bytes, WireError> {
        match self.property("data") {
            Some(Value::Bytes(data)) => Ok(data.clone()),
            _ => Err(WireError::Field { field: "data" }),
        }
    }
}

pub(super) fn write_array(to: &mut MsgpackEncoder, dialect: Dialect, array: &Array) {
    let shape = Value::List(
        array
            .shape()
            .iter()
            .map(|edge| Value::from(*edge as u64))
            .collect(),
    );
    match dialect {
        Dialect::Npy => {
            to.map(2);
            to.text("__ndarray_class__");
            to.value(&Value::Bool(true));
            to.text("as_npy");
            let head = npy::head(array);
            to.bytes_head(head.len() + array.data().len());
            to.raw(&head);
            to.raw(array.data());
        }
        Dialect::Kind => {
            to.map(5);
            to.bytes(b"nd");
            to.value(&Value::Bool(true));
            to.bytes(b"type");
            to.text(array.dtype().descr());
            to.bytes(b"kind");
            to.bytes(b"");
            to.bytes(b"shape");
            to.value(&shape);
            to.bytes(b"data");
            to.bytes(array.data());
        }
        Dialect::Openpi => {
            to.map(4);
            to.bytes(b"__ndarray__");
            to.value(&Value::Bool(true));
            to.bytes(b"data");
            to.bytes(array.data());
            to.bytes(b"dtype");
            to.text(array.dtype().descr());
            to.bytes(b"shape");
            to.value(&shape);
        }
        Dialect::VlaEval => {
            to.map(4);
            to.text("__ndarray__");
            to.value(&Value::Bool(true));
            to.text("data");
            to.bytes(array.data());
            to.text("dtype");
            to.text(array.dtype().descr());
            to.text("shape");
            to.value(&shape);
        }
    }
}

pub(super) fn write_scalar(to: &mut MsgpackEncoder, dialect: Dialect, scalar: &Array) {
    match dialect {
        Dialect::Npy => write_array(to, dialect, scalar),
        Dialect::Kind => {
            to.map(3);
            to.bytes(b"nd");
            to.value(&Value::Bool(false));
            to.bytes(b"type");
            to.text(scalar.dtype().descr());
            to.bytes(b"data");
            to.bytes(scalar.data());
        }
        Dialect::Openpi => {
            to.map(3);
            to.bytes(b"__npgeneric__");
            to.value(&Value::Bool(true));
            to.bytes(b"data");
            to.value(&scalar.item());
            to.bytes(b"dtype");
            to.text(scalar.dtype().descr());
        }
        // The reference sends a plain number.
        Dialect::VlaEval => to.value(&scalar.item()),
    }
}
