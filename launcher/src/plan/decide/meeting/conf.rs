//! Parses `--rdzv-conf`: `key=value,key=value`. All settings are checked, although a single-node
//! launch needs few of them.

use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::cli::python::int;

/// Keys that are options of their own; giving them here is an error in torchrun too.
const COLLISIONS: [&str; 6] = [
    "backend",
    "endpoint",
    "run_id",
    "min_nodes",
    "max_nodes",
    "local_addr",
];

/// Keys of the c10d backend that are timeouts in whole seconds, with their names in messages.
const TIMEOUTS: [(&str, &str); 5] = [
    ("join_timeout", "join"),
    ("last_call_timeout", "last call"),
    ("close_timeout", "close"),
    ("heartbeat_timeout", "heartbeat"),
    ("read_timeout", "read"),
];

/// The settings, with torch's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conf {
    /// `store_type=file`: whether the endpoint is a path.
    pub has_file_store: bool,
    /// `is_host`: whether this node hosts the store.
    pub is_host: Option<bool>,
    /// `timeout` of the static backend, which torchrun sets to 900 s.
    pub timeout: Duration,
    /// `join_timeout`: how long to wait for enough nodes.
    pub join_timeout: Duration,
    /// `last_call_timeout`: how long to wait for further nodes.
    pub last_call_timeout: Duration,
    /// `read_timeout`: how long to wait for the store.
    pub read_timeout: Duration,
    /// `keep_alive_interval`: interval between two heartbeats.
    pub keep_alive_interval: Duration,
    /// `keep_alive_max_attempt`: number of missed heartbeats after which a node is dead.
    pub keep_alive_max_attempt: u32,
}

impl Conf {
    /// Reads settings whose types have been checked. Times below 1 s, for example an interval of 0,
    /// are taken as 1 s.
    fn read(pairs: &[(String, String)]) -> anyhow::Result<Conf> {
        let number = |key, default: u32| -> anyhow::Result<u32> {
            // Limited to 32 bits, so that a deadline can be computed from it.
            Ok(integer(pairs, key)?.map_or(default, |value| {
                u32::try_from(value.max(1)).unwrap_or(u32::MAX)
            }))
        };
        let seconds =
            |key, default| number(key, default).map(|number| Duration::from_secs(number.into()));
        Ok(Conf {
            has_file_store: value(pairs, "store_type")
                .is_some_and(|store| store.eq_ignore_ascii_case("file")),
            is_host: value(pairs, "is_host")
                .map(|host| TRUTHS.contains(&host.to_lowercase().as_str())),
            timeout: seconds("timeout", 900)?,
            join_timeout: seconds("join_timeout", 600)?,
            last_call_timeout: seconds("last_call_timeout", 30)?,
            read_timeout: seconds("read_timeout", 60)?,
            keep_alive_interval: seconds("keep_alive_interval", 5)?,
            keep_alive_max_attempt: number("keep_alive_max_attempt", 3)?,
        })
    }
}

const TRUTHS: [&str; 5] = ["1", "true", "t", "yes", "y"];

const UNTRUTHS: [&str; 5] = ["0", "false", "f", "no", "n"];

/// Splits `text` at commas, and each part at its first `=`. If a key is repeated, the last one
/// counts.
///
/// # Errors
/// Returns an error for a part without key or value, and for a key that has an option of its own.
pub fn pairs(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
        if key.is_empty() {
            bail!(
                "The rendezvous configuration string must be in format \
                 <key1>=<value1>,...,<keyN>=<valueN>."
            );
        }
        if value.is_empty() {
            bail!("The rendezvous configuration option '{key}' must have a value specified.");
        }
        if COLLISIONS.contains(&key.as_str()) {
            bail!(
                "The rendezvous configuration option '{key}' cannot be set here, it has an option of \
                 its own."
            );
        }
        pairs.retain(|(known, _)| *known != key);
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Checks the settings of the backend `static`.
///
/// # Errors
/// Returns an error for a value of the wrong type.
pub fn check_static(pairs: &[(String, String)]) -> anyhow::Result<Conf> {
    integer(pairs, "timeout")?;
    Conf::read(pairs)
}

/// Checks the settings of the backend `c10d`.
///
/// # Errors
/// Returns an error for a value of the wrong type, an invalid timeout, and an unknown store type.
pub fn check_c10d(pairs: &[(String, String)]) -> anyhow::Result<Conf> {
    for (key, name) in TIMEOUTS {
        if let Some(seconds) = integer(pairs, key)?.filter(|&seconds| seconds <= 0) {
            bail!("The {name} timeout ({seconds} s) must be positive.");
        }
    }
    integer(pairs, "keep_alive_interval")?;
    integer(pairs, "keep_alive_max_attempt")?;
    let is_boolean = |text: &str| TRUTHS.contains(&text) || UNTRUTHS.contains(&text);
    if value(pairs, "is_host").is_some_and(|host| !is_boolean(&host.to_lowercase())) {
        bail!(
            "The rendezvous configuration option 'is_host' does not represent a valid boolean value."
        );
    }
    match value(pairs, "store_type").map(str::to_lowercase).as_deref() {
        None | Some("tcp" | "file") => Conf::read(&pairs_of_c10d(pairs)),
        Some(_) => bail!("Invalid store type given. Currently only supports file and tcp."),
    }
}

/// Returns the settings without `timeout`, which this backend ignores, so that it may have any
/// value.
fn pairs_of_c10d(pairs: &[(String, String)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .filter(|(key, _)| key != "timeout")
        .cloned()
        .collect()
}

fn value<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs
        .iter()
        .find(|(known, _)| known == key)
        .map(|(_, value)| value.as_str())
}

fn integer(pairs: &[(String, String)], key: &str) -> anyhow::Result<Option<i64>> {
    let read = |text| {
        int(text).with_context(|| {
            format!(
                "The rendezvous configuration option '{key}' does not represent a valid integer \
                 value."
            )
        })
    };
    value(pairs, key).map(read).transpose()
}
