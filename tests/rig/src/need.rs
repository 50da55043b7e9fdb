//! What a machine may lack. A test that needs it begins with
//! ```text
//! if !need(Need::Python("h5py")) {
//!     return;
//! }
//! ```
//! `RRUN_ALL=1` makes it a failure if something is missing that `./setup.sh test` installs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::PYTHON;

/// Fails, and says how many nodes can be used, unless SLURM has two.
const TWO_NODES: &str = "
nodes=$(sinfo -h -N -o %N -t idle,mixed | sort -u | wc -l)
[ $nodes -ge 2 ] || { echo $nodes usable nodes, two are needed; exit 1; }";

/// Something that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The rights to mount file systems; `RRUN_ALL` does not ask for them.
    Root,
    /// Network, host-name, PID and mount namespaces; `RRUN_ALL` does not ask for them.
    Netns,
    /// PyTorch in the checkout's `.venv`.
    Torch,
    /// Modules in the checkout's `.venv`, separated by commas.
    Python(&'static str),
    /// A driver that draws the pictures of a simulator.
    Egl,
    /// A SLURM cluster with two usable nodes; `RRUN_ALL` does not ask for it.
    Slurm,
    /// An NVIDIA GPU; `RRUN_ALL` does not ask for it.
    Card,
}

/// Returns whether this machine has something; prints why not.
///
/// # Panics
///
/// If `RRUN_ALL` is set and it is missing although `./setup.sh test` installs it.
#[track_caller]
#[must_use]
pub fn need(what: Need) -> bool {
    static KNOWN: Mutex<BTreeMap<Need, Option<String>>> = Mutex::new(BTreeMap::new());
    let lack = {
        let mut known = KNOWN.lock().unwrap_or_else(|err| err.into_inner());
        let lack = known.entry(what).or_insert_with(|| lack(what));
        lack.clone()
    };
    let Some(reason) = lack else { return true };
    match what {
        Need::Torch | Need::Python(_) | Need::Egl => lacks(&format!("{what:?}"), reason),
        _ => eprintln!("skipped, {what:?} is missing: {reason}"),
    }
    false
}

/// Says that a machine lacks something which a test has looked for itself.
///
/// # Panics
///
/// If `RRUN_ALL` is set.
#[track_caller]
pub fn lacks(what: &str, reason: impl Display) {
    let is_asked = std::env::var_os("RRUN_ALL").is_some();
    assert!(!is_asked, "{what} is missing: {reason}");
    eprintln!("skipped, {what} is missing: {reason}");
}

/// Returns why something is not there.
fn lack(what: Need) -> Option<String> {
    match what {
        Need::Root => {
            let is_root = rustix::process::geteuid().is_root();
            (!is_root).then(|| "this user is not root".to_owned())
        }
        Need::Netns => fails(
            "unshare",
            &[
                "--net", "--uts", "--mount", "--pid", "--fork", "ip", "link", "add", "type", "veth",
            ],
        ),
        Need::Torch => fails(PYTHON, &["-c", "import torch"]),
        Need::Python(modules) => fails(PYTHON, &["-c", &format!("import {modules}")]),
        Need::Egl => fails(crate::rrun_rank(), &["probe", "egl"]),
        Need::Slurm => fails("/bin/sh", &["-c", TWO_NODES]),
        Need::Card => fails("nvidia-smi", &["-L"]),
    }
}

/// Returns why a command fails, if it does.
fn fails(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let last = String::from_utf8_lossy(&said).trim().to_owned();
            Some(format!("{program} {words:?}: {last}"))
        }
        Err(err) => Some(format!("{program}: {err}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_gives_its_reason() {
        assert_eq!(fails("/bin/true", &[]), None);
        let reason = fails("/bin/sh", &["-c", "echo no cable >&2; exit 1"]).unwrap();
        assert!(reason.ends_with("no cable"), "{reason}");
        assert!(fails("/bin/nobody", &[]).unwrap().contains("No such file"));
    }
}
