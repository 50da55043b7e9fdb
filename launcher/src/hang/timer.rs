//! torch's file timer (`TORCHELASTIC_ENABLE_FILE_TIMER=1`): code in a rank says until when it has to
//! be done, and the launcher ends the rank if it is not, after it has explained what it was at.
//!
//! ```text
//! rank: timer.configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
//!       with timer.expires(after=60): …
//!            │ JSON lines
//!            ▼
//! named pipe ─► timers ─► expired: hang report, then the signal
//! ```
//! Source: `torch/distributed/elastic/timer/file_based_local_timer.py` and
//! `torch/distributed/elastic/agent/server/local_elastic_agent.py`.

use std::collections::BTreeMap;
use std::fs;
use std::future::pending;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use jobs::printable::printable_line;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::net::unix::pipe;
use tokio::select;
use tokio::time::sleep;

use crate::if_any::if_any;
use crate::say;

/// Bytes of a line at most. A line of torch has no more than `PIPE_BUF`, because only so many are
/// written in one piece.
const MAX_LINE: usize = 4096;

/// Bytes that are read at once, the size of a pipe on Linux.
const AT_ONCE: usize = 64 << 10;

/// Characters of a line or of a scope that a message has.
const SHOWN: usize = 200;

/// The highest number of a signal that is not a real-time signal.
const HIGHEST_SIGNAL: i32 = 31;

/// Timers at most; one with-block of a process is one timer.
const MAX_TIMERS: usize = 4096;

/// The time between two looks at the clock, which may be set while a timer runs.
const LOOK: Duration = Duration::from_secs(1);

/// Warnings about what ranks write; more are not printed.
const MAX_WARNINGS: usize = 3;

/// The timers of one launch, and the pipe into which ranks write lines. It goes when this value is
/// dropped.
#[derive(Debug)]
pub struct FileTimer {
    path: PathBuf,
    pipe: pipe::Receiver,
    /// The beginning of a line that has not ended.
    begun: Vec<u8>,
    timers: Timers,
    warnings: usize,
    /// The folder of a pipe whose path nobody has chosen.
    _folder: Option<TempDir>,
}

impl FileTimer {
    /// Creates the pipe with mode 0600, at `path` or in a new folder in `TMPDIR`. A pipe that is at
    /// `path` already, because a launcher was killed, is replaced.
    ///
    /// # Errors
    /// Says that the pipe cannot be made, and why: anything else may be at `path`.
    pub fn create(path: Option<&Path>) -> anyhow::Result<FileTimer> {
        let (path, folder) = match path {
            Some(path) => (path.to_owned(), None),
            None => {
                let folder = tempfile::Builder::new().prefix("rrun_timer_").tempdir();
                let folder = folder.context("cannot make a folder for the file timer")?;
                (folder.path().join("timer"), Some(folder))
            }
        };
        let cannot = || {
            format!(
                "cannot make the pipe of the file timer, `{}`",
                path.display()
            )
        };
        let pipe = open(&path).with_context(cannot)?;
        Ok(FileTimer {
            path,
            pipe,
            begun: Vec::new(),
            timers: Timers::default(),
            warnings: 0,
            _folder: folder,
        })
    }

    /// Returns the path of the pipe.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for lines, or until a timer has expired; returns the processes of which timers have.
    /// Cancel-safe.
    pub async fn news(&mut self) -> Vec<Expired> {
        let left = self.timers.next().map(|next| {
            let left = (next - unix_seconds()).clamp(0.0, LOOK.as_secs_f64());
            Duration::from_secs_f64(left)
        });
        select! {
            bytes = read(&self.pipe) => {
                for line in lines(&mut self.begun, &bytes) {
                    self.on_line(&line);
                }
            }
            () = if_any(left.map(sleep)) => {}
        }
        self.timers.expired(unix_seconds())
    }

    fn on_line(&mut self, line: &[u8]) {
        let Err(err) = Request::parse(line).and_then(|request| self.timers.on(request)) else {
            return;
        };
        self.warnings += 1;
        if self.warnings <= MAX_WARNINGS {
            let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
            let shown = printable_line(&shown);
            say::warning(format_args!("file timer: `{shown}`: {err}"));
        }
        if self.warnings == MAX_WARNINGS {
            say::warning("file timer: more of these are not printed");
        }
    }
}

