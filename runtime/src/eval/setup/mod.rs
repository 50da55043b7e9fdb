//! What is decided before a rank starts anything: all invalid input is refused here.
//!
//! ```text
//! rank ─► rank_setup ──► placement   which jobs and GPUs are this rank's; the device of the policy
//! ```

pub mod placement;
pub mod rank_setup;
