//! The thread that follows the teed log files of one attempt.
//!
//! ```text
//! every 50 ms: a chunk of each file in turn, until all are read ─► lines ─► console, filtered file
//! stop (the ranks have ended): all to their ends ─► last, unterminated lines ─► done
//! ```
//! A slow console blocks only this thread, and a rank that prints much delays no other by more than
//! a chunk.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, StderrLock, StdoutLock, Write};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::oneshot;

use crate::logs::lines::{CHUNK, Lines};

/// Time between two looks at files that have been read to their ends; torchrun's is 100 ms.
const INTERVAL: Duration = Duration::from_millis(50);

/// A log file to follow, and where its lines go.
#[derive(Debug)]
pub struct Followed {
    /// Path of the file, which exists.
    pub path: PathBuf,
    /// Prefix of every line.
    pub prefix: String,
    /// The output stream for its lines.
    pub stream: ConsoleStream,
    /// Whether its lines are shown on the console.
    pub is_shown: bool,
    /// The file for lines that contain one of the substrings.
    pub filtered: Option<Filtered>,
}

/// A file, to which all ranks append, for the lines that contain one of several substrings.
#[derive(Debug)]
pub struct Filtered {
    /// The file.
    pub file: Arc<File>,
    /// The substrings.
    pub substrings: Vec<String>,
}

/// A running tail.
#[derive(Debug)]
pub struct Tail {
    stop: mpsc::Sender<()>,
    done: oneshot::Receiver<()>,
}

impl Tail {
    /// Follows these files from their beginning.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or there is no thread for it.
    pub fn start(files: Vec<Followed>) -> anyhow::Result<Tail> {
        let mut follower = Follower::open(files).context("cannot follow the log files")?;
        let (stop, stopped) = mpsc::channel();
        let (said, done) = oneshot::channel();
        let run = move || {
            follower.run(&stopped);
            // The receiver is gone if the launch was cut short.
            let _ = said.send(());
        };
        let thread = thread::Builder::new().name("tail".to_owned());
        thread.spawn(run).context("cannot follow the log files")?;
        Ok(Tail { stop, done })
    }

    /// Stops the tail after every rank has ended: the rest of the files is read. What is returned
    /// ends when all lines have been written; an error means that no more lines will come.
    pub fn finish(self) -> oneshot::Receiver<()> {
        drop(self.stop);
        self.done
    }
}

struct Follower {
    files: Vec<(Lines, Followed)>,
    chunk: Vec<u8>,
    stdout: BufWriter<Console>,
    stderr: BufWriter<Console>,
}

impl Follower {
    fn open(files: Vec<Followed>) -> io::Result<Follower> {
        let open = |file: Followed| Ok((Lines::new(File::open(&file.path)?), file));
        let console = |stream: ConsoleStream| BufWriter::with_capacity(CHUNK, stream.open());
        Ok(Follower {
            files: files.into_iter().map(open).collect::<io::Result<_>>()?,
            chunk: vec![0; CHUNK],
            stdout: console(ConsoleStream::Stdout),
            stderr: console(ConsoleStream::Stderr),
        })
    }

