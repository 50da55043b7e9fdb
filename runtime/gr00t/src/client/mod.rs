//! Observations as the clients of a policy server send them: values of Python, checked as the
//! reference checks them, and split into rows for the processor.
//!
//! ```text
//! message ─► PyObject ─► validate ─► ClientObservations ─► RowInputs, one for each row
//! ```

mod observation;
mod value;

pub use observation::{ClientObservations, validate, validate_flat};
pub use value::{PyArray, PyObject};
