//! One Python process: its command line, its socket, its memory, its output and its exit; what it
//! says, and why nothing more is to be expected of it.

use std::collections::VecDeque;
use std::io::{self, IoSlice, PipeReader, PipeWriter, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};
use rustix::process::Signal;

use crate::python::end::ProcessEnd;
use crate::python::{Program, memory, pre_exec};

const BOOTSTRAP: &str = include_str!("py/bootstrap.py");

/// Maximum bytes of a packet; the kernel's default limit for a Unix socket is 212992.
const LARGEST_PACKET: usize = 1 << 18;

/// Number of lines in a report of the output: enough for a traceback and what came before it.
const LINES: usize = 40;

/// Maximum number of bytes kept of a line.
const LONGEST: usize = 2000;

/// What a process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It begins a stage of its start.
    Stage(String),
    /// What it is, as JSON.
    Hello(Vec<u8>),
    /// A note for the user.
    Note(String),
    /// The answer to a request, or a part of it.
    Answer {
        /// Number of the request.
        sequence: u32,
        /// Number of entries in the body.
        count: u16,
        /// Its contents.
        body: Vec<u8>,
    },
    /// A request failed; the process goes on.
    Failed {
        /// Number of the request.
        sequence: u32,
        /// Why it failed, with the line that raised.
        reason: String,
    },
}

/// Why nothing more is to be expected of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Who says it.
    pub cause: Cause,
    /// A clause about the process: "exited with code 3", "raised ValueError: …"; of a refusal, a
    /// sentence.
    pub text: String,
    /// What it was at.
    pub during: String,
    /// Its last lines of output.
    pub lines: Vec<String>,
    /// Its PID.
    pub pid: u32,
}

/// Who says why a process is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It says that another process would fail, too.
    Refused,
    /// It gives up, because of this copy if it names one.
    GaveUp(Option<u16>),
    /// This side: it exited, was silent, or sent nonsense.
    Seen,
}

/// A started process. Who starts it, kills and reaps it.
pub struct PythonProcess {
    /// Socket for commands and answers, until it is closed.
    pub socket: Option<OwnedFd>,
    /// Its stdout and stderr, until they are closed.
    pub output: Option<PipeReader>,
    /// Shared memory, which has no size yet.
    pub memfd: Arc<OwnedFd>,
    /// The last lines of `output`.
    pub lines: LastLines,
    pub end: ProcessEnd,
}

/// The process's ends of what it is started with: its socket, its memory, and where it writes its
/// output.
struct Theirs<'a>(&'a OwnedFd, &'a OwnedFd, &'a PipeWriter);

impl PythonProcess {
    /// Starts a program, or asks a fork server for its process, which dies with the server. The
    /// calling thread has to outlive the process.
    ///
    /// # Errors
    /// Returns the system's error, without the name of the program.
    pub fn start(program: &Program, server: Option<&Self>) -> io::Result<Self> {
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        ioctl_fionbio(&socket, true)?;
        let memfd = memory::create()?;
        memory::fill(&memfd, program.text().as_bytes())?;
        let (output, input) = io::pipe()?;
        ioctl_fionbio(&output, true)?;
        let theirs = Theirs(&theirs, &memfd, &input);
        let end = match server {
            Some(server) => server.fork(program, theirs),
            None => spawn(program, theirs),
        }?;
        Ok(Self {
            socket: Some(socket),
            output: Some(output),
            memfd: Arc::new(memfd),
            lines: LastLines::default(),
            end,
        })
    }

