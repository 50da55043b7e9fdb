//! Log files of the ranks, and their lines on the console.
//!
//! ```text
//! <log dir>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log, stderr.log, error.json}
//!                              /attempt_<n>/{filtered_stdout.log, filtered_stderr.log}
//!
//! rank ──writes──► stdout.log ──every 50 ms──► tail ──whole lines, prefixed──► console,
//!                                                                              filtered_stdout.log
//! ```
//! A captured rank writes into its file itself, as under torchrun, and the launcher follows the
//! file. This has four advantages over a pipe: a rank never waits for a slow console; nothing is
//! lost when the launcher is killed; a descendant that lives on keeps a working stdout; and a
//! stream ends with its file, not when the last holder of a pipe closes it.

pub mod attempt;
pub mod lines;
pub mod tail;
