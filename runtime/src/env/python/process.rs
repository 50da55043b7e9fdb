//! One Python process, of a simulator or of a policy: its command line, its socket, its output and
//! its exit.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::env::python::last_lines::LastLines;
use crate::env::python::message::{Malformed, Packet};
use crate::env::python::pre_exec;
use crate::env::python::shm;
use crate::env::python::variables::Variable;

const BOOTSTRAP: &str = include_str!("worker/bootstrap.py");

/// Maximum bytes of a packet; the kernel's default limit for a Unix socket is 212992.
pub const LARGEST_PACKET: usize = 1 << 18;

/// A started process. Who starts it, kills and reaps it: [`crate::env::python::bridge`] or a policy
/// of the type `python`, each in its own thread.
pub struct PythonProcess {
    /// Number of the process within its environment, from 0; identifies its events.
    pub id: u64,
    /// Socket for commands and answers.
    pub socket: OwnedFd,
    /// Readable after the process has ended, even if another process keeps its pipes open.
    pub pidfd: OwnedFd,
    /// Its stdout and stderr.
    pub output: PipeReader,
    /// Shared memory, which has no size yet.
    pub memfd: Arc<OwnedFd>,
    /// The last lines of `output`.
    pub lines: LastLines,
    child: Child,
    group: Pid,
}

/// The result of receiving from the socket.
#[derive(Debug)]
pub enum ReceivedPacket {
    /// One packet, valid or not.
    Packet(Result<Packet, Malformed>),
    /// No packet is available now.
    Nothing,
    /// The socket is closed.
    Closed,
}

impl PythonProcess {
    /// Starts `python` with these variables and a label for `ps`. The calling thread has to outlive
    /// the process.
    ///
    /// # Errors
    /// Returns the system's error, without the name of the program.
    pub fn start(id: u64, python: &Path, label: &str, variables: &[Variable]) -> io::Result<Self> {
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let (socket, theirs) = pair;
        ioctl_fionbio(&socket, true)?;
        let memfd = Arc::new(shm::create()?);
        let (output, input) = io::pipe()?;
        ioctl_fionbio(&output, true)?;
        let mut command = Command::new(python);
        command.args([
            "-u",
            "-c",
            BOOTSTRAP,
            &theirs.as_raw_fd().to_string(),
            label,
        ]);
        command
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        pre_exec::guard(
            &mut command,
            Signal::KILL,
            &[theirs.as_raw_fd(), memfd.as_raw_fd()],
        );
        let mut child = command.spawn()?;
        let group = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(io::ErrorKind::InvalidData)?;
        let pidfd = pidfd_open(group, PidfdFlags::empty()).inspect_err(|_| {
            // Kernels before 5.3 have no pidfds; the child must not outlive this error.
            child.kill().and_then(|()| child.wait()).ok();
        })?;
        Ok(Self {
            id,
            socket,
            pidfd,
            output,
            memfd,
            lines: LastLines::default(),
            child,
            group,
        })
    }

    /// Returns the PID.
    pub fn pid(&self) -> u32 {
        self.child.id()
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
    pub fn receive_bytes<'b>(&self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        buffer.resize(LARGEST_PACKET, 0);
        match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((count, _)) => Some(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(&[]),
        }
    }

    /// Receives the next packet of a simulator.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> ReceivedPacket {
        match self.receive_bytes(buffer) {
            None => ReceivedPacket::Nothing,
            Some([]) => ReceivedPacket::Closed,
            Some(bytes) => ReceivedPacket::Packet(Packet::parse(bytes)),
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

    /// Kills the process and everything it started. It has not been reaped, so the number is still
    /// that of its group.
    pub fn kill(&self) {
        kill_process_group(self.group, Signal::KILL).ok();
    }

    /// Reaps the process if it has ended, and returns its exit status.
    pub fn reap(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Returns how the process ended, as text, without reaping it; see [`PythonProcess::reap`].
    pub fn ending(&self) -> String {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.group), options) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exited with code {code}"),
                (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
                (None, None) => "ended".to_owned(),
            },
            _ => "closed its connection".to_owned(),
        }
    }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        _ => return ExitStatus::from_raw(number).to_string(),
    };
    name.to_owned()
}
