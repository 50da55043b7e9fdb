//! Prepares a process between `fork` and `exec`. Unsafe code: only system calls are
//! allowed there.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the child lead its own process group, receive the signal `at_end` when the thread that
/// spawns it ends, and inherit no descriptor but the standard three and `keep`.
///
/// `PR_SET_PDEATHSIG` refers to the thread, not the process: the calling thread has to live as long
/// as the child.
pub fn guard(command: &mut Command, at_end: Signal, keep: &[RawFd]) {
    let (parent, keep) = (getpid(), keep.to_vec());
    let prepare = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(at_end))?;
        // The parent may have died before the line above; then nothing would kill this process.
        if getppid() != Some(parent) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // SAFETY: `close_range` with CLOSE_RANGE_CLOEXEC closes nothing and touches no memory.
        // Kernels before 5.11 refuse it; then descriptors that libraries opened without the flag
        // stay open, which is harmless.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        for &fd in &keep {
            // SAFETY: the caller holds these descriptors open until the spawn is done, and this
            // process is a copy of it.
            fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::empty())?;
        }
        Ok(())
    };
    command.process_group(0);
    // SAFETY: the closure makes system calls and nothing else: rustix's functions do not allocate
    // or lock, the vector is only read, and an error kind without a message needs no memory.
    unsafe { command.pre_exec(prepare) };
}
