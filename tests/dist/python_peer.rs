//! Tests of one store for ranks in Rust and Python, with torch's client and torch's server.

use crate::dist::ranks::{PATIENCE, join, serve};
use rig::need::{Need, need};
use std::process::{Child, Command};
use std::time::Duration;
use tcpstore::{Store, StoreAddr};

/// Starts a rank in Python that says and hears what [`talk`] does; it hosts the store if asked to.
fn start_python(port: u16, hosts: bool) -> Child {
    let mut python = Command::new(rig::PYTHON);
    python.arg(rig::fixture("store_peer.py"));
    python.args([port.to_string(), u8::from(hosts).to_string()]);
    python.env("OMP_NUM_THREADS", "1").spawn().unwrap()
}

/// Makes the same calls as `fixtures/store_peer.py`, the other way round.
fn talk(store: &Store) {
    let part = store.prefix("outer").prefix("in/ner");
    assert_eq!(part.get("python", PATIENCE).unwrap(), b"\0said\xff");
    part.set("rust", b"\0said\xff").unwrap();
    part.set("empty", b"").unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    part.set("large", &large).unwrap();
    part.wait_all(&["one", "two"], PATIENCE).unwrap();
    let found = part.multi_get(&["one", "none", "two"]).unwrap();
    assert_eq!(found, [&b"1"[..], b"", b""]);
    let missing = part.wait("none", Duration::from_millis(100));
    assert!(missing.unwrap_err().is_missing());
    assert_eq!(part.add("count", -2).unwrap(), 5);
    assert_eq!(
        part.compare_set("turn", b"python", b"rust").unwrap(),
        b"rust"
    );
    assert_eq!(part.compare_set("turn", b"python", b"x").unwrap(), b"rust");
    assert!(part.delete("gone").unwrap());
    part.set("done", b"").unwrap();
}

fn succeeds(mut peer: Child) {
    let code = peer.wait().unwrap().code();
    assert_eq!(code, Some(0), "exit code of the Python rank");
}

#[test]
fn a_python_rank_shares_the_store_that_a_rust_rank_hosts() {
    if !need(Need::Torch) {
        return;
    }
    let server = serve();
    let python = start_python(server.port(), false);
    talk(&join(server.port()));
    succeeds(python);
}

#[test]
fn a_rust_rank_joins_a_store_whose_server_waits_for_it_in_python() {
    if !need(Need::Torch) {
        return;
    }
    let port = rig::net::port();
    let python = start_python(port, true);
    let store = Store::connect(&StoreAddr::local(port), 2, false, PATIENCE).unwrap();
    talk(&store);
    succeeds(python);
}
