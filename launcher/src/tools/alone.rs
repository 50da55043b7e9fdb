//! `rrun` as the child of a tool: on this node alone, whatever the environment says of others.
//!
//! A tool may be started in a step of SLURM or in a pod of an Indexed Job, or with torchrun's variables
//! set. A child that infers a launch of several nodes from them would wait for launchers that nobody
//! starts.

use std::ffi::OsString;
use std::io;
use std::process::Command;

/// Options with which a launch looks at no other node.
const ALONE: [&str; 5] = ["--standalone", "--slurm", "off", "--kubernetes", "off"];

/// Prefix of the variables that set defaults of the launcher's options.
const PET: &[u8] = b"PET_";

/// Returns the command of a launch of `ranks` ranks; what is to be launched is still missing.
pub(super) fn rrun(ranks: usize) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(ALONE);
    command.arg("--nproc-per-node").arg(ranks.to_string());
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(is_default_of_an_option) {
        command.env_remove(name);
    }
    Ok(command)
}

fn is_default_of_an_option(name: &OsString) -> bool {
    name.as_encoded_bytes().starts_with(PET)
}
