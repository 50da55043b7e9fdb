//! The steps of a rank between its creation and `exec`: its own session, death with the launcher,
//! default signals, closed descriptors, its streams, its working directory, its CPUs and its limits.
//!
//! Most of the unsafe code of the launcher is here and in [`kernel`]. A child shares the memory of
//! the launcher until `exec`, like a thread: nothing is copied, so a rank costs the same however
//! much memory the launcher has. Unlike after `vfork`, the launcher goes on meanwhile, so
//! that a child which waits for a CPU delays nobody. Two rules follow. The code of the child makes
//! system calls and nothing else: no allocation, no lock, no log line, and not even the `errno` of
//! the C library, which belongs to the launcher's thread. And what it reads lives until every child
//! is gone from the shared memory: [`Nursery`] waits for that when it is dropped.
//!
//! No handler of the launcher runs in a child, because signals are blocked until the handlers have
//! been removed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;

use jobs::programs::DEFAULT_PATH;
use nix::errno::Errno;
use nix::sched::CpuSet;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{Pid, getpid};

use crate::node::FileLimit;
use crate::process::command::ChildCommand;
use crate::process::exit::{Exit, Usage};
use kernel::call;

mod kernel;

/// Words of the stack of a child, 16 KiB. Its deepest call needs less than 2 KiB.
const STACK: usize = 1024;

/// Highest signal number of Linux on all platforms but MIPS.
const MAX_SIGNAL: c_int = 64;

/// The shell that runs a script without `#!`, as `execvp` does.
const SHELL: &CStr = c"/bin/sh";

/// Bytes of a signal set of the kernel.
const SIGNAL_SET: usize = 8;

/// Children on their way to `exec`. Signals are blocked in the calling thread while it lives.
#[derive(Debug)]
pub struct Nursery {
    reader: PipeReader,
    /// `None` after [`Nursery::wait`]. Children have copies, which `exec` or their end closes.
    writer: Option<PipeWriter>,
    /// The signals that a child has to reset.
    signals: Vec<c_int>,
    /// The signals that were blocked before.
    before: SigSet,
    children: Vec<(Box<Orders>, Vec<u128>)>,
}

/// What a child does, in the memory that it shares with the launcher.
#[derive(Debug)]
struct Orders {
    index: u32,
    launcher: Pid,
    reports: RawFd,
    signals: Vec<c_int>,
    command: ChildCommand,
    /// The files to try for the program, in their order.
    files: Vec<CString>,
    /// Pointers to what the command has, which end with a null pointer.
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    /// The arguments for the shell: itself, the script, and those of the program.
    script: Vec<*const c_char>,
}

/// Returns pointers to these words, and a null pointer behind them. They stay valid when the vector
/// moves: they lead to what its strings own.
fn pointers(words: &[CString]) -> Vec<*const c_char> {
    let pointers = words.iter().map(|word| word.as_ptr());
    pointers.chain([ptr::null()]).collect()
}

