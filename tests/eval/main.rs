//! Tests of `rrun eval` as a command: arguments, output and files.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agent;
mod assignment;
mod certificate;
mod cheap;
mod command;
mod company;
mod console;
mod crash;
mod early_stop;
mod event_file;
mod experiment;
mod exported;
mod failed_rows;
mod files;
mod gr00t;
mod hangs;
mod identity;
mod latency;
mod left_out;
mod lerobot_policy;
mod memory;
mod one_writer;
mod placement;
mod python;
mod python_policy;
mod quick;
mod refusals;
mod remote;
mod remote_tls;
mod remote_xpolicylab;
mod results;
mod resume;
mod signals;
mod simulators;
mod tools;
mod tracking;
mod under_others;
mod unwritten;
mod variations;
mod vla_eval;
mod watch;
