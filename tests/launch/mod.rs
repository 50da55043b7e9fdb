//! Tests of `rrun` as a command: arguments, the environment of the ranks, output and files.

mod argv;
mod command;
mod crowd;
mod deploy;
mod dry_run;
mod ended;
mod environment;
mod events;
mod failures;
mod hang;
mod help;
mod isolation;
mod leftovers;
mod logs;
mod model_server;
mod ports;
mod restarts;
mod running;
mod says;
mod signals;
mod timers;
mod torch;
mod usage;
