//! Tests of the address of the ranks' store, of idle connections to it, and of launches with
//! unusable folders, terminals and files.

use crate::launch::command::Rrun;

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

/// 127.0.0.1 and ::1.
const LOOPBACK: [&str; 2] = ["0100007F", "00000000000000000000000001000000"];

#[test]
fn the_store_of_one_node_listens_on_loopback_alone() {
    for options in [&[][..], &["--standalone"], &["--master-addr", "localhost"]] {
        let ended = Rrun::new()
            .nproc(1)
            .options(options)
            .python(LISTENERS)
            .succeeds();
        let found: Vec<&str> = ended.stdout.lines().collect();
        assert!(found.contains(&LOOPBACK[0]), "{options:?}: {found:?}");
        assert!(
            found.iter().all(|address| LOOPBACK.contains(address)),
            "{options:?}: {found:?}"
        );
    }
}

#[test]
fn a_store_that_others_are_told_of_listens_everywhere() {
    let ended = Rrun::new()
        .nproc(1)
        .options(&["--master-addr", "127.0.0.2", "--master-port", "0"]);
    let ended = ended.python(LISTENERS).succeeds();
    assert!(
        ended
            .stdout
            .lines()
            .all(|address| address.chars().all(|digit| digit == '0')),
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
    let python = crate::launch::command::PYTHON;
    let rrun = Rrun::new()
        .nproc(1)
        .options(&["--no-python"])
        .file("flood.py", FLOOD);
    let ended = rrun
        .program(&[python, "flood.py"])
        .start_below("ulimit -n 500; exec \"$@\"")
        .wait()
        .succeeds();
    ended
        .prints(&["5"])
        .stderr_has("idle ones are closed for others");
}

#[test]
fn what_a_rank_leaves_in_its_error_file_is_shown_as_text() {
    let error = "{\"message\": \"bad\\u001b]0;owned\\u0007\\u009b2J\\u202egnp\"}";
    let ended = Rrun::new()
        .file("error", error)
        .sh("cp error $TORCHELASTIC_ERROR_FILE; exit 9")
        .fails_with(1);
    ended
        .stderr_has(r"traceback : bad\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}gnp")
        .stderr_lacks("\u{1b}");
}

#[test]
fn what_a_rank_prints_passes_through_as_it_is() {
    Rrun::new()
        .nproc(1)
        .sh(r"printf '\033[1mbold\n'")
        .succeeds()
        .stdout_is("\u{1b}[1mbold\n");
}

#[test]
fn a_folder_for_logs_that_cannot_be_made_is_one_error_before_anything_starts() {
    for (variable, options, reason) in [
        (
            "/no/such/folder",
            &["-r", "3"][..],
            "TMPDIR is `/no/such/folder`",
        ),
        (
            "/tmp",
            &["-r", "3", "--log-dir", "/proc/x"],
            "cannot make `/",
        ),
    ] {
        let ended = Rrun::new()
            .nproc(2)
            .env("TMPDIR", variable)
            .options(options)
            .sh("echo ran")
            .fails_with(1);
        ended.stdout_is("").stderr_has(reason);
    }
}
