//! The command of one rank in the form that `exec` takes: program, arguments, environment, streams
//! and CPUs. The environment has layers: the launcher's own, what the launch sets for all ranks,
//! and what each rank has for itself.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use nix::sched::CpuSet;

use crate::node::FileLimit;
use crate::numa::CpuList;
use crate::plan::RankPlan;

/// The files that become a rank's two output streams; `None` inherits the launcher's. Standard
/// input is always inherited.
#[derive(Debug, Default)]
pub struct ChildOutput {
    /// Destination of standard output.
    pub stdout: Option<File>,
    /// Destination of standard error.
    pub stderr: Option<File>,
}

/// The command of one rank, ready to be started.
#[derive(Debug)]
pub struct ChildCommand {
    /// The program and its arguments. The program is looked up in the `PATH` of `env`, as `execvpe`
    /// does.
    pub argv: Vec<CString>,
    /// The environment as `NAME=value` entries, each name once.
    pub env: Vec<CString>,
    /// Where it writes to.
    pub output: ChildOutput,
    /// The CPUs that the rank may use; `None` inherits the launcher's.
    pub cpus: Option<CpuSet>,
    /// The limits on open files; `None` inherits the launcher's.
    pub open_files: Option<FileLimit>,
    /// The working directory; `None` inherits the launcher's.
    pub folder: Option<CString>,
}

impl ChildCommand {
    /// Returns the command of `rank`. `env` overrides the `common` environment, and the rank's own
    /// variables override both.
    pub fn new(
        rank: &RankPlan,
        common: &ChildEnvironment,
        env: &BTreeMap<String, String>,
        output: ChildOutput,
    ) -> io::Result<ChildCommand> {
        let env = common.with(&[env, &rank.env])?;
        Ok(ChildCommand {
            cpus: rank.cpus.as_ref().map(set),
            ..ChildCommand::of(&rank.argv, None, env, output)?
        })
    }

    /// Returns the command of a process that is not a rank, with this environment.
    pub fn of(
        argv: &[OsString],
        folder: Option<&Path>,
        env: Vec<CString>,
        output: ChildOutput,
    ) -> io::Result<ChildCommand> {
        let word = |word: &OsString| CString::new(word.as_bytes());
        let folder = folder.map(|folder| CString::new(folder.as_os_str().as_bytes()));
        Ok(ChildCommand {
            argv: argv.iter().map(word).collect::<Result<_, _>>()?,
            env,
            output,
            cpus: None,
            open_files: None,
            folder: folder.transpose()?,
        })
    }
}

/// Returns the set of these CPUs, without those that the kernel does not know.
fn set(cpus: &CpuList) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in &cpus.0 {
        // `sched_setaffinity` cannot be told about CPUs beyond the size of the set.
        let _ = set.set(cpu);
    }
    set
}

/// The environment that all ranks of this node share, as `NAME=value` entries for `exec`, sorted by
/// name.
#[derive(Clone, Debug, Default)]
pub struct ChildEnvironment(BTreeMap<Vec<u8>, CString>);

impl ChildEnvironment {
    /// Returns the launcher's environment, overridden by these variables.
    pub fn inherited(over: &BTreeMap<String, String>) -> io::Result<ChildEnvironment> {
        let mut all = ChildEnvironment::default();
        for (name, value) in env::vars_os() {
            all.set(name.into_vec(), &value.into_vec())?;
        }
        all.overridden(over)
    }

    /// Returns the entries overridden by these variables; later maps override earlier ones.
    pub fn with(&self, over: &[&BTreeMap<String, String>]) -> io::Result<Vec<CString>> {
        let mut all = self.clone();
        for over in over {
            all = all.overridden(over)?;
        }
        Ok(all.0.into_values().collect())
    }

    fn overridden(mut self, over: &BTreeMap<String, String>) -> io::Result<ChildEnvironment> {
        for (name, value) in over {
            self.set(name.as_bytes().to_vec(), value.as_bytes())?;
        }
        Ok(self)
    }

    fn set(&mut self, name: Vec<u8>, value: &[u8]) -> io::Result<()> {
        let entry = CString::new([&name, &b"="[..], value].concat())?;
        self.0.insert(name, entry);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
