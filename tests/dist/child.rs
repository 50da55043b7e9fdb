//! Ranks as separate processes: this test program, started again with the name of the test that
//! starts them.

use std::any::type_name;
use std::env;
use std::process::{Child, Command, Stdio};

/// What a started process is told.
const TOLD: &str = "RRUN_TEST_CHILD";

/// Returns the command that runs `test` in another process, in which [`told`] returns `words`.
pub fn again<T: Fn()>(_test: T, words: &str) -> Command {
    let (_crate, name) = type_name::<T>().split_once("::").unwrap();
    let mut program = Command::new(env::current_exe().unwrap());
    program
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env(TOLD, words)
        .stdin(Stdio::null());
    program
}

/// Returns what this process is told; `None` in the test itself.
pub fn told() -> Option<String> {
    env::var(TOLD).ok()
}

/// Starts `test` in another process, in which [`port`] returns the port of a store.
pub fn start<T: Fn()>(test: T, port: u16) -> Child {
    let mut program = again(test, &port.to_string());
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    program.stderr(Stdio::null()).spawn().unwrap()
}

/// Returns the store's port; `None` in the test itself.
pub fn port() -> Option<u16> {
    told()?.parse().ok()
}
