//! Tests of thousands of connections to the store, which must not disturb a launch.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use launcher::node::FileLimit;
use tcpstore::StoreClient;

use rig::run::Given;
use rig::wait;

/// Number of idle connections.
const IDLE: usize = 10_000;

/// Number of other descriptors that a launcher and a test need.
const OTHERS: u64 = 400;

/// Maximum memory of the launcher in bytes with all these connections: a buffer of 4 KiB and a task
/// for each.
const MOST_MEMORY: usize = 100 << 20;

/// `VALIDATE`, and a `SET` that announces a value of 8 MiB without sending it.
const PROMISE: &[u8] = b"\x00\xce\xf7\x85\x3c\x01\x02\0\0\0\0\0\0\0/k\0\0\x80\0\0\0\0\0";

/// Returns the resident memory of a process in bytes.
fn memory(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<usize>()
        .unwrap()
        * 1024
}

#[test]
fn the_launcher_raises_the_limit_on_files_and_its_ranks_do_not_see_it() {
    let ended = Given::rrun()
        .below("ulimit -Sn 300; ulimit -Hn 900; exec \"$@\"")
        .sh("ulimit -Sn > soft; ulimit -Hn > hard; grep open /proc/$PPID/limits > launcher")
        .succeeds();
    assert_eq!(
        (ended.text("soft").trim(), ended.text("hard").trim()),
        ("300", "900")
    );
    let launcher = ended.text("launcher");
    assert_eq!(
        launcher.split_whitespace().collect::<Vec<_>>()[3..5],
        ["900", "900"],
        "{launcher}"
    );
}

#[test]
#[ignore = "ten thousand connections: 5 s"]
fn ten_thousand_idle_connections_harm_nobody() {
    let limit = FileLimit::current().unwrap();
    if limit.hard < IDLE as u64 + OTHERS {
        return eprintln!("skipped: only {} files may be open", limit.hard);
    }
    limit.raised().apply().unwrap();
    let port = rig::net::port();
    let running = Given::rrun()
        .below("ulimit -Sn 1024; exec \"$@\"")
        .words(["--master-port", &port.to_string()])
        .sh("echo up > up; await go")
        .start();
    running.wait_for_files(&["up"]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let connect = || StoreClient::connect("127.0.0.1", port, Duration::from_secs(60));
    let mut friend = runtime.block_on(connect()).unwrap();
    let mut idle = Vec::new();
    for number in 0..IDLE {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // A third sends nothing, a third sends a greeting, a third announces more than it sends.
        stream
            .write_all([&b""[..], &PROMISE[..5], PROMISE][number % 3])
            .unwrap();
        idle.push(stream);
    }
    let mut late = runtime.block_on(connect()).unwrap();
    runtime.block_on(friend.set("k", b"v")).unwrap();
    assert_eq!(
        runtime.block_on(late.get("k")).unwrap(),
        b"v",
        "who comes after them is served"
    );
    let used = memory(running.pid());
    eprintln!("{} KiB with {IDLE} connections", used >> 10);
    assert!(used < MOST_MEMORY, "{used} bytes");
    drop(idle);
    wait::until("that they are forgotten", || {
        std::fs::read_dir(format!("/proc/{}/fd", running.pid()))
            .is_ok_and(|files| files.count() < 100)
    });
    running.write("go");
    running.wait().succeeds();
}
