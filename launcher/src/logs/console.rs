//! The launcher's own output streams, to which lines of ranks are written.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::logs::long_line::LongLine;

/// One of the two output streams of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An output stream of the launcher. Once it is broken, for instance a closed pipe, writes have no
/// effect.
#[derive(Debug)]
pub struct Console {
    stream: ConsoleStream,
    file: Option<File>,
}

impl Console {
    /// Opens one of the launcher's streams.
    pub fn open(stream: ConsoleStream) -> Console {
        let fd = match stream {
            ConsoleStream::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            ConsoleStream::Stderr => io::stderr().as_fd().try_clone_to_owned(),
        };
        Console {
            stream,
            file: fd.ok().map(File::from),
        }
    }

    /// Writes whole lines, which no other output of this process can interrupt. Blocks if the
    /// reader is slow.
    pub fn write(&mut self, lines: &[u8]) {
        self.locked(|file| write_all(file, lines));
    }

    /// Does the same for one line that is not in memory.
    pub fn write_long(&mut self, prefix: &[u8], line: &LongLine<'_>) {
        self.locked(|file| {
            write_all(file, prefix)?;
            line.pieces(|piece| write_all(file, piece))?;
            write_all(file, b"\n")
        });
    }

    fn locked(&mut self, write: impl FnOnce(&mut File) -> io::Result<()>) {
        let Some(file) = self.file.as_mut() else {
            return;
        };
        let result = match self.stream {
            ConsoleStream::Stdout => {
                let _lock = io::stdout().lock();
                write(file)
            }
            ConsoleStream::Stderr => {
                let _lock = io::stderr().lock();
                write(file)
            }
        };
        if result.is_err() {
            self.file = None;
        }
    }
}

/// Works as `Write::write_all`, but also for a terminal or pipe that another process has made
/// non-blocking.
fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            Err(err) if err.kind() == ErrorKind::WouldBlock => {
                poll(
                    &mut [PollFd::new(file.as_fd(), PollFlags::POLLOUT)],
                    PollTimeout::NONE,
                )?;
            }
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

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
        write_all(&mut File::from(OwnedFd::from(ours)), &bytes).expect("all of it");
        assert_eq!(reader.join().expect("no panic").expect("read"), expected);
    }

    #[test]
    fn a_stream_without_reader_is_given_up() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        let mut console = Console {
            stream: ConsoleStream::Stdout,
            file: Some(File::from(OwnedFd::from(ours))),
        };
        console.write(b"line\n");
        assert!(console.file.is_none());
    }
}
