//! Which threads of a launcher a signal would end, and the launcher with them.

use std::fs;

/// SIGHUP, SIGINT and SIGTERM in the masks of `/proc/<pid>/status`.
const ENDING: u64 = bit(1) | bit(2) | bit(SIGTERM);

const SIGTERM: u32 = 15;

/// Panics if SIGHUP, SIGINT or SIGTERM would end a launcher at once: if a thread of it neither blocks
/// nor ignores the signal, and there is no handler. A process that is not a launcher passes.
#[track_caller]
pub fn assert_none_is_exposed(pid: impl std::fmt::Display) {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim_end() != "rrun" {
        return;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let exposed: Vec<String> = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| exposed(&fs::read_to_string(thread.path().join("status")).ok()?))
        .collect();
    assert!(exposed.is_empty(), "a signal would end {pid}: {exposed:?}");
}

/// Returns the name of a thread and the signals that would end it, if there are any.
fn exposed(status: &str) -> Option<String> {
    let left = ENDING
        & !["SigBlk", "SigIgn", "SigCgt"]
            .iter()
            .fold(0, |all, name| all | mask(status, name));
    let name = field(status, "Name")?;
    let has_ended = field(status, "State")?.starts_with(['X', 'Z']);
    (!has_ended && left != 0).then(|| format!("{name}: {left:#x}"))
}

/// Returns whether a process blocks, ignores or handles SIGHUP, SIGINT and SIGTERM, and handles SIGTERM or
/// blocks it, as a launcher does when it has begun.
pub fn minds_signals(pid: impl std::fmt::Display) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let minded = mask(&status, "SigBlk") | mask(&status, "SigCgt");
    minded & bit(SIGTERM) != 0 && (minded | mask(&status, "SigIgn")) & ENDING == ENDING
}

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

fn mask(status: &str, name: &str) -> u64 {
    field(status, name).map_or(0, |digits| u64::from_str_radix(digits, 16).unwrap())
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    status.lines().find_map(value).map(str::trim)
}
