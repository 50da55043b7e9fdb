//! The parts of a report, each computed from the merged journals.

pub(crate) mod coverage;
pub(crate) mod latency;
pub(crate) mod left_out;
pub(crate) mod per_job;
pub(crate) mod rates;
pub(crate) mod run;
pub(crate) mod variations;
