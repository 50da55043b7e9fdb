//! What `/proc` says of a thread: its name and state, and what it waits for in the kernel.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};

/// Longest file of `/proc` that is read, in bytes; the largest of interest is `net/tcp`.
const LONGEST: u64 = 4 << 20;

/// Facts of one thread at the time of the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The thread's own name, at most 15 bytes.
    pub name: String,
    /// State letter of `/proc/<pid>/stat`: `R` runs, `S` sleeps, `D` sleeps uninterruptibly.
    pub state: char,
    /// The kernel function in which it sleeps, if the kernel tells.
    pub wait_channel: Option<String>,
    /// The system call in which it is, if it is in one.
    pub call: Option<Call>,
}

/// A system call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number.
    pub number: i64,
    /// Its first argument, which is often a file descriptor.
    pub argument: u64,
}

impl Facts {
    /// Reads the facts of the thread `tid` of the process `pid`. What cannot be read is empty.
    pub fn read(pid: i32, tid: i32) -> Facts {
        let task = format!("/proc/{pid}/task/{tid}");
        let read = |name: &str| fs::read_to_string(format!("{task}/{name}")).unwrap_or_default();
        let wait_channel = read("wchan");
        Facts {
            name: read("comm").trim_end().to_owned(),
            state: state(&read("stat")),
            wait_channel: (!matches!(wait_channel.as_str(), "" | "0")).then_some(wait_channel),
            call: call(&read("syscall")),
        }
    }

    /// Returns what the thread does in the kernel, in a few words.
    pub fn doing(&self, pid: i32) -> String {
        let Some(call) = self.call else {
            return match self.state {
                'R' => "running".to_owned(),
                'D' => "sleeping uninterruptibly".to_owned(),
                'T' | 't' => "stopped".to_owned(),
                'Z' | 'X' => "ended".to_owned(),
                _ => self.wait_channel.as_ref().map_or_else(
                    || "sleeping".to_owned(),
                    |channel| format!("sleeping in {channel}"),
                ),
            };
        };
        let known = CALLS.iter().find(|(number, ..)| *number == call.number);
        let Some((_, name, is_on_a_file)) = known else {
            return format!("waiting in system call {}", call.number);
        };
        match is_on_a_file.then(|| file(pid, call.argument)).flatten() {
            Some(file) => format!("waiting in `{name}` on {file}"),
            None => format!("waiting in `{name}`"),
        }
    }
}

/// Returns the state letter, which follows the program's name in parentheses.
fn state(stat: &str) -> char {
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.chars().next().unwrap_or('?')
}

/// Parses `/proc/<pid>/task/<tid>/syscall`: number, six arguments, stack pointer, program counter.
/// `running` and `-1` mean that the thread is in no system call.
fn call(text: &str) -> Option<Call> {
    let mut fields = text.split_ascii_whitespace();
    let number = fields.next()?.parse().ok().filter(|number| *number >= 0)?;
    let argument = fields.next()?.strip_prefix("0x")?;
    Some(Call {
        number,
        argument: u64::from_str_radix(argument, 16).ok()?,
    })
}

/// System calls that processes which hang are found in, and whether their first argument is the file
/// descriptor that they wait for.
const CALLS: [(i64, &str, bool); 21] = [
    (libc::SYS_accept, "accept", true),
    (libc::SYS_accept4, "accept4", true),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", false),
    (libc::SYS_connect, "connect", true),
    (libc::SYS_epoll_pwait, "epoll_pwait", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait", false),
    (libc::SYS_fsync, "fsync", true),
    (libc::SYS_futex, "futex", false),
    (libc::SYS_ioctl, "ioctl", true),
    (libc::SYS_nanosleep, "nanosleep", false),
    (libc::SYS_openat, "openat", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll", false),
    (libc::SYS_ppoll, "ppoll", false),
    (libc::SYS_read, "read", true),
    (libc::SYS_readv, "readv", true),
    (libc::SYS_recvfrom, "recvfrom", true),
    (libc::SYS_recvmsg, "recvmsg", true),
    (libc::SYS_sendto, "sendto", true),
    (libc::SYS_wait4, "wait4", false),
    (libc::SYS_write, "write", true),
    (libc::SYS_writev, "writev", true),
];

/// Returns the file behind a descriptor; of a TCP socket, both of its addresses.
fn file(pid: i32, descriptor: u64) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    let link = link.to_string_lossy().into_owned();
    let inode = link
        .strip_prefix("socket:[")
        .and_then(|rest| rest.strip_suffix(']'));
    let addresses = inode.and_then(|inode| tcp_addresses(pid, inode));
    Some(addresses.unwrap_or(link))
}

fn tcp_addresses(pid: i32, inode: &str) -> Option<String> {
    ["tcp", "tcp6"].iter().find_map(|table| {
        let file = File::open(format!("/proc/{pid}/net/{table}")).ok()?;
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        addresses_of(&text, inode)
    })
}

/// Finds the socket `inode` in `/proc/<pid>/net/tcp`.
fn addresses_of(table: &str, inode: &str) -> Option<String> {
    let row = table
        .lines()
        .skip(1)
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .find(|fields| fields.get(9) == Some(&inode))?;
    let (local, remote) = (address(row.get(1)?)?, address(row.get(2)?)?);
    Some(format!("a TCP socket from {local} to {remote}"))
}

/// Parses an address such as `0100007F:733C`; the words are in the byte order of the machine.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<u32>> = (0..ip.len())
        .step_by(8)
        .map(|at| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok())
        .collect();
    let bytes: Vec<u8> = words?.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_name_whatever_it_contains() {
        assert_eq!(state("12 (a) b) S 1 12 12"), 'S');
        assert_eq!(state(""), '?');
    }

    #[test]
    fn a_running_thread_is_in_no_call() {
        assert_eq!(call("running\n"), None);
        assert_eq!(call("-1 0x7ffd 0x7f12\n"), None);
        let read = Call {
            number: 0,
            argument: 3,
        };
        assert_eq!(
            call("0 0x3 0x1 0x2 0x0 0x0 0x0 0x7ffd 0x7f12\n"),
            Some(read)
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_socket_is_named_by_both_addresses() {
        let table = "  sl  local_address rem_address st tx rx tr tm retrnsmt uid timeout inode\n\
            0: 0100007F:733C 0200000A:0050 01 00000000:00000000 00:00000000 00000000 0 0 4711 1\n";
        assert_eq!(
            addresses_of(table, "4711").as_deref(),
            Some("a TCP socket from 127.0.0.1:29500 to 10.0.0.2:80")
        );
        assert_eq!(addresses_of(table, "4712"), None);
    }

    #[test]
    fn a_sleeping_process_waits_in_its_call() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .expect("sleep starts");
        let pid = child.id().cast_signed();
        let doing = rig::wait::until("a sleep", || {
            Some(Facts::read(pid, pid).doing(pid)).filter(|doing| doing.contains("nanosleep"))
        });
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(doing, "waiting in `clock_nanosleep`");
    }
}
