//! What tests share.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

pub mod cases;
pub mod hostile;
pub mod threads;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

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

/// Returns the path of a file in `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures")
        .join(name)
}

fn beside(name: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let folder: PathBuf = own.ancestors().nth(2).unwrap().to_owned();
    let path = folder.join(name);
    assert!(
        path.exists(),
        "there is no {}: run `cargo build --release`",
        path.display()
    );
    path.into_os_string().into_string().unwrap()
}
