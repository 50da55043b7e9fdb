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
use crate::process::environment::Environment;
use crate::process::files::FileLimit;

/// The destination of an output stream.
#[derive(Debug)]
pub enum Stream {
    /// The launcher's own stream.
    Inherit,
    /// No destination: the output is discarded.
    Null,
    /// A file.
    File(File),
}

/// The destinations of a rank's two output streams. Standard input is always inherited.
#[derive(Debug)]
pub struct Output {
    /// Destination of standard output.
    pub stdout: Stream,
    /// Destination of standard error.
    pub stderr: Stream,
}

/// The command of one rank, ready to be started.
#[derive(Debug)]
pub struct Command<'a> {
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

impl<'a> Command<'a> {
    /// Returns the command of `rank`. `env` overrides the `common` environment, and the rank's own
    /// variables override both.
    pub fn new(
        rank: &RankPlan,
        common: &'a Environment,
        env: &BTreeMap<String, String>,
        output: Output,
    ) -> io::Result<Command<'a>> {
        Ok(Command {
            argv: argv(&rank.argv)?,
            env: common.with(&[env, &rank.env])?,
            stdout: output.stdout.open()?,
            stderr: output.stderr.open()?,
            cpus: rank.cpus.as_ref().map(set),
            open_files: None,
            folder: None,
        })
    }

    /// Returns the command of a process that is not a rank. `env` overrides the launcher's
    /// environment.
    pub fn of(
        argv_of: &[OsString],
        folder: Option<&Path>,
        env: Vec<Cow<'a, CStr>>,
        output: Output,
    ) -> io::Result<Command<'a>> {
        Ok(Command {
            argv: argv(argv_of)?,
            env,
            stdout: output.stdout.open()?,
            stderr: output.stderr.open()?,
            cpus: None,
            open_files: None,
            folder: folder
                .map(|folder| CString::new(folder.as_os_str().as_bytes()))
                .transpose()?,
        })
    }

    /// Sets the limits on open files.
    pub fn with_open_files(self, limit: Option<FileLimit>) -> Command<'a> {
        Command {
            open_files: limit,
            ..self
        }
    }
}

impl Stream {
    fn open(self) -> io::Result<Option<File>> {
        match self {
            Stream::Inherit => Ok(None),
            Stream::Null => OpenOptions::new().write(true).open("/dev/null").map(Some),
            Stream::File(file) => Ok(Some(file)),
        }
    }
}

fn argv(words: &[OsString]) -> io::Result<Vec<CString>> {
    if words.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "there is no program",
        ));
    }
    words
        .iter()
        .map(|word| Ok(CString::new(word.as_bytes())?))
        .collect()
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
pub(crate) mod tests {
    use std::io::{Read as _, Seek as _};

    use super::*;
    use crate::plan::Streams;
    use crate::process::rank::Rank;
    use crate::process::start::Start;

    /// Returns the plan of a rank without variables of its own.
    pub(crate) fn plan(argv: &[&str]) -> RankPlan {
        RankPlan {
            local_rank: 0,
            argv: argv.iter().map(OsString::from).collect(),
            env: BTreeMap::new(),
            redirect: Streams::default(),
            tee: Streams::default(),
            cpus: None,
            shown: true,
        }
    }

    /// Starts a single rank.
    pub(crate) fn start(rank: &RankPlan, stdout: Stream) -> io::Result<Rank> {
        let common = Environment::inherited(&BTreeMap::new())?;
        let output = Output {
            stdout,
            stderr: Stream::Inherit,
        };
        let mut start = Start::new()?;
        start.spawn(&Command::new(rank, &common, &BTreeMap::new(), output)?)?;
        let (mut ranks, failed) = start.finish();
        failed.map_or_else(|| Ok(ranks.remove(0)), |failed| Err(failed.err))
    }

    /// Returns a rank's pid and what it writes to standard output until it ends.
    pub(crate) fn output(rank: &RankPlan) -> (i32, String) {
        let mut file = tempfile::tempfile().expect("a file");
        let rank = start(rank, Stream::File(file.try_clone().expect("a copy"))).expect("it starts");
        let pid = rank.pid().as_raw();
        rank.reap();
        let mut text = String::new();
        file.rewind().expect("a file");
        file.read_to_string(&mut text).expect("text");
        (pid, text)
    }

    #[test]
    fn the_program_is_looked_up_in_the_rank_s_own_path() {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("/bin/echo", folder.path().join("only-here")).expect("a link");
        let env = BTreeMap::from([("PATH".to_owned(), folder.path().display().to_string())]);
        assert_eq!(
            output(&RankPlan {
                env,
                ..plan(&["only-here", "found"])
            })
            .1,
            "found\n"
        );
    }

    #[test]
    fn a_rank_has_the_limit_on_files_that_it_is_given() {
        let common = Environment::inherited(&BTreeMap::new()).expect("an environment");
        let limit = FileLimit {
            soft: 77,
            ..FileLimit::current().expect("Linux has limits")
        };
        let mut file = tempfile::tempfile().expect("a file");
        let output = Output {
            stdout: Stream::File(file.try_clone().expect("a copy")),
            stderr: Stream::Inherit,
        };
        let plan = plan(&["sh", "-c", "ulimit -Sn"]);
        let command = Command::new(&plan, &common, &BTreeMap::new(), output).expect("a command");
        let mut start = Start::new().expect("a pipe");
        start
            .spawn(&command.with_open_files(Some(limit)))
            .expect("it starts");
        start.finish().0.remove(0).reap();
        let mut text = String::new();
        file.rewind().expect("a file");
        file.read_to_string(&mut text).expect("text");
        assert_eq!(text, "77\n");
    }

    #[test]
    fn a_script_that_names_no_interpreter_is_run_by_the_shell() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("script");
        // Another process writes the script: a child that another test forks meanwhile would
        // inherit a file that is open for writing here, and such a file cannot be executed.
        let write = "echo 'echo \"$1\"' > \"$0\" && chmod 700 \"$0\"";
        assert!(
            std::process::Command::new("sh")
                .args(["-c", write])
                .arg(&script)
                .status()
                .expect("sh")
                .success()
        );
        assert_eq!(
            output(&plan(&[script.to_str().expect("text"), "word"])).1,
            "word\n"
        );
    }

    #[test]
    fn output_that_goes_nowhere_is_no_error() {
        let rank = start(&plan(&["/bin/echo", "unheard"]), Stream::Null).expect("it starts");
        rank.reap();
    }

    #[test]
    fn an_empty_command_line_has_no_command() {
        let err = start(&plan(&[]), Stream::Null).expect_err("no program");
        assert_eq!(err.to_string(), "there is no program");
    }
}
