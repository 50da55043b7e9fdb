//! Captures registers and stack memory of all threads of a process while it stands still.
//!
//! ```text
//! facts ─► PTRACE_SEIZE ─► PTRACE_INTERRUPT ─► wait for the stop ─► registers, stack ─► PTRACE_DETACH
//! ```
//! The process notices nothing: system calls are restarted by the kernel, and a signal that arrives
//! in between is delivered afterwards. A thread that does not stop in time is let go by the kernel
//! when the thread that captures it ends (ptrace(2)).

use std::fs;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::UnwindRegsAarch64 as UnwindRegisters;
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::UnwindRegsX86_64 as UnwindRegisters;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::facts::Facts;
use crate::native::{Mapping, mappings};

/// Threads of one process beyond this number are not captured.
const MAX_THREADS: usize = 1024;

/// Bytes of each stack that are copied, from its innermost frame on.
const MAX_STACK: u64 = 256 << 10;

/// Bytes below the stack pointer that a leaf function may use (System V ABI: the red zone).
const RED_ZONE: u64 = 128;

/// How long a thread may take to stop. It stops at once, unless it is in the kernel and cannot be
/// interrupted.
pub const STOP_TIME: Duration = Duration::from_millis(200);

/// What was captured of one process.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// Its process id.
    pub pid: i32,
    /// Its memory mappings.
    pub mappings: Vec<Mapping>,
    /// Its threads; the first one is the main thread.
    pub threads: Vec<CapturedThread>,
    /// What could not be captured, and why.
    pub notes: Vec<String>,
}

/// What was captured of one thread.
#[derive(Clone, Debug, Default)]
pub struct CapturedThread {
    /// Its thread id.
    pub tid: i32,
    /// Its name, and what it does in the kernel.
    pub facts: Facts,
    /// What it does in the kernel, in words.
    pub doing: String,
    /// The address of its next instruction, and its registers; `None` if it could not be stopped.
    pub registers: Option<(u64, UnwindRegisters)>,
    /// Memory of its stack.
    pub stack: Stack,
}

/// A copy of stack memory.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Stack {
    /// Reads the word at `address`.
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// Captures the process `pid`. Threads that cannot be stopped, for want of permission or because
/// the kernel does not let them, are returned without registers, and a note says why. Those that do
/// not stop within `patience` stop later, until the calling thread ends.
pub fn capture(pid: i32, patience: Duration) -> Captured {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut captured = Captured {
        pid,
        mappings: mappings(&maps),
        ..Captured::default()
    };
    let (mut refused, mut late) = (None, 0);
    for tid in thread_ids(pid) {
        let facts = Facts::read(pid, tid);
        let mut thread = CapturedThread {
            tid,
            doing: facts.doing(pid),
            facts,
            ..CapturedThread::default()
        };
        match thread.stop(pid, patience) {
            Ok(true) => {}
            Ok(false) => late += 1,
            Err(err) => {
                refused.get_or_insert(err);
            }
        }
        captured.threads.push(thread);
    }
    let mut facts = captured.threads.iter().map(|thread| &thread.facts);
    let knows_waits = facts.any(|facts| facts.call.is_some() || facts.wait_channel.is_some());
    let refusal = refused.map(|err| refusal(err, knows_waits));
    captured.notes.extend(refusal);
    if late > 0 {
        captured.notes.push(format!(
            "{late} of its threads did not stop within {} ms and have no stack here",
            patience.as_millis()
        ));
    }
    captured
}

/// Returns why there are no native stacks. `knows_waits` tells whether the kernel says what threads
/// wait for.
fn refusal(err: Errno, knows_waits: bool) -> String {
    let reason = match err {
        Errno::EPERM | Errno::EACCES => {
            "ptrace is not permitted here (kernel.yama.ptrace_scope, a container without \
             SYS_PTRACE, or another debugger)"
        }
        err => err.desc(),
    };
    let rest = match knows_waits {
        true => "what its threads do in the kernel is known",
        false => "what its threads do in the kernel cannot be read either",
    };
    format!("its native stacks cannot be read: {reason}; {rest}")
}

/// Returns the ids of the threads of `pid`, the main thread first.
fn thread_ids(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let mut ids: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable_by_key(|tid| (*tid != pid, *tid));
    ids.truncate(MAX_THREADS);
    ids
}

impl CapturedThread {
    /// Stops the thread for as long as it takes to copy its registers and its stack. Returns false
    /// if it has not stopped in time, and will stop later.
    fn stop(&mut self, pid: i32, patience: Duration) -> Result<bool, Errno> {
        if matches!(self.facts.state, 'D' | 'Z' | 'X') {
            return Ok(true);
        }
        let id = Pid::from_raw(self.tid);
        ptrace::seize(id, Options::empty())?;
        match interrupted(id, self.tid == pid, patience) {
            None => return Ok(false),
            Some(Stop::Gone) => {}
            Some(Stop::At(signal)) => {
                self.registers = registers(id);
                if let Some((_, registers)) = self.registers {
                    self.stack = stack(pid, registers.sp());
                }
                ptrace::detach(id, signal).ok();
            }
        }
        Ok(true)
    }
}