impl Nursery {
    /// Blocks the signals.
    pub fn new() -> io::Result<Nursery> {
        let (reader, writer) = io::pipe()?;
        let mut before = SigSet::empty();
        let all = SigSet::all();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&all), Some(&mut before))?;
        Ok(Nursery {
            reader,
            writer: Some(writer),
            signals: (1..=MAX_SIGNAL).filter(|&it| is_to_reset(it)).collect(),
            before,
            children: Vec::new(),
        })
    }

    /// Creates the next rank, and does not wait for it. The rank leads a session of its own, is
    /// killed by the kernel when the calling thread ends, has the signal dispositions of a fresh
    /// process, and has no descriptor of the launcher except the standard three. If it cannot
    /// execute its program, [`Nursery::wait`] returns its report.
    ///
    /// The thread that creates ranks must live as long as they do: `PR_SET_PDEATHSIG` refers to the
    /// thread, not to the process.
    pub fn start(&mut self, command: ChildCommand) -> io::Result<Pid> {
        let Some(reports) = &self.writer else {
            return Err(io::Error::other("the start is over"));
        };
        let program = command.argv.first().ok_or(Errno::ENOENT)?;
        let argv = pointers(&command.argv);
        let mut child = Box::new(Orders {
            index: u32::try_from(self.children.len()).map_err(io::Error::other)?,
            launcher: getpid(),
            reports: reports.as_raw_fd(),
            signals: self.signals.clone(),
            files: candidates(program, command.env.iter().map(AsRef::as_ref)),
            script: [&[SHELL.as_ptr(), ptr::null()], &argv[1..]].concat(),
            env: pointers(&command.env),
            argv,
            command,
        });
        let mut stack = vec![0_u128; STACK];
        // SAFETY: the stack grows down from the end of a vector, which is aligned to 16 bytes and
        // used by this child alone. Stack and orders are kept until `wait` has seen that the child
        // is gone from the shared memory, or for good; nothing touches them before. The child makes
        // system calls only, and with all signals blocked no handler runs in it.
        let pid = Errno::result(unsafe {
            libc::clone(
                begin,
                stack.as_mut_ptr_range().end.cast(),
                libc::CLONE_VM | libc::SIGCHLD,
                (&raw mut *child).cast(),
            )
        })?;
        self.children.push((child, stack));
        Ok(Pid::from_raw(pid))
    }

    /// Waits until every child executes its program or has ended. Returns the first of those that
    /// could not, whichever report came first: its index, and the error.
    ///
    /// # Errors
    /// Returns an error if the pipe cannot be read.
    pub fn wait(&mut self) -> io::Result<Option<(usize, io::Error)>> {
        self.writer = None;
        let mut reports = Vec::new();
        if let Err(err) = self.reader.read_to_end(&mut reports) {
            // Children may still be here: what they read must stay.
            mem::take(&mut self.children).leak();
            return Err(err);
        }
        self.children.clear();
        let (numbers, _) = reports.as_chunks();
        let numbers: Vec<u32> = numbers.iter().copied().map(u32::from_ne_bytes).collect();
        let (reports, _) = numbers.as_chunks();
        let first = reports.iter().min_by_key(|[index, _]| *index);
        Ok(first.map(|&[index, errno]| {
            let err = io::Error::from_raw_os_error(errno.cast_signed());
            (index as usize, err)
        }))
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        if self.writer.is_some() {
            // The caller does not want the reports.
            let _ = self.wait();
        }
        // It was the mask before, so it can be set.
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

/// Returns whether a child has to reset this signal: one with a handler, which must not run in the
/// shared memory, and the ignored ones that `exec` would keep ignored: SIGPIPE, which Rust ignores,
/// and SIGXFSZ, which Python ignores (its `restore_signals` resets both).
fn is_to_reset(signal: c_int) -> bool {
    match disposition(signal) {
        libc::SIG_DFL => false,
        libc::SIG_IGN => [libc::SIGPIPE, libc::SIGXFSZ].contains(&signal),
        _ => true,
    }
}

/// Returns whether this process ignores a signal, as SIGHUP under `nohup`.
pub fn is_ignored(signal: c_int) -> bool {
    disposition(signal) == libc::SIG_IGN
}

/// Returns what this process does on a signal.
fn disposition(signal: c_int) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call writes the action of a signal and changes nothing; it fails for the numbers
    // that the C library keeps for itself, and then the zeroes stay, which are SIG_DFL.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

/// The first function of a child.
extern "C" fn begin(orders: *mut c_void) -> c_int {
    // SAFETY: `Nursery::start` passes its orders and does not touch them while this runs.
    let orders = unsafe { &mut *orders.cast::<Orders>() };
    let errno = prepare(orders).map_or_else(|errno| errno, |()| become_program(orders));
    let report = [orders.index, errno.cast_unsigned()];
    // If the pipe has no reader, the launcher is gone and nothing waits for this rank.
    let (pipe, bytes) = (orders.reports as usize, report.as_ptr().addr());
    let to = [pipe, bytes, size_of_val(&report), 0, 0];
    // SAFETY: `write` reads the array; `exit_group` ends this child without any code of the
    // launcher.
    unsafe {
        let _ = call(libc::SYS_write, to);
        let _ = call(libc::SYS_exit_group, [127, 0, 0, 0, 0]);
    }
    127
}

/// In the child: does everything that has to happen before `exec`. Returns the error number of the
/// first call that failed.
fn prepare(orders: &Orders) -> Result<(), c_int> {
    // SAFETY: all pointers lead to memory of `orders` or of this frame, with the sizes given; the
    // calls keep none of them.
    unsafe {
        call(libc::SYS_setsid, [0; 5])?;
        let (death, kill) = (libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize);
        call(libc::SYS_prctl, [death, kill, 0, 0, 0])?;
        // The launcher may have died before the call above took effect; then nothing would kill
        // this rank.
        if call(libc::SYS_getppid, [0; 5])? != orders.launcher.as_raw() as usize {
            return Err(libc::ESRCH);
        }
        let ChildCommand { output, .. } = &orders.command;
        for (file, stream) in [(&output.stdout, 1), (&output.stderr, 2)] {
            if let Some(file) = file {
                call(libc::SYS_dup3, [file.as_raw_fd() as usize, stream, 0, 0, 0])?;
            }
        }
        if let Some(folder) = &orders.command.folder {
            call(libc::SYS_chdir, [folder.as_ptr().addr(), 0, 0, 0, 0])?;
        }
        if let Some(cpus) = &orders.command.cpus {
            let set = [0, size_of::<CpuSet>(), (&raw const *cpus).addr(), 0, 0];
            call(libc::SYS_sched_setaffinity, set)?;
        }
        if let Some(FileLimit { soft, hard }) = orders.command.open_files {
            let (which, limit) = (libc::RLIMIT_NOFILE as usize, [soft, hard]);
            // A limit that the rank may not have stays as it is.
            let _ = call(libc::SYS_prlimit64, [0, which, limit.as_ptr().addr(), 0, 0]);
        }
        close_others_on_exec();
        restore_signals(&orders.signals)
    }
}

/// In the child: executes the program. Returns the error number if that fails, as `execvp` does.
fn become_program(orders: &mut Orders) -> c_int {
    let [argv, env] = [&orders.argv, &orders.env].map(|words| words.as_ptr().addr());
    let mut failed = libc::ENOENT;
    for file in &orders.files {
        let path = file.as_ptr();
        // SAFETY: all lists consist of C strings that outlive the call, and end with a null
        // pointer.
        let mut result = unsafe { call(libc::SYS_execve, [path.addr(), argv, env, 0, 0]) };
        if result == Err(libc::ENOEXEC) {
            orders.script[1] = path;
            let script = orders.script.as_ptr().addr();
            // SAFETY: as above.
            result = unsafe {
                let words = [SHELL.as_ptr().addr(), script, env, 0, 0];
                call(libc::SYS_execve, words)
            };
        }
        let Err(errno) = result else { continue };
        if !goes_on(errno) {
            return errno;
        }
        // A file that may not be executed tells more than folders without the file.
        if failed != libc::EACCES {
            failed = errno;
        }
    }
    failed
}

/// In the child: gives these signals their default action and unblocks all. The other signals have
/// no handler.
fn restore_signals(signals: &[c_int]) -> Result<(), c_int> {
    // The kernel's `sigaction`, which is not that of the C library: SIG_DFL without flags.
    let default = [0_u64; 4];
    for &signal in signals {
        let action = [signal as usize, default.as_ptr().addr(), 0, SIGNAL_SET, 0];
        // SAFETY: the kernel reads at most 32 bytes of `default`.
        unsafe { call(libc::SYS_rt_sigaction, action) }?;
    }
    let none = 0_u64;
    let how = libc::SIG_SETMASK as usize;
    let mask = [how, (&raw const none).addr(), 0, SIGNAL_SET, 0];
    // SAFETY: the kernel reads the 8 bytes of `none`.
    unsafe { call(libc::SYS_rt_sigprocmask, mask) }.map(drop)
}

/// Marks every descriptor from 3 on to be closed by `exec`; the pipe for reports stays usable until
/// then. Kernels before 5.11 do not know the flag; there, inherited descriptors without it stay
/// open.
fn close_others_on_exec() {
    let (last, flag) = (u32::MAX as usize, libc::CLOSE_RANGE_CLOEXEC as usize);
    // SAFETY: `close_range` with CLOSE_RANGE_CLOEXEC closes nothing and touches no memory; a
    // failure is harmless.
    let _ = unsafe { call(libc::SYS_close_range, [3, last, flag, 0, 0]) };
}

/// Returns where `execvp` would look for a program, as a list made before the child exists, which
/// may allocate nothing: the files to try for `program`, in their order. `env` has the `NAME=value`
/// entries of the rank, whose `PATH` counts. A name with a slash is the only candidate; an empty
/// folder in `PATH` means the working directory.
fn candidates<'a>(program: &CStr, env: impl IntoIterator<Item = &'a CStr>) -> Vec<CString> {
    let name = program.to_bytes();
    if name.contains(&b'/') {
        return vec![program.to_owned()];
    }
    if name.is_empty() {
        return Vec::new();
    }
    let path = env
        .into_iter()
        .find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="));
    path.unwrap_or(DEFAULT_PATH.as_bytes())
        .split(|&byte| byte == b':')
        .map(|folder| match folder {
            [] => name.to_vec(),
            folder => [folder, b"/", name].concat(),
        })
        .filter_map(|file| CString::new(file).ok())
        .collect()
}

