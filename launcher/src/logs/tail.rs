//! The thread that follows the teed log files of one attempt.
//!
//! ```text
//! inotify: file i has changed ─► read it to its end ─► lines ─► console, filtered file
//! stop (the ranks have ended) ─► read all to their ends ─► last, unterminated lines ─► done
//! ```
//! A slow console blocks only this thread.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::sync::oneshot;

use crate::logs::LogError;
use crate::logs::console::{Console, ConsoleStream};
use crate::logs::lines::{Lines, LogLine};
use crate::logs::long_line::{LongLine, contains};

/// Bytes to read from one file before the next one has its turn.
const CHUNK: usize = 64 << 10;

/// Poll interval in milliseconds if inotify is not available (the number of instances per user is
/// limited); torchrun's interval.
const POLL_MS: u16 = 100;

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
    pub filtered: Option<Arc<Filtered>>,
}

/// A file, shared by all ranks, for the lines that contain one of several substrings.
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
    stop: PipeWriter,
    done: oneshot::Receiver<()>,
}

impl Tail {
    /// Follows these files from their beginning.
    pub fn start(files: Vec<Followed>) -> Result<Tail, LogError> {
        let (stop_reader, stop) = io::pipe().map_err(LogError::Follow)?;
        let (said, done) = oneshot::channel();
        let follower = Follower::open(files)?;
        let run = move || {
            follower.run(&stop_reader);
            // The receiver is gone if the launch was cut short.
            let _ = said.send(());
        };
        thread::Builder::new()
            .name("tail".to_owned())
            .spawn(run)
            .map_err(LogError::Follow)?;
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
    inotify: Option<Inotify>,
    index_of: HashMap<WatchDescriptor, usize>,
    files: Vec<OpenLog>,
    chunk: Vec<u8>,
    stdout: Console,
    stderr: Console,
}

struct OpenLog {
    file: File,
    lines: Lines,
    followed: Followed,
}

impl Follower {
    fn open(followed: Vec<Followed>) -> Result<Follower, LogError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let mut index_of = HashMap::new();
        let mut watches_all = true;
        let mut files = Vec::new();
        for followed in followed {
            let watch = inotify
                .as_ref()
                .and_then(|it| it.add_watch(&followed.path, AddWatchFlags::IN_MODIFY).ok());
            watches_all &= watch.is_some();
            index_of.extend(watch.map(|watch| (watch, files.len())));
            let file = File::open(&followed.path).map_err(LogError::Follow)?;
            files.push(OpenLog {
                file,
                lines: Lines::default(),
                followed,
            });
        }
        let inotify = inotify.filter(|_| watches_all);
        let (stdout, stderr) = (
            Console::open(ConsoleStream::Stdout),
            Console::open(ConsoleStream::Stderr),
        );
        Ok(Follower {
            inotify,
            index_of,
            files,
            chunk: vec![0; CHUNK],
            stdout,
            stderr,
        })
    }

    fn run(mut self, stop: &PipeReader) {
        let all: Vec<usize> = (0..self.files.len()).collect();
        // inotify does not report what was written before the watch began.
        let mut changed = all.clone();
        self.read_to_ends(&mut changed);
        while !self.wait(stop) {
            self.changed(&mut changed);
            self.read_to_ends(&mut changed);
        }
        self.read_to_ends(&mut all.clone());
        for index in 0..self.files.len() {
            self.step(index, true);
        }
    }

    /// Waits for changes. Returns true if the tail is to stop.
    fn wait(&self, stop: &PipeReader) -> bool {
        let mut fds = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        fds.extend(
            self.inotify
                .as_ref()
                .map(|inotify| PollFd::new(inotify.as_fd(), PollFlags::POLLIN)),
        );
        let timeout = if self.inotify.is_some() {
            PollTimeout::NONE
        } else {
            PollTimeout::from(POLL_MS)
        };
        match poll(&mut fds, timeout) {
            Ok(_) => fds[0].any().unwrap_or(true),
            Err(err) => err != Errno::EINTR,
        }
    }

