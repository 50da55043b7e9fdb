//! One simulator's process: its command line, its socket, its last words, its end.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::last_lines::LastLines;
use super::message::{Malformed, Packet};
use super::pre_exec;
use super::variables::Variable;
use crate::env::shm;

const BOOTSTRAP: &str = include_str!("worker/bootstrap.py");

/// Bytes of a packet, at most: the kernel's default for a Unix socket is 212992.
const LARGEST_PACKET: usize = 1 << 18;

/// A started process; it is killed and reaped by [`super::bridge`], whose thread starts it.
pub struct Process {
    /// Counts processes of one environment, from 0: what events are told apart by.
    pub id: u64,
    /// Commands and answers.
    pub socket: OwnedFd,
    /// Readable when the process has ended, whoever keeps its pipes.
    pub pidfd: OwnedFd,
    /// Its standard output and error.
    pub output: PipeReader,
    /// Shared memory, without a size yet.
    pub memfd: Arc<OwnedFd>,
    /// The last of `output`.
    pub lines: LastLines,
    child: Child,
    group: Pid,
}

/// What came through the socket.
#[derive(Debug)]
pub enum Received {
    /// One packet, or what should have been one.
    Packet(Result<Packet, Malformed>),
    /// None for now.
    Nothing,
    /// None any more.
    Closed,
}

impl Process {
    /// Starts `python`, labelled for `ps`, with these variables. The calling thread has to outlive it.
    ///
    /// # Errors
    /// Those of the system, without a name.
    pub fn start(id: u64, python: &Path, label: &str, variables: &[Variable]) -> io::Result<Self> {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (socket, theirs) = pair;
        ioctl_fionbio(&socket, true)?;
        let memfd = Arc::new(shm::create()?);
        let (output, input) = io::pipe()?;
        ioctl_fionbio(&output, true)?;
        let mut command = Command::new(python);
        command.args(["-u", "-c", BOOTSTRAP, &theirs.as_raw_fd().to_string(), label]);
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        pre_exec::guard(&mut command, Signal::KILL, &[theirs.as_raw_fd(), memfd.as_raw_fd()]);
        let mut child = command.spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let pidfd = pidfd_open(group, PidfdFlags::empty()).inspect_err(|_| {
            // Before Linux 5.3 there are none; the child must not outlive its refusal.
            child.kill().and_then(|()| child.wait()).ok();
        })?;
        Ok(Self { id, socket, pidfd, output, memfd, lines: LastLines::default(), child, group })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Hands a packet over, or says why not.
    ///
    /// # Errors
    /// `EPIPE` if it has ended; `EAGAIN` if it does not read.
    pub fn send(&self, packet: &[u8]) -> Result<(), Errno> {
        send(&self.socket, packet, SendFlags::NOSIGNAL).map(drop)
    }

    /// The next packet.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> Received {
        buffer.resize(LARGEST_PACKET, 0);
        match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => Received::Closed,
            Ok((count, _)) => Received::Packet(Packet::parse(&buffer[..count])),
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }

    /// Reads what it has written: the lines that were ended, and whether there may be more later.
    pub fn listen(&mut self) -> (Vec<String>, bool) {
        let (mut ended, mut piece) = (Vec::new(), [0; 4096]);
        // A process that writes without end is read again when the others had their turn.
        for _ in 0..64 {
            match self.output.read(&mut piece) {
                Ok(0) => return (ended, false),
                Ok(count) => ended.extend(self.lines.push(&piece[..count])),
                Err(_) => break,
            }
        }
        (ended, true)
    }

    /// Kills it and what it started. It has not been reaped, so the number is still its group's.
    pub fn kill(&self) {
        kill_process_group(self.group, Signal::KILL).ok();
    }

    /// How it ended, if it has; then it is reaped.
    pub fn reap(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// How it ended, in words; it is left for [`Process::reap`].
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
