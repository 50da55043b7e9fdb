//! The thread that follows the teed log files of one attempt.
//!
//! ```text
//! every 50 ms: a chunk of each file in turn, until all are read ─► lines ─► console, filtered file
//! stop (the ranks have ended): all to their ends ─► last, unterminated lines ─► done
//! ```
//! A slow console blocks only this thread, and a rank that prints much delays no other by more than
//! a chunk.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::oneshot;

use crate::logs::console::{Console, ConsoleStream};
use crate::logs::lines::{CHUNK, Lines, LogLine};

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
    pub file: File,
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

    /// Stops the tail after every rank has ended: the rest of the files is read. The future
    /// resolves when all lines have been written.
    pub fn finish(self) -> impl Future<Output = ()> {
        drop(self.stop);
        async move {
            // An error means that the thread is gone; then no more lines will come.
            let _ = self.done.await;
        }
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
                followed.give(&line, console)
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
    fn give(&self, line: &LogLine<'_>, console: &mut impl Write) {
        if let Some(Filtered { file, substrings }) = &self.filtered
            && substrings
                .iter()
                .any(|wanted| line.contains(wanted.as_bytes()))
        {
            // One write for a line, so that those of other ranks are not mixed with it.
            let most = line.length().saturating_add(self.prefix.len() + 1);
            let mut whole = BufWriter::with_capacity(most.min(2 * CHUNK), file);
            let _ = self.write(line, &mut whole);
            let _ = whole.flush();
        }
        if self.is_shown {
            let _ = self.write(line, console);
        }
    }

    fn write(&self, line: &LogLine<'_>, to: &mut impl Write) -> io::Result<()> {
        to.write_all(self.prefix.as_bytes())?;
        line.write(to)?;
        to.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn lines_written_before_and_after_the_start_come_prefixed_and_filtered() {
        let folder = tempfile::tempdir().expect("a folder");
        let [log, out] = ["stdout.log", "filtered.log"].map(|name| folder.path().join(name));
        let mut writer = File::create(&log).expect("a file");
        writer.write_all(b"an apple\nno\n").expect("written");
        let filtered = Filtered {
            file: File::create(&out).expect("a file"),
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
        tail.finish().await;
        let found = fs::read_to_string(&out).expect("read");
        assert_eq!(found, "[p]:an apple\n[p]:last apple\n");
    }
}