    /// Adds the files that have changed to `changed`, each once.
    fn changed(&self, changed: &mut Vec<usize>) {
        let all = 0..self.files.len();
        match self.inotify.as_ref().map(Inotify::read_events) {
            Some(Ok(events)) => {
                let known: Option<Vec<usize>> = events
                    .iter()
                    .map(|event| self.index_of.get(&event.wd).copied())
                    .collect();
                // An event without a file means that the kernel's queue overflowed: any file may
                // have changed.
                changed.extend(known.unwrap_or_else(|| all.collect()));
            }
            Some(Err(Errno::EAGAIN | Errno::EINTR)) => {}
            Some(Err(_)) | None => changed.extend(all),
        }
        changed.sort_unstable();
        changed.dedup();
    }

    /// Reads the new parts of the `changed` files in turn, until none is left.
    fn read_to_ends(&mut self, changed: &mut Vec<usize>) {
        while !changed.is_empty() {
            changed.retain(|&index| self.step(index, false));
        }
    }

    /// Reads one chunk of one file. Returns whether there may be more. `is_last` also passes on an
    /// unterminated line.
    fn step(&mut self, index: usize, is_last: bool) -> bool {
        let open = &mut self.files[index];
        // A read error is treated as no new data.
        let length = open.file.read(&mut self.chunk).unwrap_or(0);
        let console = match open.followed.stream {
            ConsoleStream::Stdout => &mut self.stdout,
            ConsoleStream::Stderr => &mut self.stderr,
        };
        let mut lines = Vec::new();
        let (file, followed) = (&open.file, &open.followed);
        let mut give = |line: LogLine<'_>| match line {
            LogLine::Kept(line) => followed.give(line, &mut lines),
            LogLine::Long(place) => {
                console.write(&std::mem::take(&mut lines));
                followed.give_long(&LongLine { file, place }, console);
            }
        };
        open.lines.push(&self.chunk[..length], &mut give);
        if is_last {
            open.lines.finish(&mut give);
        }
        console.write(&lines);
        length > 0
    }
}

impl Followed {
    /// Adds the line to `console`, and to the filtered file if it matches.
    fn give(&self, line: &[u8], console: &mut Vec<u8>) {
        let start = console.len();
        for part in [self.prefix.as_bytes(), line, b"\n"] {
            console.extend_from_slice(part);
        }
        if let Some(filtered) = &self.filtered
            && filtered
                .substrings
                .iter()
                .any(|wanted| contains(line, wanted.as_bytes()))
        {
            // A full disk must not end the launch.
            let _ = (&filtered.file).write_all(&console[start..]);
        }
        if !self.is_shown {
            console.truncate(start);
        }
    }

    /// Does the same for a line that is not in memory.
    fn give_long(&self, line: &LongLine<'_>, console: &mut Console) {
        if let Some(filtered) = &self.filtered
            && filtered
                .substrings
                .iter()
                .any(|wanted| line.contains(wanted.as_bytes()))
        {
            let mut file = &filtered.file;
            let written = file
                .write_all(self.prefix.as_bytes())
                .and_then(|()| line.pieces(|piece| file.write_all(piece)));
            let _ = written.and_then(|()| (&filtered.file).write_all(b"\n"));
        }
        if self.is_shown {
            console.write_long(self.prefix.as_bytes(), line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn followed(path: &Path, filtered: Option<Arc<Filtered>>) -> Followed {
        let path = path.to_path_buf();
        Followed {
            path,
            prefix: "[p]:".to_owned(),
            stream: ConsoleStream::Stdout,
            is_shown: false,
            filtered,
        }
    }

    fn filtered(path: &Path, wanted: &str) -> Option<Arc<Filtered>> {
        let file = File::create(path).expect("a file");
        Some(Arc::new(Filtered {
            file,
            substrings: vec![wanted.to_owned()],
        }))
    }

    #[tokio::test]
    async fn lines_written_before_and_after_the_start_come_prefixed_and_filtered() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, out) = (
            folder.path().join("stdout.log"),
            folder.path().join("filtered.log"),
        );
        let mut writer = File::create(&log).expect("a file");
        writer.write_all(b"an apple\nno\n").expect("written");
        let tail = Tail::start(vec![followed(&log, filtered(&out, "apple"))]).expect("it starts");
        writer.write_all(b"last apple").expect("written");
        tail.finish().await;
        assert_eq!(
            fs::read_to_string(&out).expect("read"),
            "[p]:an apple\n[p]:last apple\n"
        );
    }
}
