//! Runs a program with a time limit, and reads a limited part of what it prints.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Most bytes that are kept of each stream; the rest is read and dropped.
const LIMIT: u64 = 256 << 10;

/// Interval between two checks whether the program has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Time to wait for the end of the streams of a program that has ended: what it has started may
/// hold them open.
const REST: Duration = Duration::from_millis(500);

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct EndedProgram {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("it cannot be started: {0}")]
    Start(#[from] io::Error),
    #[error("it did not end within {} s", .0.as_secs())]
    TimeLimit(Duration),
}

/// Runs a program. At the time limit it is killed, with the processes of its group.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<EndedProgram, ProgramError> {
    let deadline = now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let stdout = child.stdout.take().map(read_in_a_thread);
    let stderr = child.stderr.take().map(read_in_a_thread);
    let status = match ended(&mut child, deadline)? {
        Some(status) => status,
        None => {
            kill(&mut child);
            return Err(ProgramError::TimeLimit(limit));
        }
    };
    Ok(EndedProgram {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
    })
}

#[expect(clippy::disallowed_methods, reason = "a time limit of a program")]
fn now() -> Instant {
    Instant::now()
}

/// Waits for the end of a program; `None` at the deadline.
fn ended(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if now() > deadline {
            return Ok(None);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "between two looks at a process that ends in a moment"
        )]
        thread::sleep(LOOK);
    }
}

/// Kills the group of a program that has not been waited for, so that the number is its own.
fn kill(child: &mut Child) {
    if let Ok(id) = i32::try_from(child.id()) {
        // It may have ended in the meantime.
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
    }
    // A process in an uninterruptible call ends later; it is not waited for.
    let _ = child.try_wait();
}

fn read_in_a_thread(stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        let mut stream = stream;
        // What was read before an error counts.
        let _ = stream.by_ref().take(LIMIT).read_to_end(&mut kept);
        // The receiver does not wait for what is dropped.
        let _ = sender.send(kept);
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    receiver
}

fn text(stream: Option<Receiver<Vec<u8>>>) -> String {
    let bytes = stream.and_then(|stream| stream.recv_timeout(REST).ok());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<EndedProgram, ProgramError> {
        run(Command::new("/bin/sh").args(["-c", script]), limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_and_status_are_returned() {
        let ended = shell("echo out; echo err >&2; exit 3", LONG).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!((&*ended.stdout, &*ended.stderr), ("out\n", "err\n"));
    }

    #[test]
    fn a_program_that_hangs_ends_with_what_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > '{}'; sleep 600", file.display());
        // A busy machine may need longer until the program has started another.
        for seconds in [1, 4, 16, 64] {
            let err = shell(&script, Duration::from_secs(seconds)).unwrap_err();
            assert_eq!(
                err.to_string(),
                format!("it did not end within {seconds} s")
            );
            if file.exists() {
                break;
            }
        }

        let pid = std::fs::read_to_string(&file).unwrap();
        rig::wait::until("the end of what it has started", || {
            !rig::process::alive(pid.trim())
        });
    }

    #[test]
    fn endless_output_is_cut_and_does_not_block() {
        let ended = shell("head -c 3000000 /dev/zero", LONG).unwrap();
        assert!(ended.status.success());
        assert_eq!(ended.stdout.len() as u64, LIMIT);
    }

    #[test]
    fn a_process_that_keeps_the_output_open_is_not_waited_for() {
        let start = now();
        let ended = shell("sleep 20 & echo done", LONG).unwrap();
        assert!(ended.status.success());
        assert!(start.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let err = run(&mut Command::new("/nowhere/python"), LONG).unwrap_err();
        assert!(err.to_string().starts_with("it cannot be started: "));
    }
}
