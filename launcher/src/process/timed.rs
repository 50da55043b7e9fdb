//! Runs a program with a time limit, and keeps a limited part of what it prints.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jobs::time::now;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Most bytes that are kept of each stream: the last ones, since answers and reasons come at the end.
const LIMIT: usize = 256 << 10;

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

/// What a program has printed so far. The channel is closed at the end of the stream.
struct Printed(Arc<Mutex<Vec<u8>>>, Receiver<()>);

/// Runs a program. At the time limit it is killed, with the processes of its group.
pub(crate) fn run(command: &mut Command, limit: Duration) -> anyhow::Result<EndedProgram> {
    let deadline = now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .context("it cannot be started")?;
    let stdout = child.stdout.take().map(read_in_a_thread);
    let stderr = child.stderr.take().map(read_in_a_thread);
    let Some(status) = ended(&mut child, deadline)? else {
        kill(&mut child);
        bail!("it did not end within {} s", limit.as_secs());
    };
    Ok(EndedProgram {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
    })
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

fn read_in_a_thread(mut stream: impl Read + Send + 'static) -> Printed {
    let (is_open, end) = channel();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let printed = Printed(Arc::clone(&kept), end);
    thread::spawn(move || {
        let mut piece = [0; 16 << 10];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&piece[..length]);
            let dropped = kept.len().saturating_sub(LIMIT);
            kept.drain(..dropped);
        }
        drop(is_open);
    });
    printed
}

fn text(printed: Option<Printed>) -> String {
    let Some(Printed(kept, end)) = printed else {
        return String::new();
    };
    let _: Result<(), _> = end.recv_timeout(REST);
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> anyhow::Result<EndedProgram> {
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
    fn endless_output_does_not_block_and_its_end_is_kept() {
        let ended = shell("head -c 3000000 /dev/zero; echo; echo answer", LONG).unwrap();
        assert!(ended.status.success());
        assert_eq!(ended.stdout.len(), LIMIT);
        assert!(ended.stdout.ends_with("\nanswer\n"));
    }

    #[test]
    fn a_process_that_keeps_the_output_open_is_not_waited_for() {
        let start = now();
        let ended = shell("sleep 20 & echo done", LONG).unwrap();
        assert!(ended.status.success());
        assert_eq!(ended.stdout, "done\n");
        assert!(start.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let err = run(&mut Command::new("/nowhere/python"), LONG).unwrap_err();
        assert!(format!("{err:#}").starts_with("it cannot be started: No such file"));
    }
}