/// How a thread stopped.
enum Stop {
    /// It stands still; this signal is to be delivered when it goes on.
    At(Option<Signal>),
    /// It has ended.
    Gone,
}

/// Interrupts the thread and waits until it stands still; `None` if that takes too long.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel reports the stop of a foreign thread by `waitid` only, which has no timeout"
)]
fn interrupted(tid: Pid, is_leader: bool, patience: Duration) -> Option<Stop> {
    if ptrace::interrupt(tid).is_err() {
        return Some(Stop::Gone);
    }
    let deadline = Instant::now() + patience;
    loop {
        if let Some(stop) = stop_of(tid, is_leader) {
            return Some(stop);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Returns how the thread stopped, if it has. A leader is not waited for: if it is a child that has
/// ended, its exit code is for the parent. Any other thread that has ended is waited for: until
/// then its process has not.
fn stop_of(tid: Pid, is_leader: bool) -> Option<Stop> {
    let mut flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::__WALL;
    flags.set(WaitPidFlag::WNOWAIT, is_leader);
    match waitid(Id::Pid(tid), flags | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => None,
        // Without an event it stands before a signal.
        Ok(WaitStatus::PtraceEvent(_, signal, event)) => {
            Some(Stop::At((event == 0).then_some(signal)))
        }
        // `nix` has no name for a real-time signal, so it cannot be delivered again.
        Err(Errno::EINVAL) => Some(Stop::At(None)),
        Ok(_) | Err(_) => Some(Stop::Gone),
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(tid: Pid) -> Option<(u64, UnwindRegisters)> {
    let all = ptrace::getregs(tid).ok()?;
    Some((all.rip, UnwindRegisters::new(all.rip, all.rsp, all.rbp)))
}

#[cfg(target_arch = "aarch64")]
fn registers(tid: Pid) -> Option<(u64, UnwindRegisters)> {
    let all = ptrace::getregs(tid).ok()?;
    let registers = UnwindRegisters::new(all.regs[30], all.sp, all.regs[29]);
    Some((all.pc, registers))
}

/// Copies the stack from its innermost frame on, up to [`MAX_STACK`], as far as it is mapped.
fn stack(pid: i32, pointer: u64) -> Stack {
    /// Memory is mapped in pages; one that is not ends the copy.
    const PAGES: u64 = 16 * 4096;
    let start = pointer.saturating_sub(RED_ZONE);
    let end = start.saturating_add(MAX_STACK);
    let (mut bytes, mut at) = (Vec::new(), start);
    while at < end {
        let next = (at / PAGES)
            .saturating_add(1)
            .saturating_mul(PAGES)
            .min(end);
        let mut piece = vec![0; usize::try_from(next - at).unwrap_or(0)];
        let from = [RemoteIoVec {
            base: usize::try_from(at).unwrap_or(usize::MAX),
            len: piece.len(),
        }];
        let into = &mut [IoSliceMut::new(&mut piece)];
        let copied = process_vm_readv(Pid::from_raw(pid), into, &from).unwrap_or(0);
        bytes.extend_from_slice(&piece[..copied]);
        if copied < piece.len() {
            break;
        }
        at = next;
    }
    Stack { start, bytes }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_exit_of_a_child_that_ends_meanwhile_is_left_to_its_parent() {
        let mut child = Command::new("sleep")
            .arg("100")
            .spawn()
            .expect("sleep starts");
        let tid = Pid::from_raw(child.id().cast_signed());
        ptrace::seize(tid, Options::empty()).expect("a child may be traced");
        child.kill().expect("it runs");
        rig::wait::until("its end", || {
            matches!(stop_of(tid, true), Some(Stop::Gone)).then_some(())
        });
        let status = child.wait().expect("it has not been waited for");
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    }

    #[test]
    fn a_thread_that_ends_meanwhile_does_not_hold_the_exit_of_its_process() {
        let script = "import sys, threading, time\n\
                      threading.Thread(target=sys.stdin.readline).start()\n\
                      time.sleep(1000)";
        let mut child = Command::new(rig::PYTHON)
            .args(["-c", script])
            .stdin(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let pid = child.id().cast_signed();
        let tid = rig::wait::until("a second thread", || thread_ids(pid).get(1).copied());
        let tid = Pid::from_raw(tid);
        ptrace::seize(tid, Options::empty()).expect("a child may be traced");
        drop(child.stdin.take());
        rig::wait::until("its end", || {
            matches!(stop_of(tid, false), Some(Stop::Gone))
        });
        child.kill().expect("it runs");
        rig::wait::until("the end of its process", || {
            child.try_wait().expect("a child")
        });
    }

    #[test]
    fn a_word_outside_the_copy_is_none() {
        let stack = Stack {
            start: 16,
            bytes: vec![1, 0, 0, 0, 0, 0, 0, 0, 9],
        };
        assert_eq!(stack.word(16), Some(1_u64.to_le()));
        assert_eq!(stack.word(8), None);
        assert_eq!(stack.word(17), Some(u64::to_le(9 << 56)));
        assert_eq!(stack.word(18), None);
        assert_eq!(stack.word(u64::MAX), None);
    }
}
