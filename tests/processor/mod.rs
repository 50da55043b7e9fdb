//! Tests of the processor against the reference's results, for every case in `$RRUN_GOLDENS`
//! (default: the committed `tests/fixtures/gr00t`).

pub mod files;
mod images;
mod models;
mod numbers;
mod refusals;
mod texts;
mod validation;
