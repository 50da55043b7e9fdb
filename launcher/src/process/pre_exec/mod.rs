//! The steps of a rank between `fork` and `exec`: its own session, death with the launcher, default
//! signals, closed descriptors, its streams, its working directory, its CPUs and its limits.
//!
//! This is the only unsafe code of the launcher. The child is a copy of a process that may have had
//! other threads, so the code that runs in it makes system calls and nothing else: no allocation,
//! no lock, no log line.

use std::ffi::c_char;
use std::io::{self, PipeWriter};
use std::mem::MaybeUninit;
use std::ptr;

use nix::errno::Errno;
use nix::sched::sched_setaffinity;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{
    ForkResult, Pid, chdir, dup2_stderr, dup2_stdout, getpid, getppid, setsid, write,
};

use crate::process::command::ChildCommand;
use crate::process::exit::Exit;
use crate::process::usage::Usage;

unsafe extern "C" {
    /// The environment of this process, where `execvp` looks for the `PATH`.
    static mut environ: *const *const c_char;
}

/// The report of a child that could not execute its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecReport {
    /// Index of the child.
    pub index: u32,
    /// The error number of the failed call.
    pub errno: i32,
}

impl ExecReport {
    fn to_bytes(self) -> [u8; 8] {
        ((u64::from(self.index) << 32) | u64::from(self.errno.cast_unsigned())).to_ne_bytes()
    }

    /// Decodes a report as it was read from the pipe.
    pub fn from_bytes(bytes: [u8; 8]) -> ExecReport {
        let both = u64::from_ne_bytes(bytes);
        ExecReport {
            index: (both >> 32) as u32,
            errno: (both as u32).cast_signed(),
        }
    }
}

/// Forks a rank. The rank leads a session of its own, is killed by the kernel when the calling
/// thread ends, has the signal dispositions of a fresh process, and has no descriptor of the
/// launcher except the standard three. Does not wait for the rank; if it cannot execute its
/// program, it writes a report with `index` to `reports`.
///
/// The thread that forks must live as long as the ranks: `PR_SET_PDEATHSIG` refers to the thread,
/// not to the process.
pub fn fork(command: &ChildCommand<'_>, index: usize, reports: &PipeWriter) -> io::Result<Pid> {
    let null_ended = |pointers: &mut dyn Iterator<Item = *const c_char>| -> Vec<*const c_char> {
        pointers.chain([ptr::null()]).collect()
    };
    let argv = null_ended(&mut command.argv.iter().map(|word| word.as_ptr()));
    let env = null_ended(&mut command.env.iter().map(|entry| entry.as_ptr()));
    let index = u32::try_from(index).map_err(io::Error::other)?;
    let launcher = getpid();
    // SAFETY: the child only makes async-signal-safe calls (see `become_program`, write, _exit) and
    // never returns.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let errno = prepare(command, launcher)
                .map_or_else(|errno| errno, |()| become_program(&argv, &env));
            // If the pipe has no reader, the launcher is gone and nothing waits for this rank.
            let _ = write(
                reports,
                &ExecReport {
                    index,
                    errno: errno as i32,
                }
                .to_bytes(),
            );
            // SAFETY: `_exit` ends this copy of the launcher without running any of its code.
            unsafe { libc::_exit(127) }
        }
    }
}

/// In the child: does everything that has to happen before `exec`.
fn prepare(command: &ChildCommand<'_>, launcher: Pid) -> nix::Result<()> {
    setsid()?;
    set_pdeathsig(Signal::SIGKILL)?;
    // The launcher may have died before the call above took effect; then nothing would kill this
    // rank.
    if getppid() != launcher {
        return Err(Errno::ESRCH);
    }
    if let Some(file) = &command.stdout {
        dup2_stdout(file)?;
    }
    if let Some(file) = &command.stderr {
        dup2_stderr(file)?;
    }
    if let Some(folder) = &command.folder {
        chdir(folder.as_c_str())?;
    }
    if let Some(cpus) = &command.cpus {
        sched_setaffinity(Pid::from_raw(0), cpus)?;
    }
    if let Some(limit) = command.open_files {
        // A limit that the rank may not have stays as it is.
        let _ = limit.apply();
    }
    restore_signals()?;
    close_others_on_exec();
    Ok(())
}

/// In the child: executes the program. Returns the error number if that fails.
fn become_program(argv: &[*const c_char], env: &[*const c_char]) -> Errno {
    // SAFETY: both lists consist of C strings, end with a null pointer and live in the caller's
    // frame, of which the child has a copy. `environ` belongs to this process, which has its own
    // memory and one thread. `execvp` of glibc and musl allocates on the stack only.
    unsafe {
        environ = env.as_ptr();
        libc::execvp(argv[0], argv.as_ptr());
    }
    Errno::last()
}

/// Restores ignored signals, which `exec` would keep ignored: SIGPIPE, which Rust ignores, and
/// SIGXFSZ, which Python ignores (its `restore_signals` resets both). `exec` itself resets signals
/// that have a handler.
fn restore_signals() -> nix::Result<()> {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: `SIG_DFL` is a valid disposition and both signals are catchable; no Rust handler
        // for them exists.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Marks every descriptor from 3 on to be closed by `exec`; the pipe for reports stays usable until
/// then. Kernels before 5.11 do not know the flag; there, inherited descriptors without it stay
/// open.
fn close_others_on_exec() {
    // SAFETY: `close_range` with CLOSE_RANGE_CLOEXEC closes nothing and touches no memory; a
    // failure is harmless.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// Sends `signal` to a process group. Real-time signals work too, for which `nix` has no names. A
/// group that is gone, and a number that is not a signal, are ignored.
pub fn signal_group(group: Pid, signal: i32) {
    // SAFETY: `killpg` takes two numbers and touches no memory of this process.
    unsafe { libc::killpg(group.as_raw(), signal) };
}

/// Returns how the child `pid` ended and what it used, or `None` if it is alive. The child is not
/// reaped. The function is in this module because it needs unsafe code: `nix` has no `waitid` with
/// the kernel's fifth argument, and no names for real-time signals.
pub fn ended(pid: Pid) -> io::Result<Option<(Exit, Usage)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let (to_info, to_usage) = (info.as_mut_ptr(), usage.as_mut_ptr());
    // SAFETY: the kernel writes at most one `siginfo_t` and one `rusage`, which outlive the call;
    // WNOWAIT leaves the child as it is.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PID,
            pid.as_raw(),
            to_info,
            options,
            to_usage,
        )
    };
    Errno::result(result)?;
    // SAFETY: zeroes are valid for both types, and the kernel has either written valid values over
    // them or nothing. For a child that ended it fills in the fields of SIGCHLD.
    let (found, status, info, usage) = unsafe {
        let info = info.assume_init();
        (
            info.si_pid(),
            info.si_status(),
            info,
            usage.assume_init_ref(),
        )
    };
    let exit = if info.si_code == libc::CLD_EXITED {
        Exit::Code(status)
    } else {
        Exit::Signal(status)
    };
    // A child that is stopped for its stacks to be read is reported here, too.
    let ends = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
    let has_ended = found != 0 && ends.contains(&info.si_code);
    Ok(has_ended.then(|| (exit, Usage::new(usage))))
}

#[cfg(test)]
mod tests;
