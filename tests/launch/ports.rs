//! Tests of the port and the addresses of the ranks' store.

use rig::need::{Need, need};
use rig::run::Given;

use crate::launch::ranks;

#[test]
fn without_options_ranks_meet_at_torchrun_s_port_or_say_where() {
    if !need(Need::Netns) {
        return;
    }
    // Two launches in one network namespace, where nobody else takes the port.
    let script = "mkfifo go
                  \"$@\" --no-python sh -c 'echo $$MASTER_PORT > first; cat go' &
                  echo $! > holder
                  until test -s first; do sleep 0.01; done
                  \"$@\" --no-python sh -c 'echo $$MASTER_PORT > second'
                  echo > go; wait";
    let running = Given::rrun().below(script).alone().start();
    running.wait_for_files(&["second"]);
    assert_eq!(running.text("first"), "29500\n");
    let (holder, port) = (running.text("holder"), running.text("second"));
    running.wait_for_stderr(&format!(
        "(pid {}): the ranks meet at port {} (MASTER_PORT)",
        holder.trim(),
        port.trim()
    ));
    running.wait().succeeds();
}

/// Prints the listening addresses with the port MASTER_PORT, as the kernel formats them.
const LISTENERS: &str = r#"
import os
at = ":%04X" % int(os.environ["MASTER_PORT"])
for table in ["/proc/net/tcp", "/proc/net/tcp6"]:
    for line in open(table).readlines()[1:] if os.path.exists(table) else []:
        local, state = line.split()[1], line.split()[3]
        if state == "0A" and local.endswith(at):
            print(local[:-5])
"#;

#[test]
fn the_store_of_one_node_listens_on_loopback_alone() {
    let loopback = ["0100007F", "00000000000000000000000001000000"];
    for words in ["--standalone", "--master-addr localhost --master-port 0"] {
        let ended = Given::rrun().words(words).python(LISTENERS).succeeds();
        let found: Vec<&str> = ended.stdout.lines().collect();
        assert!(found.contains(&loopback[0]), "{words}: {found:?}");
        let is_local = found.iter().all(|address| loopback.contains(address));
        assert!(is_local, "{words}: {found:?}");
    }
}

#[test]
fn a_store_that_others_are_told_of_listens_everywhere() {
    let rrun = Given::rrun().words("--master-addr 127.0.0.2 --master-port 0");
    let ended = rrun.python(LISTENERS).succeeds();
    let mut digits = ended.stdout.lines().flat_map(str::chars);
    assert!(
        digits.next().is_some() && digits.all(|digit| digit == '0'),
        "{}",
        ended.stdout
    );
}

/// Opens many connections that only send a greeting; then a rank connects and uses the store.
const FLOOD: &str = r#"
import os, socket, struct
def join():
    stream = socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"])))
    stream.settimeout(60)
    stream.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE))
    return stream
idle = [join() for _ in range(400)]
rank = join()
rank.sendall(b"\x04" + struct.pack("<Q", 2) + b"/n" + struct.pack("<q", 5))
print(struct.unpack("<q", rank.recv(8))[0])
"#;

#[test]
fn a_rank_finds_room_in_a_store_full_of_idle_connections() {
    let rrun = ranks(1).below("ulimit -n 500; exec \"$@\"").python(FLOOD);
    rrun.succeeds()
        .prints(&["5"])
        .stderr_has("idle ones are closed for others");
}