    /// Asks this fork server for a process.
    fn fork(&self, program: &Program, theirs: Theirs) -> io::Result<ProcessEnd> {
        let Theirs(theirs, memfd, output) = theirs;
        let (exit, status) = io::pipe()?;
        ioctl_fionbio(&exit, true)?;
        let sent = [
            status.as_fd(),
            theirs.as_fd(),
            memfd.as_fd(),
            output.as_fd(),
        ];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&sent));
        let text = [IoSlice::new(program.label.as_bytes())];
        let socket = self.socket.as_ref().ok_or(Errno::PIPE)?;
        sendmsg(socket, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(ProcessEnd::of_forked(exit.into()))
    }

    /// Returns the descriptors that are readable when the process has something: its socket, its
    /// output and its end.
    pub fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let socket = self.socket.as_ref().map(AsFd::as_fd);
        socket.into_iter().chain(self.last_watched())
    }

    /// Returns those of a process that is not listened to any more.
    pub fn last_watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let output = self.output.as_ref().map(AsFd::as_fd);
        output.into_iter().chain([self.end.exit.as_fd()])
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// Returns `EPIPE` if the process has ended, and `EAGAIN` if it does not read.
    pub fn send(&self, packet: &[u8]) -> Result<(), Errno> {
        let socket = self.socket.as_ref().ok_or(Errno::PIPE)?;
        send(socket, packet, SendFlags::NOSIGNAL).map(drop)
    }

    /// Receives the bytes of the next packet into `buffer`; `None` if none is available now. No
    /// bytes mean that the socket is closed.
    pub fn receive<'b>(&self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        let socket = self.socket.as_ref()?;
        buffer.resize(LARGEST_PACKET, 0);
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((count, _)) => Some(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(&[]),
        }
    }

    /// Reads its output; returns the completed lines.
    pub fn listen(&mut self) -> Vec<String> {
        let (mut ended, mut piece) = (Vec::new(), [0; 4096]);
        // A process that writes without end is read again after the others had their turn.
        for _ in 0..64 {
            match self.output.as_mut().map(|output| output.read(&mut piece)) {
                Some(Ok(count)) if count > 0 => ended.extend(self.lines.push(&piece[..count])),
                Some(Ok(_)) => self.output = None,
                Some(Err(_)) | None => break,
            }
        }
        ended
    }
}

fn spawn(program: &Program, theirs: Theirs) -> io::Result<ProcessEnd> {
    let Theirs(socket, memfd, output) = theirs;
    let keep = [socket.as_raw_fd(), memfd.as_raw_fd()];
    let mut command = Command::new(program.python);
    command
        .args(["-u", "-c", BOOTSTRAP])
        .args(keep.map(|fd| fd.to_string()))
        .arg(program.label)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    for (name, value) in program.variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    pre_exec::guard(&mut command, Signal::KILL, &keep);
    ProcessEnd::of_child(command.spawn()?)
}

/// The last lines that a process wrote, from pieces of any size.
#[derive(Debug, Default)]
pub struct LastLines {
    lines: VecDeque<String>,
    open: Vec<u8>,
}

impl LastLines {
    /// Adds a piece of output; returns the lines that it completes.
    pub fn push(&mut self, piece: &[u8]) -> Vec<String> {
        let mut ended = Vec::new();
        for (index, part) in piece.split(|byte| *byte == b'\n').enumerate() {
            if index > 0 {
                ended.push(text(&std::mem::take(&mut self.open)));
            }
            let room = LONGEST.saturating_sub(self.open.len());
            self.open.extend(part.iter().take(room));
        }
        self.lines.extend(ended.iter().cloned());
        let extra = self.lines.len().saturating_sub(LINES);
        self.lines.drain(..extra);
        ended
    }

    /// Returns the lines, including an unfinished last one, without empty lines at the ends.
    pub fn all(&self) -> Vec<String> {
        let open = (!self.open.is_empty()).then(|| text(&self.open));
        let lines = self.lines.iter().cloned().chain(open);
        let mut lines: Vec<_> = lines.skip_while(String::is_empty).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}

/// Returns a line as text, without a trailing carriage return, and with only the last state of a
/// progress bar.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches('\r');
    text.rsplit('\r').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut lines = LastLines::default();
        assert_eq!(lines.push(b"one\ntw"), ["one"]);
        assert_eq!(lines.push(b"o\n10%\r20%"), ["two"]);
        assert_eq!(lines.all(), ["one", "two", "20%"]);
    }

    #[test]
    fn the_last_forty_are_kept() {
        let mut lines = LastLines::default();
        (0..100).for_each(|number| drop(lines.push(format!("{number}\n").as_bytes())));
        assert_eq!((lines.all().len(), lines.all()[0].as_str()), (40, "60"));
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let mut lines = LastLines::default();
        (0..1000).for_each(|_| drop(lines.push(&[b'x'; 1000])));
        assert_eq!(lines.all()[0].len(), 2000);
    }
}
