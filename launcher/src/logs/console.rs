//! The launcher's own output streams, to which lines of ranks are written.

use std::fs::File;
use std::io::{self, ErrorKind, StderrLock, StdoutLock, Write};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

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
