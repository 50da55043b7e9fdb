//! One Python process: its command line, its socket, its memory, its output and its exit.

use std::io::{self, IoSlice, PipeReader, PipeWriter, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};
use rustix::process::Signal;

use crate::python::end::ProcessEnd;
use crate::python::last_lines::LastLines;
use crate::python::program::Program;
use crate::python::{memory, pre_exec};

const BOOTSTRAP: &str = include_str!("py/bootstrap.py");

/// Maximum bytes of a packet; the kernel's default limit for a Unix socket is 212992.
const LARGEST_PACKET: usize = 1 << 18;

/// A started process. Who starts it, kills and reaps it.
pub struct PythonProcess {
    /// Socket for commands and answers.
    pub socket: OwnedFd,
    /// Readable after the process has ended, even if another process keeps its pipes open. Of a
    /// process that a fork server has started, it is also readable when its PID is there:
    /// [`PythonProcess::has_ended`].
    pub exit: OwnedFd,
    /// Its stdout and stderr.
    pub output: PipeReader,
    /// Shared memory, which has no size yet.
    pub memfd: Arc<OwnedFd>,
    /// The last lines of `output`.
    pub lines: LastLines,
    end: ProcessEnd,
}

/// The descriptors of a process that is about to be started.
struct Descriptors {
    /// This side's end of the socket.
    socket: OwnedFd,
    /// The process's end of the socket.
    theirs: OwnedFd,
    memfd: OwnedFd,
    output: PipeReader,
    /// Where the process writes its output.
    input: PipeWriter,
}

impl Descriptors {
    /// `text` is what the process finds in its memory.
    fn new(text: &str) -> io::Result<Self> {
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        ioctl_fionbio(&socket, true)?;
        let memfd = memory::create()?;
        memory::fill(&memfd, text.as_bytes())?;
        let (output, input) = io::pipe()?;
        ioctl_fionbio(&output, true)?;
        Ok(Self {
            socket,
            theirs,
            memfd,
            output,
            input,
        })
    }

    /// Returns the process that has been given its ends.
    fn of_process(self, end: ProcessEnd, exit: OwnedFd) -> PythonProcess {
        PythonProcess {
            socket: self.socket,
            exit,
            output: self.output,
            memfd: Arc::new(self.memfd),
            lines: LastLines::default(),
            end,
        }
    }
}

impl PythonProcess {
    /// Starts a program. The calling thread has to outlive the process.
    ///
    /// # Errors
    /// Returns the system's error, without the name of the program.
    pub fn start(program: &Program) -> io::Result<Self> {
        let given = Descriptors::new(&program.text())?;
        let mut command = Command::new(program.python);
        command.args([
            "-u",
            "-c",
            BOOTSTRAP,
            &given.theirs.as_raw_fd().to_string(),
            &given.memfd.as_raw_fd().to_string(),
            program.label,
        ]);
        command
            .stdin(Stdio::null())
            .stdout(given.input.try_clone()?)
            .stderr(given.input.try_clone()?);
        for (name, value) in program.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        pre_exec::guard(
            &mut command,
            Signal::KILL,
            &[given.theirs.as_raw_fd(), given.memfd.as_raw_fd()],
        );
        let child = command.spawn()?;
        let (end, exit) = ProcessEnd::of_child(child)?;
        Ok(given.of_process(end, exit))
    }

    /// Asks a fork server for a process. It dies with the server.
    ///
    /// # Errors
    /// Returns the system's error if the server cannot be asked.
    pub fn fork(program: &Program, server: &Self) -> io::Result<Self> {
        let given = Descriptors::new(&program.text())?;
        let (exit, status) = io::pipe()?;
        ioctl_fionbio(&exit, true)?;
        let (theirs, memfd) = (given.theirs.as_fd(), given.memfd.as_fd());
        let sent = [status.as_fd(), theirs, memfd, given.input.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&sent));
        let text = [IoSlice::new(program.label.as_bytes())];
        sendmsg(&server.socket, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(given.of_process(ProcessEnd::of_forked(), exit.into()))
    }

    /// Returns the PID; 0 if a fork server has not told it yet.
    pub fn pid(&self) -> u32 {
        self.end.pid()
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// Returns `EPIPE` if the process has ended, and `EAGAIN` if it does not read.
    pub fn send(&self, packet: &[u8]) -> Result<(), Errno> {
        send(&self.socket, packet, SendFlags::NOSIGNAL).map(drop)
    }

    /// Receives the bytes of the next packet into `buffer`; `None` if none is available now. No
    /// bytes mean that the socket is closed.
    pub fn receive<'b>(&self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        buffer.resize(LARGEST_PACKET, 0);
        match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((count, _)) => Some(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(&[]),
        }
    }

    /// Reads its output; returns the completed lines, and whether there may be more later.
    pub fn listen(&mut self) -> (Vec<String>, bool) {
        let (mut ended, mut piece) = (Vec::new(), [0; 4096]);
        // A process that writes without end is read again after the others had their turn.
        for _ in 0..64 {
            match self.output.read(&mut piece) {
                Ok(0) => return (ended, false),
                Ok(count) => ended.extend(self.lines.push(&piece[..count])),
                Err(_) => break,
            }
        }
        (ended, true)
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.end.has_ended(&self.exit)
    }

    /// Kills the process and everything it started. It has not been reaped, so the number is still
    /// that of its group.
    pub fn kill(&mut self) {
        self.end.kill(&self.exit);
    }

    /// Reaps the process if it has ended; returns whether it has.
    pub fn reap(&mut self) -> bool {
        self.end.reap(&self.exit)
    }

    /// Returns how the process ended, as text, without reaping it; see [`PythonProcess::reap`].
    pub fn ending(&self) -> String {
        self.end.describe()
    }
}
