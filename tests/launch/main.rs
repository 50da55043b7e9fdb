//! `rrun` from the outside: what a user types, what the ranks see, and what is there afterwards.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod argv;
mod command;
mod crowd;
mod deploy;
mod dry_run;
mod ended;
mod environment;
mod events;
mod failures;
mod isolation;
mod leftovers;
mod logs;
mod model_server;
mod ports;
mod restarts;
mod running;
mod says;
mod signals;
mod torch;
mod usage;
