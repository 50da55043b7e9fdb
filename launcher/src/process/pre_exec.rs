//! What a rank does between `fork` and `exec`: own session, death with its launcher, clean signals and descriptors, its
//! CPUs, its limits.
//!
//! The only unsafe code of the launcher. Everything here runs in a copy of a process that may have had other threads,
//! so it makes system calls and nothing else: no allocation, no lock, no log line.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid, setsid};

use crate::numa::CpuList;
use crate::process::files::FileLimit;
use crate::process::usage::Usage;

/// Makes `command` start as a rank: leader of a session of its own, killed by the kernel when the calling thread ends,
/// with SIGXFSZ as a fresh process has it (as Python's `restore_signals`; `std` does the same for SIGPIPE and the
/// mask, and `exec` for every signal that we handle), and with no descriptor of ours but the standard three.
///
/// The thread that spawns must live as long as the ranks: `PR_SET_PDEATHSIG` looks at the thread, not the process.
pub fn prepare(command: &mut Command) {
    let launcher = getpid();
    // SAFETY: the closure only makes async-signal-safe system calls (setsid, prctl, getppid, signal, close_range) on
    // values it owns; it neither allocates (`io::Error` from a raw code does not) nor takes a lock nor panics.
    unsafe { command.pre_exec(move || in_child(launcher)) };
}

/// Makes `command` start on these CPUs alone; those that the kernel does not know are left out.
pub fn bind(command: &mut Command, cpus: &CpuList) {
    let mut set = CpuSet::new();
    for &cpu in &cpus.0 {
        // Beyond the set's size there is no CPU that `sched_setaffinity` could be told of in it.
        let _ = set.set(cpu);
    }
    // SAFETY: the closure makes one async-signal-safe system call (sched_setaffinity) on a set that it owns.
    unsafe { command.pre_exec(move || Ok(sched_setaffinity(Pid::from_raw(0), &set)?)) };
}

/// Makes `command` start with these limits on open files. One that it may not have is left as it is.
pub fn limit_files(command: &mut Command, limit: FileLimit) {
    let apply = move || {
        let _ = limit.apply();
        Ok(())
    };
    // SAFETY: the closure makes one async-signal-safe system call (setrlimit) with numbers that it owns.
    unsafe { command.pre_exec(apply) };
}

fn in_child(launcher: Pid) -> io::Result<()> {
    setsid()?;
    set_pdeathsig(Signal::SIGKILL)?;
    // The launcher may have died before the line above took effect; then nobody is left to kill this rank.
    if getppid() != launcher {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    restore_file_size_signal();
    close_others_on_exec();
    Ok(())
}

fn restore_file_size_signal() {
    // SAFETY: `SIG_DFL` is a valid disposition and SIGXFSZ a catchable signal; no Rust handler for it exists.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
}

/// Marks every descriptor from 3 on to be closed by `exec`; `std`'s own pipe for errors of `exec` stays usable till
/// then. Kernels before 5.11 do not know the flag: there, what we inherited without it stays open.
fn close_others_on_exec() {
    // SAFETY: `close_range` with CLOSE_RANGE_CLOEXEC closes nothing and touches no memory; a refusal is harmless.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// What the child `pid`, which has ended and is not reaped, has used. It stands here because unsafe code does: `nix` has
/// no `waitid` with the kernel's fifth argument.
pub fn usage(pid: Pid) -> Option<Usage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let none = std::ptr::null_mut::<libc::siginfo_t>();
    // SAFETY: the kernel takes a null `siginfo_t` for "not wanted" and writes at most one `rusage`, which outlives the
    // call; WNOWAIT leaves the child as it is.
    let result =
        unsafe { libc::syscall(libc::SYS_waitid, libc::P_PID, pid.as_raw(), none, options, usage.as_mut_ptr()) };
    // SAFETY: zeroes are a valid `rusage`, and the kernel has written a valid one over them or nothing.
    (result == 0).then(|| Usage::new(unsafe { usage.assume_init_ref() }))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn sh(script: &str) -> (u32, String) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        prepare(&mut command);
        let child = command.spawn().expect("/bin/sh starts");
        let pid = child.id();
        let out = child.wait_with_output().expect("the child is ours");
        (pid, String::from_utf8(out.stdout).expect("text"))
    }

    #[test]
    fn a_rank_leads_its_own_session_and_group() {
        let (pid, stat) = sh("cat /proc/$$/stat");
        let fields: Vec<&str> = stat.rsplit_once(") ").expect("stat").1.split(' ').collect();
        assert_eq!((fields[2], fields[3]), (pid.to_string().as_str(), pid.to_string().as_str()));
    }

    #[test]
    fn a_rank_blocks_no_signal_and_ignores_neither_pipe_nor_file_size() {
        let (_, status) = sh("grep -E '^Sig(Blk|Ign)' /proc/self/status");
        let mask = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("a mask");
            u64::from_str_radix(line.split_whitespace().nth(1).expect("hex"), 16).expect("hex")
        };
        assert_eq!(mask("SigBlk:"), 0);
        assert_eq!(mask("SigIgn:") & (1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1)), 0);
    }

    #[test]
    fn a_bound_rank_may_use_its_cpus_only() {
        let first = *crate::numa::Machine::allowed().0.first().expect("a CPU");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "grep Cpus_allowed_list /proc/self/status"]).stdout(Stdio::piped());
        prepare(&mut command);
        bind(&mut command, &CpuList::parse(&first.to_string()).expect("a list"));
        let out = command.output().expect("/bin/sh starts").stdout;
        assert_eq!(String::from_utf8_lossy(&out).trim(), format!("Cpus_allowed_list:\t{first}"));
    }

    #[test]
    fn a_rank_has_the_limit_on_files_that_is_asked_for() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "ulimit -Sn"]).stdout(Stdio::piped());
        prepare(&mut command);
        let limit = FileLimit::current().expect("Linux has limits");
        limit_files(&mut command, FileLimit { soft: 77, ..limit });
        assert_eq!(command.output().expect("/bin/sh starts").stdout, b"77\n");
    }

    #[test]
    fn a_descriptor_of_ours_does_not_reach_a_rank() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let leaked = nix::unistd::dup(&file).expect("a copy without close-on-exec");
        let (_, listing) = sh("ls -l /proc/self/fd/");
        let name = file.path().display().to_string();
        assert!(listing.contains("0 -> ") && !listing.contains(&name), "{listing}");
        drop(leaked);
    }

    #[test]
    fn a_rank_dies_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            command.arg("100");
            prepare(&mut command);
            command.spawn().expect("sleep starts")
        };
        let mut child = std::thread::spawn(start).join().expect("no panic");
        let status = child.wait().expect("the child is ours");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error_of_spawn() {
        let mut command = Command::new("/nonexistent");
        prepare(&mut command);
        assert_eq!(command.spawn().expect_err("no such file").kind(), io::ErrorKind::NotFound);
    }
}