/// Returns whether the search goes on after this error of `exec`, as glibc's does.
fn goes_on(errno: i32) -> bool {
    matches!(
        errno,
        libc::EACCES | libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT
    )
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
    let (waitid, which, pid) = (libc::SYS_waitid, libc::P_PID, pid.as_raw());
    // SAFETY: the kernel writes at most one `siginfo_t` and one `rusage`, which outlive the call;
    // WNOWAIT leaves the child as it is.
    Errno::result(unsafe { libc::syscall(waitid, which, pid, to_info, options, to_usage) })?;
    // SAFETY: zeroes are valid for both types, and the kernel has either written valid values over
    // them or nothing.
    let (info, usage) = unsafe { (info.assume_init(), usage.assume_init()) };
    // SAFETY: for a child that ended, the kernel fills in the fields of SIGCHLD.
    let (found, status) = unsafe { (info.si_pid(), info.si_status()) };
    let exit = match info.si_code {
        libc::CLD_EXITED => Exit::Code(status),
        _ => Exit::Signal(status),
    };
    // A child that is stopped for its stacks to be read is reported here, too.
    let ends = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
    let has_ended = found != 0 && ends.contains(&info.si_code);
    Ok(has_ended.then(|| (exit, Usage::new(&usage))))
}

#[cfg(test)]
mod tests;
