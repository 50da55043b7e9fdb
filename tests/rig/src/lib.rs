//! What tests share.
//!
//! A test gives a program, starts it, waits for what it says, and checks how it ended:
//! ```text
//! let launch = Given::rrun().words("--nproc-per-node 2").sh("echo up > up.$RANK; await go");
//! let running = launch.start();
//! running.wait_for_files(&["up.0", "up.1"]);
//! running.signal(Signal::TERM);
//! running.wait().fails_with(1).stderr_has("shutting down workers (SIGTERM)");
//! ```
//! * [`run`]: [`Given`](run::Given) → [`Running`](run::Running) → [`Ended`](run::Ended), each with
//!   a folder of its own. All checks print stdout and stderr when they fail.
//! * [`wait`]: the only deadline and the only poll.
//! * [`net`]: ports that nobody takes.
//! * [`need`]: what a machine may lack. A test begins with `if !need(Need::Torch) { return; }`.
//! * [`process`]: signals to processes that are known by their PID, and whether they live.
//! * [`disk`]: small file systems.
//! * [`threads`]: which threads of a launcher a signal would end.
//! * [`cases`]: cases in text files. [`hostile`]: mutated inputs for parsers.
//! * [`memory_store`]: a store for ranks that are threads, which counts what they ask.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

pub mod cases;
pub mod disk;
pub mod hostile;
pub mod memory_store;
pub mod need;
pub mod net;
pub mod process;
pub mod run;
pub mod script;
pub mod threads;
pub mod wait;

use std::path::{Path, PathBuf};
use std::sync::{Barrier, LazyLock};

/// Returns what so many threads return that begin together; each is given its number.
///
/// # Panics
///
/// If one of them does.
pub fn together<T: Send>(count: usize, thread: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let begin = Barrier::new(count);
    std::thread::scope(|scope| {
        let start = |number| {
            let (begin, thread) = (&begin, &thread);
            scope.spawn(move || {
                begin.wait();
                thread(number)
            })
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.map(Result::unwrap).collect()
    })
}

/// The interpreter that `./setup.sh test` installs.
pub const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.venv/bin/python");

/// Returns the path of `rrun`, which `cargo build` has put beside the folder of this program.
pub fn rrun() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| beside("rrun"));
    &PATH
}

/// Returns the path of `rrun-rank`.
pub fn rrun_rank() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| beside("rrun-rank"));
    &PATH
}

/// Returns the path of the checkout.
pub fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder.canonicalize().unwrap()
}

/// Returns the path of a file in `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

/// `RRUN_BIN` names the folder of the programs where they were built elsewhere.
fn beside(name: &str) -> String {
    let built = || {
        let own = std::env::current_exe().unwrap();
        own.ancestors().nth(2).unwrap().to_owned()
    };
    let folder = std::env::var_os("RRUN_BIN").map_or_else(built, PathBuf::from);
    let path = std::path::absolute(folder.join(name)).unwrap();
    assert!(
        path.exists(),
        "there is no {}: run `cargo build --release`",
        path.display()
    );
    if let Some(newer) = newer_source(&path) {
        panic!(
            "{newer} is newer than {}: run `cargo build --release`",
            path.display()
        );
    }
    path.into_os_string().into_string().unwrap()
}

/// Returns a source file that was changed after a program was built from it: testing this program
/// would test what is no more.
fn newer_source(program: &Path) -> Option<String> {
    let time = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
    let built = time(program)?;
    // Written by cargo: the program, a colon, and all its sources.
    let sources = std::fs::read_to_string(program.with_extension("d")).ok()?;
    let changed = |source: &&str| time(Path::new(source)).is_some_and(|time| time > built);
    sources
        .split_whitespace()
        .skip(1)
        .find(changed)
        .map(str::to_owned)
}
