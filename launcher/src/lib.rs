//! `rrun`: a torchrun-compatible rank launcher. Links no libtorch and starts in milliseconds.
//!
//! ```text
//! main ─► tools ─► installed                           the files of a run, the demo
//!   ├───► cli                                         words and PET_* become options
//!   ├───► generated ─► tools  cli                     completions and man pages
//!   ├───► plan ─► cluster                              options become a plan, or a refusal
//!   ├───► plan::missing                               files and modules that the jobs name
//!   ├───► dry_run                                     --dry-run: the plan as tables
//!   ├───► agent ─┬─► rendezvous ─► tcpstore           the plan is carried out
//!   │            ├─► model_server  front  page  logs  round
//!   │            ├─► events  failure
//!   │            └─► group (pure)
//!   └───► verdict                                     exit codes, the report if it ended early
//! ```
//! All of them read the types of [`plan`], which are data. [`process`], [`signals`], [`supervision`],
//! [`rank_id`], [`say`], `if_any` and `template` serve all of them. Imports between files form no
//! circle.

pub mod agent;
pub mod cli;
pub mod cluster;
pub mod dry_run;
pub mod events;
pub mod failure;
pub mod front;
pub mod generated;
pub mod hang;
mod if_any;
pub mod installed;
pub mod logs;
pub mod model_server;
pub mod node;
pub mod numa;
pub mod page;
pub mod plan;
pub mod process;
pub mod rank_id;
pub mod rendezvous;
pub mod round;
pub mod say;
pub mod signals;
pub mod supervision;
mod template;
pub mod tools;
pub mod verdict;

#[cfg(test)]
mod tests;
