//! `--rdzv-conf`: `key=value,key=value`, checked whole although one node needs little of it.

use crate::cli::python::int;
use crate::plan::error::PlanError;

/// Keys that are options of their own; to give them here is a mistake in torchrun too.
const COLLISIONS: [&str; 6] = ["backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr"];

/// Keys of the c10d backend that are times in whole seconds, by the name they have in messages.
const TIMEOUTS: [(&str, &str); 5] = [
    ("join_timeout", "join"),
    ("last_call_timeout", "last call"),
    ("close_timeout", "close"),
    ("heartbeat_timeout", "heartbeat"),
    ("read_timeout", "read"),
];

/// What one node uses of the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// `store_type=file`: the endpoint is a path.
    pub has_file_store: bool,
}

/// Splits `text` at commas and each part at its first `=`. The last of repeated keys counts.
///
/// # Errors
/// A part without key or value, a key that has an option of its own.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, PlanError> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
        if key.is_empty() {
            return Err(PlanError::ConfFormat);
        }
        if value.is_empty() {
            return Err(PlanError::ConfValue(key));
        }
        if COLLISIONS.contains(&key.as_str()) {
            return Err(PlanError::ConfCollision(key));
        }
        pairs.retain(|(known, _)| *known != key);
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Checks the settings that the backend `static` knows.
///
/// # Errors
/// A value of the wrong type.
pub fn check_static(pairs: &[(String, String)]) -> Result<Conf, PlanError> {
    integer(pairs, "timeout")?;
    Ok(Conf::default())
}

/// Checks the settings that the backend `c10d` knows.
///
/// # Errors
/// A value of the wrong type, a time that is none, a store that does not exist.
pub fn check_c10d(pairs: &[(String, String)]) -> Result<Conf, PlanError> {
    for (key, name) in TIMEOUTS {
        if let Some(seconds) = integer(pairs, key)?.filter(|&seconds| seconds <= 0) {
            return Err(PlanError::ConfTimeout { name: name.to_owned(), seconds });
        }
    }
    integer(pairs, "keep_alive_interval")?;
    integer(pairs, "keep_alive_max_attempt")?;
    let booleans = ["1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"];
    if value(pairs, "is_host").is_some_and(|host| !booleans.contains(&host.to_lowercase().as_str())) {
        return Err(PlanError::ConfBoolean("is_host".to_owned()));
    }
    match value(pairs, "store_type").map(str::to_lowercase).as_deref() {
        None | Some("tcp") => Ok(Conf { has_file_store: false }),
        Some("file") => Ok(Conf { has_file_store: true }),
        Some(_) => Err(PlanError::StoreType),
    }
}

fn value<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
}

fn integer(pairs: &[(String, String)], key: &str) -> Result<Option<i64>, PlanError> {
    let read = |text| int(text).ok_or_else(|| PlanError::ConfInteger(key.to_owned()));
    value(pairs, key).map(read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c10d(text: &str) -> Result<Conf, String> {
        pairs(text).and_then(|pairs| check_c10d(&pairs)).map_err(|err| err.to_string())
    }

    #[test]
    fn pairs_are_trimmed_and_split_at_the_first_equals_sign() {
        let pairs = pairs(" a = b=c , timeout=3,a=2").unwrap();
        assert_eq!(pairs, [("timeout".to_owned(), "3".to_owned()), ("a".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn nothing_is_no_pair() {
        assert_eq!([pairs(""), pairs("  ")], [Ok(Vec::new()), Ok(Vec::new())]);
    }

    #[test]
    fn a_part_needs_key_and_value() {
        assert_eq!(pairs("=1"), Err(PlanError::ConfFormat));
        assert_eq!(pairs("a=1,"), Err(PlanError::ConfFormat));
        assert_eq!(pairs("foo"), Err(PlanError::ConfValue("foo".to_owned())));
        assert_eq!(pairs("foo= "), Err(PlanError::ConfValue("foo".to_owned())));
    }

    #[test]
    fn what_has_an_option_is_not_set_here() {
        assert_eq!(pairs("run_id=3"), Err(PlanError::ConfCollision("run_id".to_owned())));
    }

    #[test]
    fn types_are_checked_for_the_backend_that_knows_the_key() {
        let text = "The rendezvous configuration option 'join_timeout' does not represent a valid integer value.";
        assert_eq!(c10d("join_timeout=x"), Err(text.to_owned()));
        assert_eq!(c10d("join_timeout=0"), Err("The join timeout (0 s) must be positive.".to_owned()));
        assert_eq!(c10d("is_host=maybe"), Err(PlanError::ConfBoolean("is_host".to_owned()).to_string()));
        assert_eq!(c10d("store_type=etcd"), Err(PlanError::StoreType.to_string()));
        assert_eq!(c10d("timeout=x,unknown=y,is_host=Yes"), Ok(Conf { has_file_store: false }));
        assert_eq!(c10d("store_type=File"), Ok(Conf { has_file_store: true }));
        let pairs = pairs("timeout=x").unwrap();
        assert_eq!(check_static(&pairs), Err(PlanError::ConfInteger("timeout".to_owned())));
    }
}