    fn run(&mut self, stopped: &mpsc::Receiver<()>) {
        loop {
            while self.turn(false) {}
            if stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        while self.turn(false) {}
        self.turn(true);
    }

    /// Reads one chunk of each file. Returns whether there may be more. `is_last` also passes on
    /// unterminated lines.
    fn turn(&mut self, is_last: bool) -> bool {
        let mut has_more = false;
        for (lines, followed) in &mut self.files {
            let console = match followed.stream {
                ConsoleStream::Stdout => &mut self.stdout,
                ConsoleStream::Stderr => &mut self.stderr,
            };
            let _lock = followed.stream.lock();
            has_more |= lines.read(&mut self.chunk, is_last, |line| {
                followed.give(line, console)
            });
            // The console takes everything.
            let _ = console.flush();
        }
        has_more
    }
}

impl Followed {
    /// Writes the line to the console, and to the filtered file if it matches. A full disk must not
    /// end the launch.
    fn give(&self, line: &[u8], console: &mut impl Write) {
        // One write for a line, so that those of other ranks are not mixed with it.
        let whole = [self.prefix.as_bytes(), line, b"\n"].concat();
        let is_in = |wanted: &String| {
            let mut windows = line.windows(wanted.len().max(1));
            wanted.is_empty() || windows.any(|window| window == wanted.as_bytes())
        };
        if let Some(Filtered { file, substrings }) = &self.filtered
            && substrings.iter().any(is_in)
        {
            let _ = file.as_ref().write_all(&whole);
        }
        if self.is_shown {
            let _ = console.write_all(&whole);
        }
    }
}

/// One of the two output streams of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl ConsoleStream {
    /// Opens the stream.
    pub fn open(self) -> Console {
        let fd = match self {
            ConsoleStream::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            ConsoleStream::Stderr => io::stderr().as_fd().try_clone_to_owned(),
        };
        Console(fd.ok().map(File::from))
    }

    /// Keeps other output of this process from the stream until the result is dropped.
    pub fn lock(self) -> (Option<StdoutLock<'static>>, Option<StderrLock<'static>>) {
        match self {
            ConsoleStream::Stdout => (Some(io::stdout().lock()), None),
            ConsoleStream::Stderr => (None, Some(io::stderr().lock())),
        }
    }
}

/// An output stream that takes everything: once it is broken, for instance a closed pipe, writes
/// have no effect. A terminal or pipe that another process has made non-blocking is waited for.
#[derive(Debug)]
pub struct Console(Option<File>);

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.0 else {
            return Ok(bytes.len());
        };
        match file.write(bytes) {
            Ok(written @ 1..) => return Ok(written),
            Err(err) if err.kind() == ErrorKind::Interrupted => return Err(err),
            Err(err) if err.kind() == ErrorKind::WouldBlock => {
                let mut room = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut room, PollTimeout::NONE).is_ok() {
                    // `write_all` tries again.
                    return Err(ErrorKind::Interrupted.into());
                }
            }
            Ok(0) | Err(_) => {}
        }
        self.0 = None;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn lines_written_before_and_after_the_start_come_prefixed_and_filtered() {
        let folder = tempfile::tempdir().expect("a folder");
        let [log, out] = ["stdout.log", "filtered.log"].map(|name| folder.path().join(name));
        let mut writer = File::create(&log).expect("a file");
        writer.write_all(b"an apple\nno\n").expect("written");
        let filtered = Filtered {
            file: Arc::new(File::create(&out).expect("a file")),
            substrings: vec!["apple".to_owned()],
        };
        let followed = Followed {
            path: log,
            prefix: "[p]:".to_owned(),
            stream: ConsoleStream::Stdout,
            is_shown: false,
            filtered: Some(filtered),
        };
        let tail = Tail::start(vec![followed]).expect("it starts");
        writer.write_all(b"last apple").expect("written");
        tail.finish().await.expect("all is written");
        let found = fs::read_to_string(&out).expect("read");
        assert_eq!(found, "[p]:an apple\n[p]:last apple\n");
    }

    #[test]
    fn a_non_blocking_stream_that_is_full_loses_nothing() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a mode");
        let bytes = vec![b'x'; 4 << 20];
        let expected = bytes.len();
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            theirs.read_to_end(&mut read).map(|_| read.len())
        });
        let mut console = Console(Some(File::from(OwnedFd::from(ours))));
        console.write_all(&bytes).expect("all of it");
        drop(console);
        assert_eq!(reader.join().expect("no panic").expect("read"), expected);
    }

    #[test]
    fn a_stream_without_reader_is_given_up() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        let mut console = Console(Some(File::from(OwnedFd::from(ours))));
        console.write_all(b"line\n").expect("no error");
        assert!(console.0.is_none());
    }
}
