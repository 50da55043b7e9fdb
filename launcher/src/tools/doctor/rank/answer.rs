//! Runs the rank binary with a question, and explains why it has no answer.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jobs::rank_probe::{RankQuestion, WORD};
use serde::de::DeserializeOwned;

use crate::process::timed::{self, EndedProgram};

/// The torch that rrun supports, as `pip` writes it.
pub(super) const TORCH: &str = "`pip install 'torch>=2.11,<2.13'` into the venv of rrun (in the \
                                source: ./setup.sh)";

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unanswered {
    /// What was found.
    pub(super) found: String,
    /// What to do, if that follows from it.
    pub(super) remedy: Option<&'static str>,
}

impl Unanswered {
    fn new(found: impl Into<String>, remedy: Option<&'static str>) -> Self {
        Self {
            found: found.into(),
            remedy,
        }
    }
}

/// Returns the answer of the rank binary.
pub(super) fn ask<T: DeserializeOwned>(
    binary: &Path,
    question: RankQuestion,
    limit: Duration,
) -> Result<T, Unanswered> {
    let mut command = Command::new(binary);
    command.args([WORD, question.name()]);
    // A log would be mixed with the reason on standard error.
    command.env_remove("RRUN_LOG").env_remove("RUST_LOG");
    match timed::run(&mut command, limit) {
        Ok(ended) => read(&ended),
        Err(err) => Err(Unanswered::new(format!("{err:#}"), None)),
    }
}

/// Finds the answer between the lines of libraries.
fn read<T: DeserializeOwned>(ended: &EndedProgram) -> Result<T, Unanswered> {
    let answers = ended.stdout.lines().rev();
    let answer = answers
        .filter_map(|line| serde_json::from_str::<Result<T, String>>(line).ok())
        .next();
    match answer {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(reason)) => Err(Unanswered::new(reason, None)),
        None => Err(explained(ended)),
    }
}

/// Explains the end of a program that has not answered: most often the dynamic loader has ended it.
fn explained(ended: &EndedProgram) -> Unanswered {
    /// signal(7): illegal instruction.
    const SIGILL: i32 = 4;

    let stderr = &ended.stderr;
    if let Some(library) = missing_library(stderr) {
        let remedy = match library {
            _ if library.starts_with("libtorch") || library.starts_with("libc10") => TORCH,
            _ if library.starts_with("libmujoco") => {
                "`pip install mujoco==3.17.0` into the venv of rrun (in the source: ./setup.sh)"
            }
            _ => "install the package with this library",
        };
        return Unanswered::new(format!("`{library}` is missing"), Some(remedy));
    }
    if let Some(line) = line_with(stderr, "undefined symbol") {
        let found = format!("it needs another version of a library: {line}");
        return Unanswered::new(found, Some(TORCH));
    }
    if let Some(line) = line_with(stderr, "GLIBC") {
        let remedy = "use a system with glibc 2.34 or newer, or a container (deploy/)";
        return Unanswered::new(format!("the system is too old: {line}"), Some(remedy));
    }
    if ended.status.signal() == Some(SIGILL) {
        let remedy = "use another machine; in a virtual machine, pass the host's CPU model on";
        return Unanswered::new("the CPU lacks an instruction that it needs", Some(remedy));
    }
    let last = stderr.lines().rfind(|line| !line.trim().is_empty());
    let last = last.map_or_else(String::new, |line| format!(": {line}"));
    Unanswered::new(format!("it ended with {}{last}", ended.status), None)
}

/// Returns the library that the dynamic loader has not found.
fn missing_library(stderr: &str) -> Option<&str> {
    let (_, rest) = stderr.split_once("error while loading shared libraries: ")?;
    let (library, _) = rest.split_once(": cannot open shared object file")?;
    Some(library)
}

fn line_with<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    text.lines().find(|line| line.contains(part))
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    fn ended(raw_status: i32, stdout: &str, stderr: &str) -> EndedProgram {
        EndedProgram {
            status: ExitStatus::from_raw(raw_status),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    #[test]
    fn an_answer_is_found_between_other_lines() {
        let answer = read::<u32>(&ended(0, "hello\n{\"Ok\":7}\n[W] bye\n", ""));
        assert_eq!(answer, Ok(7));
        let failed = read::<u32>(&ended(256, "{\"Err\":\"no device\"}\n", "x"));
        assert_eq!(failed, Err(Unanswered::new("no device", None)));
    }

    #[test]
    fn a_program_that_does_not_answer_is_told_with_what_it_lacks_or_its_last_words() {
        let library = "rrun-rank: error while loading shared libraries: libtorch_cpu.so: cannot \
                       open shared object file: No such file or directory\n";
        let symbol = "rrun-rank: undefined symbol: _ZN3c10\n";
        let system = "libc.so.6: version `GLIBC_2.34' not found\n";
        for (status, stderr, found, remedy) in [
            (
                127 << 8,
                library,
                "`libtorch_cpu.so` is missing",
                Some(TORCH),
            ),
            (127 << 8, symbol, "", Some(TORCH)),
            (1 << 8, system, "the system is too old", None),
            (4, "", "the CPU lacks an instruction that it needs", None),
            (11, "first\nlast\n\n", "it ended with signal: 11", None),
        ] {
            let reason = read::<u32>(&ended(status, "", stderr)).unwrap_err();
            assert!(reason.found.starts_with(found), "{reason:?}");
            assert!(remedy.is_none() || reason.remedy == remedy, "{reason:?}");
            assert_eq!(reason.found.ends_with(": last"), status == 11, "{reason:?}");
        }
    }
}
