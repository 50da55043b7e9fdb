//! The command of one rank in the form that `exec` takes: program, arguments, environment, streams
//! and CPUs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::sched::CpuSet;

use crate::numa::CpuList;
use crate::plan::RankPlan;
use crate::process::environment::ChildEnvironment;
use crate::process::files::FileLimit;

/// The destination of an output stream.
#[derive(Debug)]
pub enum OutputStream {
    /// The launcher's own stream.
    Inherit,
    /// No destination: the output is discarded.
    Null,
    /// A file.
    File(File),
}

/// The destinations of a rank's two output streams. Standard input is always inherited.
#[derive(Debug)]
pub struct ChildOutput {
    /// Destination of standard output.
    pub stdout: OutputStream,
    /// Destination of standard error.
    pub stderr: OutputStream,
}

/// The command of one rank, ready to be started.
#[derive(Debug)]
pub struct ChildCommand<'a> {
    /// The program and its arguments. The program is looked up in the `PATH` of `env`, as `execvpe`
    /// does.
    pub argv: Vec<CString>,
    /// The environment as `NAME=value` entries, each name once.
    pub env: Vec<Cow<'a, CStr>>,
    /// The file that becomes standard output; `None` inherits the launcher's.
    pub stdout: Option<File>,
    /// The file that becomes standard error; `None` inherits the launcher's.
    pub stderr: Option<File>,
    /// The CPUs that the rank may use; `None` inherits the launcher's.
    pub cpus: Option<CpuSet>,
    /// The limits on open files; `None` inherits the launcher's.
    pub open_files: Option<FileLimit>,
    /// The working directory; `None` inherits the launcher's.
    pub folder: Option<CString>,
}

impl<'a> ChildCommand<'a> {
    /// Returns the command of `rank`. `env` overrides the `common` environment, and the rank's own
    /// variables override both.
    pub fn new(
        rank: &RankPlan,
        common: &'a ChildEnvironment,
        env: &BTreeMap<String, String>,
        output: ChildOutput,
    ) -> io::Result<ChildCommand<'a>> {
        let env = common.with(&[env, &rank.env])?;
        Ok(ChildCommand {
            cpus: rank.cpus.as_ref().map(set),
            ..ChildCommand::of(&rank.argv, None, env, output)?
        })
    }

    /// Returns the command of a process that is not a rank. `env` overrides the launcher's
    /// environment.
    pub fn of(
        argv: &[OsString],
        folder: Option<&Path>,
        env: Vec<Cow<'a, CStr>>,
        output: ChildOutput,
    ) -> io::Result<ChildCommand<'a>> {
        if argv.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "there is no program",
            ));
        }
        let word = |word: &OsString| CString::new(word.as_bytes());
        let folder = folder.map(|folder| CString::new(folder.as_os_str().as_bytes()));
        Ok(ChildCommand {
            argv: argv.iter().map(word).collect::<Result<_, _>>()?,
            env,
            stdout: output.stdout.open()?,
            stderr: output.stderr.open()?,
            cpus: None,
            open_files: None,
            folder: folder.transpose()?,
        })
    }

    /// Sets the limits on open files.
    pub fn with_open_files(self, limit: Option<FileLimit>) -> ChildCommand<'a> {
        ChildCommand {
            open_files: limit,
            ..self
        }
    }
}

impl OutputStream {
    fn open(self) -> io::Result<Option<File>> {
        match self {
            OutputStream::Inherit => Ok(None),
            OutputStream::Null => OpenOptions::new().write(true).open("/dev/null").map(Some),
            OutputStream::File(file) => Ok(Some(file)),
        }
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

#[cfg(test)]
pub(crate) mod tests;
