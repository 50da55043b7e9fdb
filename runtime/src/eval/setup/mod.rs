//! What is decided before a rank starts anything: all invalid input is refused here.
//!
//! ```text
//! rank ─► rank_setup ─┬─► placement   which jobs and GPUs are this rank's
//!           │         └─► device      the device of the policy, its memory limit
//!           ▼
//!         launch      the name of the launch, and the lock on its run folder
//! ```

mod device;
pub mod launch;
pub mod placement;
pub mod rank_setup;
