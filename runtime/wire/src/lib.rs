//! The message format of policy servers and their clients: msgpack with numpy arrays, in four
//! dialects.
//!
//! ```text
//! Bytes ─► read: tokens ─► Value ◄─ dialect: a map with certain keys is an array
//!            └─────► peek_text: one string                (npy: a file in a map)
//! Value ─► write (Dialect) ─► bytes
//! ```
//! The bytes come from untrusted peers. Memory is never reserved for a length that the message
//! merely claims, nesting and the number of values are limited, objects that would have to be
//! unpickled are refused, and arrays are slices of the message. These four requirements are the
//! reasons for our own reader: existing msgpack crates copy the data.

mod array;
mod dialect;
mod msgpack;
mod npy;
mod value;
mod vla_eval;
pub mod zmtp;

#[cfg(test)]
mod tests;

pub use array::{Array, Dtype};
pub use dialect::Dialect;
pub use msgpack::{DecodedMessage, peek_text, read, write};
pub use value::{Key, Value};
pub use vla_eval::{VLA_EVAL_VERSION, VlaEvalKind, VlaEvalMessage};
