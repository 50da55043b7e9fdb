//! What policy servers and their clients say to each other: msgpack with numpy arrays in it, in three dialects.
//!
//! ```text
//! Bytes ─► read ─► Value ◄─ dialect: a map with certain keys is an array        (npy: a file in a map)
//! Value ─► write (Dialect) ─► bytes
//! ```
//! The bytes come from strangers. Nothing is reserved for what a length only promises, nesting and the number of values
//! have limits, objects that would have to be unpickled are refused, and arrays are slices of the message. The reader is
//! our own because of these four, and because a refusal has to have the words of the reference
//! ([`WireError::in_python`]): crates that read msgpack copy what they read, and speak their own.

mod array;
mod dialect;
mod error;
mod npy;
mod peek;
mod read;
mod value;
mod write;
pub mod zmtp;

#[cfg(test)]
mod tests;

pub use array::{Array, Dtype, Sort};
pub use dialect::Dialect;
pub use error::WireError;
pub use peek::peek_text;
pub use read::{Message, read};
pub use value::{Key, Value};
pub use write::write;
