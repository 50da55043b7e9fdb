//! The parts of a report, each computed from the merged journals.

pub(crate) mod counted;
pub(crate) mod coverage;
pub(crate) mod groups;
pub(crate) mod latency;
pub(crate) mod left_out;
pub(crate) mod per_job;
pub(crate) mod per_rank;
pub(crate) mod policies;
pub(crate) mod rates;
pub(crate) mod run;
pub(crate) mod variations;
