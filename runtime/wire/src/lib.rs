//! The message format of policy servers and their clients: msgpack with numpy arrays, in four
//! dialects.
//!
//! ```text
//! Bytes ─► read ─► Value ◄─ dialect: a map with certain keys is an array   (npy: a file in a map)
//! Value ─► write (Dialect) ─► bytes
//! ```
//! The bytes come from untrusted peers. Memory is never reserved for a length that the message
//! merely claims, nesting and the number of values are limited, objects that would have to be
//! unpickled are refused, and arrays are slices of the message. These four requirements, and errors
//! with the same text as the reference's ([`WireError::in_python`]), are the reasons for our own
//! reader: existing msgpack crates copy the data and have their own error messages.

mod array;
mod dialect;
mod error;
mod npy;
mod peek;
mod read;
mod value;
mod vla_eval;
mod write;
pub mod zmtp;

#[cfg(test)]
mod tests;

pub use array::{Array, Dtype, Sort};
pub use dialect::Dialect;
pub use error::WireError;
pub use peek::peek_text;
pub use read::{DecodedMessage, read};
pub use value::{Key, Value};
pub use vla_eval::{VLA_EVAL_VERSION, VlaEvalError, VlaEvalKind, VlaEvalMessage};
pub use write::write;
