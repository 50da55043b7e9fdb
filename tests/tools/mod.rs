//! Tests of the command-line tools on the files of a run.

mod alone;
mod certificate;
mod compare;
mod doctor;
mod dry_run;
mod elsewhere;
mod fit;
#[allow(dead_code, reason = "each file of tests takes what it needs")]
mod folder;
mod foreign;
mod list;
mod merge;
mod policies;
mod report;
mod suite;
mod top;
mod under_way;
mod verify;