impl Drop for FileTimer {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<pipe::Receiver> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_fifo() => fs::remove_file(path)?,
        Ok(_) => {
            let why = "it exists and is not a named pipe";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        Err(err) => return Err(err),
    }
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // Open for writing too, so that the pipe does not end when a rank closes it.
    pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(path)
}

/// Waits for bytes. Cancel-safe.
async fn read(pipe: &pipe::Receiver) -> Vec<u8> {
    let mut bytes = vec![0; AT_ONCE];
    while pipe.readable().await.is_ok() {
        match pipe.try_read(&mut bytes) {
            Ok(read) => {
                bytes.truncate(read);
                return bytes;
            }
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    // An own pipe that is open can be read; if not, there is nothing to wait for.
    pending().await
}

/// Takes bytes that follow `begun`, and returns the lines that they end. Of one that is too long, a
/// part remains that is too long as well.
fn lines(begun: &mut Vec<u8>, bytes: &[u8]) -> Vec<Vec<u8>> {
    begun.extend_from_slice(bytes);
    let pieces = begun.split(|byte| *byte == b'\n');
    let mut lines: Vec<Vec<u8>> = pieces.map(<[u8]>::to_vec).collect();
    *begun = lines.pop().unwrap_or_default();
    begun.truncate(MAX_LINE + 1);
    lines
}

/// A line as torch writes it: what a process asks of the timers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Request {
    /// The process that has to be done in time.
    pid: i32,
    /// What it does; timers of one process differ by it.
    scope_id: String,
    /// When it has to be done, in seconds since 1970; negative if it is done.
    expiration_time: f64,
    /// The signal that it gets if it is not done; zero and below for none.
    signal: i32,
}

impl Request {
    /// Parses a line without its end.
    fn parse(line: &[u8]) -> anyhow::Result<Request> {
        ensure!(
            line.len() <= MAX_LINE,
            "a line has more than {MAX_LINE} bytes"
        );
        let request: Request = serde_json::from_slice(line)?;
        let Request { pid, signal, .. } = request;
        ensure!(pid > 0, "pid is {pid}, expected a number > 0");
        ensure!(
            signal <= HIGHEST_SIGNAL,
            "signal is {signal}, expected {HIGHEST_SIGNAL} at most"
        );
        let short: String = request.scope_id.chars().take(SHOWN).collect();
        Ok(Request {
            scope_id: printable_line(&short).into_owned(),
            ..request
        })
    }
}

/// The timers that run. Pure: no clock, and times are seconds since 1970.
#[derive(Debug, Default)]
struct Timers {
    /// When each expires, and with which signal, by process and scope.
    running: BTreeMap<(i32, String), (f64, i32)>,
}

/// A process of which timers have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The process.
    pub pid: i32,
    /// What it should have done by now, by the time at which it should have.
    pub scopes: Vec<String>,
    /// The signal that it is to get: that of the timer which expired first, of those with a signal.
    pub signal: Option<Signal>,
}

impl Timers {
    /// Starts, moves or ends a timer.
    fn on(&mut self, request: Request) -> anyhow::Result<()> {
        let key = (request.pid, request.scope_id);
        if request.expiration_time < 0.0 {
            self.running.remove(&key);
            return Ok(());
        }
        if self.running.len() >= MAX_TIMERS && !self.running.contains_key(&key) {
            bail!("there are {MAX_TIMERS} timers already");
        }
        let timer = (request.expiration_time, request.signal);
        self.running.insert(key, timer);
        Ok(())
    }

    /// Returns when the next timer expires.
    fn next(&self) -> Option<f64> {
        let times = self.running.values().map(|(expires, _)| *expires);
        times.min_by(f64::total_cmp)
    }

    /// Ends the timers that have expired, and all others of their processes, which are told of once.
    fn expired(&mut self, now: f64) -> Vec<Expired> {
        let due = self.running.iter().filter(|(_, timer)| timer.0 <= now);
        let mut due: Vec<_> = due.map(|(key, timer)| (timer.0, key, timer.1)).collect();
        due.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut expired: Vec<Expired> = Vec::new();
        for (_, (pid, scope), signal) in due {
            let signal = Signal::try_from(signal).ok();
            match expired.iter_mut().find(|process| process.pid == *pid) {
                Some(process) => {
                    process.scopes.push(scope.clone());
                    process.signal = process.signal.or(signal);
                }
                None => expired.push(Expired {
                    pid: *pid,
                    scopes: vec![scope.clone()],
                    signal,
                }),
            }
        }
        let is_told = |pid: i32| expired.iter().any(|process| process.pid == pid);
        self.running.retain(|(pid, _), _| !is_told(*pid));
        expired
    }
}

fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn in_runtime<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(work)
    }

    #[test]
    fn lines_of_several_writers_arrive_and_the_pipe_goes() {
        in_runtime(async {
            let mut timer = FileTimer::create(None).expect("made");
            let path = timer.path().to_owned();
            for pid in [1, 2] {
                let mut writer = fs::File::options().write(true).open(&path).expect("open");
                let text = format!(
                    "{{\"pid\": {pid}, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}}\n"
                );
                writer.write_all(text.as_bytes()).expect("written");
                drop(writer);
                assert_eq!(timer.news().await[0].pid, pid);
            }
            drop(timer);
            assert!(!path.exists() && !path.parent().expect("a folder").exists());
        });
    }

    #[test]
    fn a_pipe_that_was_left_is_replaced_and_a_file_is_not() {
        in_runtime(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("timer");
            mkfifo(&path, Mode::S_IRUSR).expect("made");
            drop(FileTimer::create(Some(&path)).expect("replaced"));
            assert!(!path.exists());
            fs::write(&path, "results").expect("written");
            let err = FileTimer::create(Some(&path)).expect_err("a file");
            let expected = "`: it exists and is not a named pipe";
            assert!(format!("{err:#}").ends_with(expected), "{err:#}");
            assert_eq!(fs::read_to_string(&path).expect("it stays"), "results");
        });
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_arrive(
            lines in prop::collection::vec("[a-z]{0,8}", 0..8),
            long in prop::option::of((0_usize..8, MAX_LINE - 2..MAX_LINE + 5000)),
            sizes in prop::collection::vec(1_usize..9000, 1..5),
        ) {
            let mut lines = lines;
            if let Some((at, length)) = long {
                lines.insert(at.min(lines.len()), "x".repeat(length));
            }
            let text: String = lines.iter().map(|line| line.clone() + "\n").collect();
            let (mut begun, mut found, mut rest) = (Vec::new(), Vec::new(), text.as_bytes());
            for size in sizes.iter().cycle() {
                let (piece, behind) = rest.split_at((*size).min(rest.len()));
                found.extend(crate::hang::timer::lines(&mut begun, piece));
                prop_assert!(begun.len() <= MAX_LINE + 1);
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found.len(), lines.len());
            for (found, line) in found.iter().zip(&lines) {
                prop_assert_eq!(found.len() > MAX_LINE, line.len() > MAX_LINE);
                prop_assert!(found.len() > MAX_LINE || found == line.as_bytes());
            }
        }
    }

    /// Plays lines of ranks, and `at SECONDS`, which tells what has expired by then and when the
    /// next timer does.
    fn played(lines: &str) -> String {
        let (mut timers, mut told) = (Timers::default(), String::new());
        for line in lines.lines() {
            if let Some(now) = line.strip_prefix("at ") {
                let expired = timers.expired(now.parse().expect("seconds"));
                told += &format!("{now}: {expired:?}, next {:?}\n", timers.next());
            } else if let Err(err) = Request::parse(line.as_bytes()).and_then(|it| timers.on(it)) {
                told += &format!("{err}\n");
            }
        }
        told
    }

    #[test]
    fn timers_expire_move_and_are_released() {
        rig::cases::check(crate::tests::cases("hang/timer.txt"), played);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused() {
        let err = Request::parse(&[b'x'; MAX_LINE + 1]).expect_err("too long");
        assert_eq!(err.to_string(), "a line has more than 4096 bytes");
    }

    #[test]
    fn timers_are_limited_and_those_that_run_can_still_be_moved() {
        let mut timers = Timers::default();
        let mut ask = |scope: usize, expiration_time| {
            let (pid, scope_id, signal) = (1, scope.to_string(), 9);
            let request = Request {
                pid,
                scope_id,
                expiration_time,
                signal,
            };
            timers.on(request).is_ok()
        };
        assert!((0..MAX_TIMERS).all(|number| ask(number, 10.0)));
        assert!(!ask(MAX_TIMERS, 10.0));
        assert!(ask(7, 20.0) && ask(8, -1.0) && ask(MAX_TIMERS, 10.0));
    }
}
