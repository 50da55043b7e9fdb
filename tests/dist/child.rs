//! Ranks as separate processes, for tests in which they die: this test program, started again with
//! the name of one test.

use crate::dist::ranks::{PATIENCE, join, serve};
use c10d::ProcessGroup;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio, abort};
use std::{env, io};

/// Starts `role` in another process, which connects to the store at `port`.
pub fn start(role: &str, port: u16) -> Child {
    let mut program = Command::new(env::current_exe().unwrap());
    program
        .args([
            "--exact",
            &format!("child::{role}"),
            "--ignored",
            "--nocapture",
        ])
        .env("RRUN_TEST_PORT", port.to_string());
    program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the port that a child with the role `hosts_the_store` prints.
pub fn port_of(child: &mut Child) -> u16 {
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    lines
        .filter_map(|line| line.split_once("port=")?.1.trim().parse().ok())
        .next()
        .unwrap()
}

/// Returns the store's port; `None` if `--ignored` runs a role as a test.
fn port() -> Option<u16> {
    env::var("RRUN_TEST_PORT").ok()?.parse().ok()
}

#[test]
#[ignore = "a role, not a test"]
fn dies_in_the_group() {
    let Some(port) = port() else { return };
    let group = ProcessGroup::gloo(&join(port), 1, 2, PATIENCE).unwrap();
    group.barrier().unwrap();
    abort();
}

#[test]
#[ignore = "a role, not a test"]
fn dies_while_delivering() {
    let Some(port) = port() else { return };
    let store = join(port).prefix("rrun/gather/run/0");
    store.set("part/1/0", b"half of it").unwrap();
    store.wait("part/1/0", PATIENCE).unwrap();
    store.set("died", b"").unwrap();
    store.wait("died", PATIENCE).unwrap();
    abort();
}

#[test]
#[ignore = "a role, not a test"]
fn hosts_the_store() {
    let Some(_) = port() else { return };
    let store = serve();
    println!("port={}", store.port());
    // Wait until the test ends, in whatever way.
    io::stdin().read_line(&mut String::new()).unwrap();
}
