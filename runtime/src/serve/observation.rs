//! Values of a message as the processor takes them: arrays stay where they are.

use crate::policy::gr00t::processor::{Array, Object};
use crate::wire::Value;

/// A value in Python's words; arrays share the memory of the message.
pub fn object(value: &Value) -> Object {
    match value {
        Value::Nil | Value::Ext(..) => Object::None,
        Value::Bool(flag) => Object::Bool(*flag),
        Value::Int(number) => Object::Int(*number),
        Value::Large(number) => Object::Int(i64::try_from(*number).unwrap_or(i64::MAX)),
        Value::Float(number) => Object::Float(*number),
        Value::Text(text) => Object::Text(text.clone()),
        Value::Bytes(bytes) => Object::Bytes(bytes.clone()),
        Value::List(items) => Object::List(items.iter().map(object).collect()),
        Value::Map(members) => Object::Map(members.iter().map(|(key, value)| (key.shown(), object(value))).collect()),
        Value::Array(array) | Value::Scalar(array) => self::array(array, array.shape()),
    }
}

/// An array with other edges around the same numbers.
pub fn array(array: &crate::wire::Array, shape: &[usize]) -> Object {
    let dtype = array.dtype();
    // An array of the wire has as many bytes as its shape says, and so has one of the same number of numbers.
    Array::new(&dtype.name(), dtype.size(), shape, array.data().clone()).map_or(Object::None, Object::Array)
}
