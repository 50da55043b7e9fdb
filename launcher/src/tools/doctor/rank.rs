//! Asks the rank binary, which has libtorch, MuJoCo and CUDA, whether they work: which libraries it
//! runs with, and what comes of computing on GPUs, reaching other processes and rendering.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jobs::finding::{Finding, Grade, PROBE};
use jobs::installed::INSTALL_TORCH;

use crate::installed::rank_binary;
use crate::process::timed::{self, EndedProgram};
use crate::tools::doctor::Site;
use crate::tools::doctor::check::at_once;

/// Name of the finding that the binary starts.
const NAME: &str = "rrun-rank";

/// What to do about a binary that is missing or does not start.
const INSTALL: &str = "install rrun again with pip, or build it with `make`; rrun and rrun-rank stay \
                       in one folder";

/// The questions after that for the libraries, each with the name of its finding, and the fewest
/// GPUs with which it is asked.
const QUESTIONS: [(&str, &str, usize); 3] =
    [("CUDA", "cuda", 1), ("NCCL", "nccl", 2), ("EGL", "egl", 0)];

/// Why there is no answer, and what to do, if that follows from it.
type Unanswered = (String, Option<&'static str>);

/// Examines whether the rank binary is there and finds its libraries, and if so what it can do.
pub(super) fn examine(site: &Site) -> Vec<Finding> {
    let binary = match rank_binary(&site.node.executable) {
        Ok(binary) => binary,
        Err(missing) => {
            let found = format!("`{}` does not exist", missing.display());
            return vec![Finding::failed(NAME, found, INSTALL)];
        }
    };
    let words = ["libraries", env!("CARGO_PKG_VERSION")];
    let libraries = match ask(&binary, &words, site.timeout) {
        Ok(libraries) => libraries,
        Err((reason, remedy)) => {
            let found = format!("`{}` does not start: {reason}", binary.display());
            return vec![Finding::failed(NAME, found, remedy.unwrap_or(INSTALL))];
        }
    };
    if libraries.iter().any(|one| one.grade == Grade::Failed) {
        return libraries;
    }
    let gpus = site.visible_gpus();
    let questions = QUESTIONS.into_iter().filter(|(.., least)| gpus >= *least);
    let abilities = at_once(&questions.collect::<Vec<_>>(), |&(name, question, _)| {
        let answer = ask(&binary, &[question], site.timeout);
        answer.unwrap_or_else(|(reason, remedy)| {
            let alone = format!("`rrun-rank {PROBE} {question}` asks it alone; see `dmesg`, too");
            let remedy = remedy.map_or(alone, str::to_owned);
            vec![Finding::failed(name, reason, remedy)]
        })
    });
    [libraries, abilities].concat()
}

/// Runs the rank binary with a question, and returns its answer.
fn ask(binary: &Path, question: &[&str], limit: Duration) -> Result<Vec<Finding>, Unanswered> {
    let mut command = Command::new(binary);
    command.arg(PROBE).args(question);
    // A log would be mixed with the reason on standard error.
    command.env_remove("RRUN_LOG").env_remove("RUST_LOG");
    match timed::run(&mut command, limit) {
        Ok(ended) => read(&ended),
        Err(err) => Err((format!("{err:#}"), None)),
    }
}

/// Finds the answer between the lines of libraries.
fn read(ended: &EndedProgram) -> Result<Vec<Finding>, Unanswered> {
    let mut lines = ended.stdout.lines().rev();
    let answer = lines.find_map(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| explained(ended))
}

/// Explains the end of a program that has not answered: most often the dynamic loader has ended it.
fn explained(ended: &EndedProgram) -> Unanswered {
    /// signal(7): illegal instruction.
    const SIGILL: i32 = 4;

    let stderr = &ended.stderr;
    if let Some(library) = missing_library(stderr) {
        let remedy = match library {
            _ if library.starts_with("libtorch") || library.starts_with("libc10") => INSTALL_TORCH,
            _ if library.starts_with("libmujoco") => {
                "`pip install mujoco==3.17.0` into the venv of rrun (in the source: ./setup.sh)"
            }
            _ => "install the package with this library",
        };
        return (format!("`{library}` is missing"), Some(remedy));
    }
    if let Some(line) = line_with(stderr, "undefined symbol") {
        let found = format!("it needs another version of a library: {line}");
        return (found, Some(INSTALL_TORCH));
    }
    if let Some(line) = line_with(stderr, "GLIBC") {
        let remedy = "use a system with glibc 2.34 or newer, or a container (deploy/)";
        return (format!("the system is too old: {line}"), Some(remedy));
    }
    if ended.status.signal() == Some(SIGILL) {
        let remedy = "use another machine; in a virtual machine, pass the host's CPU model on";
        let found = "the CPU lacks an instruction that it needs";
        return (found.to_owned(), Some(remedy));
    }
    let last = stderr.lines().rfind(|line| !line.trim().is_empty());
    let last = last.map_or_else(String::new, |line| format!(": {line}"));
    let (status, own) = (ended.status, env!("CARGO_PKG_VERSION"));
    // Perhaps it is of another version, which its usage names.
    let found = format!("it ended with {status} and no answer for rrun {own}{last}");
    (found, None)
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
        let answer = [Finding::failed("EGL", "no device", "install it")];
        let line = serde_json::to_string(&answer).unwrap();
        let found = read(&ended(256, &format!("hello\n{line}\n[W] bye\n"), "x"));
        assert_eq!(found.unwrap(), answer);
    }

    #[test]
    fn a_program_that_does_not_answer_is_told_with_what_it_lacks_or_its_last_words() {
        let library = "rrun-rank: error while loading shared libraries: libtorch_cpu.so: cannot \
                       open shared object file: No such file or directory\n";
        let symbol = "rrun-rank: undefined symbol: _ZN3c10\n";
        let system = "libc.so.6: version `GLIBC_2.34' not found\n";
        let torch = Some(INSTALL_TORCH);
        for (status, stderr, found, remedy) in [
            (127 << 8, library, "`libtorch_cpu.so` is missing", torch),
            (127 << 8, symbol, "", torch),
            (1 << 8, system, "the system is too old", None),
            (4, "", "the CPU lacks an instruction that it needs", None),
            (2 << 8, "", "it ended with exit status: 2 and no", None),
            (11, "first\nlast\n\n", "it ended with signal: 11", None),
        ] {
            let (reason, to_do) = read(&ended(status, "", stderr)).unwrap_err();
            assert!(reason.starts_with(found), "{reason}");
            assert!(remedy.is_none() || to_do == remedy, "{reason}");
            assert_eq!(reason.ends_with(": last"), status == 11, "{reason}");
        }
    }
}
