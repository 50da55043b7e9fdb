//! The failure of a rank: its exit, and what it wrote into `TORCHELASTIC_ERROR_FILE`.
//!
//! Python's `@record` writes that file, but any program may do so. Its contents are therefore not
//! trusted: what cannot be parsed becomes the message of the failure.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use jobs::tree::plain;
use serde_json::Value;

use crate::process::exit::{Exit, Usage};
use crate::rank_id::RankId;
use crate::signals::names::signal_name;

/// Most bytes that are read from an error file, which holds one traceback.
const ERROR_FILE_LIMIT: u64 = 16 << 20;

/// torchrun's advice for Python code without `@record`.
const ADVICE: &str = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";

/// A rank that made no progress, and that the launcher ended for that (`--on-hang`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hang {
    /// Seconds without progress: `--hang-timeout`.
    pub seconds: u64,
    /// Path of the report with the stacks of all ranks; `None` if it could not be written.
    pub report: Option<PathBuf>,
}

/// A rank that failed.
#[derive(Clone, Debug)]
pub struct Casualty {
    /// The rank.
    pub rank: RankId,
    /// Process id.
    pub pid: i32,
    /// How it ended.
    pub exit: Exit,
    /// The resources that it used, if the kernel reports them.
    pub usage: Option<Usage>,
    /// When the launcher noticed its end.
    pub at: SystemTime,
    /// The signal by which the launcher had told it to end, if any.
    pub stopped_by: Option<i32>,
    /// Its hang, if it was ended for one.
    pub hang: Option<Hang>,
    /// What the kernel's OOM killer did before its end, for a message; empty if nothing.
    pub memory: &'static str,
}

impl Casualty {
    /// Returns which rank failed and how, with a hint at the likely cause.
    pub fn in_words(&self) -> String {
        let hint = match self.lack_of_memory() {
            "" if self.hang.is_none() => self.exit.meaning(),
            hint => hint,
        };
        format!("rank {} {}{hint}", self.rank.global, self.ending())
    }

    /// Returns what to append to "was killed by SIGKILL", which alone does not tell the cause.
    pub fn lack_of_memory(&self) -> &'static str {
        match (&self.hang, self.exit) {
            (None, Exit::Signal(libc::SIGKILL)) => self.memory,
            _ => "",
        }
    }

    /// Returns how it ended, as a clause.
    pub fn ending(&self) -> String {
        match (&self.hang, self.exit) {
            (Some(hang), Exit::Signal(signal)) => {
                let (seconds, signal) = (hang.seconds, signal_name(signal));
                format!(
                    "made no progress for {seconds} s (--hang-timeout) and was ended by rrun \
                     ({signal})"
                )
            }
            _ => self.exit.to_string(),
        }
    }
}

/// Returns how a rank failed that has no process.
pub fn not_started(rank: RankId) -> String {
    format!("rank {} could not be started", rank.global)
}

/// The failure of a rank, as shown in the report.
#[derive(Clone, Debug)]
pub struct RankFailure {
    /// The rank and its exit.
    pub casualty: Casualty,
    /// Seconds since 1970, from the error file if it has a timestamp.
    pub timestamp: u64,
    /// Path of the error file, if there is one.
    pub error_file: Option<PathBuf>,
    /// Contents of the error file, if they are JSON.
    pub error: Option<Value>,
    /// Traceback or explanation; may have several lines.
    pub message: String,
}

impl RankFailure {
    /// Reads what the failed rank left in `error_file`.
    pub fn read(casualty: Casualty, error_file: Option<&Path>) -> RankFailure {
        let seen = casualty.at.duration_since(UNIX_EPOCH);
        let seen = seen.unwrap_or_default().as_secs();
        let mut failure = RankFailure {
            timestamp: seen,
            error_file: None,
            error: None,
            message: explain(&casualty),
            casualty,
        };
        match error_file.map_or(Ok(None), read) {
            Ok(None) => return failure,
            Ok(Some(error)) => {
                failure.timestamp = timestamp(&error).unwrap_or(seen);
                let text = message(&error).filter(|text| !text.is_empty());
                failure.message = text.unwrap_or(failure.message);
                failure.error = Some(error);
            }
            Err(err) => failure.message += &format!("\nThe error file is unusable: {err}"),
        }
        failure.error_file = error_file.map(Path::to_path_buf);
        failure
    }

    /// Writes the error file for the process that started the launcher, replacing the one at
    /// `path`: that of the rank, with the exit code added. Does nothing if the rank left none.
    pub fn forward_to(&self, path: &Path) -> io::Result<()> {
        let Some(mut error) = self.error.clone() else {
            return Ok(());
        };
        if let Some(message) = error.get_mut("message").and_then(Value::as_object_mut) {
            let code = self.casualty.exit.returncode();
            message.insert("errorCode".to_owned(), code.into());
        }
        std::fs::write(path, error.to_string())
    }
}

/// Returns the failures that the launcher did not cause, the root cause first.
pub fn by_themselves(failures: &[RankFailure]) -> Vec<&RankFailure> {
    let root = root_cause(failures);
    let is_other = |index: &usize| Some(*index) != root && is_own(&failures[*index].casualty);
    let others = (0..failures.len()).filter(is_other);
    let all = root.into_iter().chain(others);
    all.map(|index| &failures[index]).collect()
}

/// Returns the index of the failure that came first. A rank that was ended for its hang precedes the
/// others: they ended after it had begun to hang. Within the same second, failures that the launcher
/// did not cause precede others, then the one seen first counts.
pub fn root_cause(failures: &[RankFailure]) -> Option<usize> {
    let key = |index: &usize| {
        let failure = &failures[*index];
        (
            failure.casualty.hang.is_none(),
            failure.timestamp,
            failure.casualty.stopped_by.is_some(),
            *index,
        )
    };
    (0..failures.len()).min_by_key(key)
}

/// Returns whether a rank failed by itself, and not because of another.
fn is_own(casualty: &Casualty) -> bool {
    casualty.stopped_by.is_none() || casualty.hang.is_some()
}

fn explain(casualty: &Casualty) -> String {
    match casualty.exit {
        Exit::Code(_) => ADVICE.to_owned(),
        Exit::Signal(signal) => {
            let received = format!(
                "Signal {signal} ({}) received by PID {}",
                signal_name(signal),
                casualty.pid
            );
            match &casualty.hang {
                Some(Hang { seconds, report }) => {
                    let place = report.as_ref().map_or_else(String::new, |path| {
                        format!("; what all ranks did: {}", path.display())
                    });
                    format!(
                        "{received}, sent by rrun because the rank made no progress for \
                         {seconds} s (--hang-timeout){place}"
                    )
                }
                None if casualty.stopped_by == Some(signal) => {
                    format!("{received}, sent by rrun to end the group")
                }
                None => received,
            }
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Option<Value>> {
    // A rank may have put anything in its place.
    let file = match jobs::files::open(path) {
        Ok(file) => file,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err.into()),
    };
    let mut bytes = Vec::new();
    file.take(ERROR_FILE_LIMIT).read_to_end(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Returns `message.extraInfo.timestamp`, or `timestamp` beside a `message` that is a string; as a
/// number or a string.
fn timestamp(error: &Value) -> Option<u64> {
    let value = match error.get("message")?.is_object() {
        true => error.pointer("/message/extraInfo/timestamp")?,
        false => error.get("timestamp")?,
    };
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    }
}

/// Returns `message` if it is a string; if it is an object, its `py_callstack`, else its own
/// `message`, else `<N/A>`.
fn message(error: &Value) -> Option<String> {
    let message = error.get("message")?;
    if !message.is_object() {
        return Some(plain(message));
    }
    let callstack = message.pointer("/extraInfo/py_callstack");
    let found = callstack.or(message.get("message"));
    Some(found.map_or_else(|| "<N/A>".to_owned(), plain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tests::rank;

    fn casualty(exit: Exit) -> Casualty {
        let at = UNIX_EPOCH + std::time::Duration::from_secs(100);
        Casualty {
            rank: rank(0),
            pid: 1234,
            exit,
            usage: None,
            at,
            stopped_by: None,
            hang: None,
            memory: "",
        }
    }

    fn with(error: &Value) -> RankFailure {
        from_bytes(error.to_string().as_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> RankFailure {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("error.json");
        std::fs::write(&path, bytes).expect("written");
        RankFailure::read(casualty(Exit::Code(9)), Some(&path))
    }

    #[test]
    fn an_error_file_gives_message_and_time() {
        for (error, message, timestamp) in [
            (
                json!({"message": {"message": "m",
                    "extraInfo": {"py_callstack": "tb", "timestamp": "42"}}}),
                "tb",
                42,
            ),
            (json!({"message": "text", "timestamp": "17"}), "text", 17),
            // Without a time, that of the exit is kept.
            (json!({"message": {"message": "boom"}}), "boom", 100),
        ] {
            let failure = with(&error);
            assert_eq!(
                (failure.message.as_str(), failure.timestamp),
                (message, timestamp)
            );
        }
    }

    #[test]
    fn a_file_that_is_no_json_is_told_of_and_no_file_is_no_error() {
        let failure = from_bytes(b"{\"message\": ");
        let told = "The error file is unusable: EOF while parsing";
        assert!(failure.message.contains(told), "{}", failure.message);
        assert_eq!((failure.timestamp, failure.error), (100, None));
        let nowhere = Path::new("/nonexistent/error.json");
        let failure = RankFailure::read(casualty(Exit::Signal(9)), Some(nowhere));
        assert_eq!(failure.message, "Signal 9 (SIGKILL) received by PID 1234");
        assert_eq!(failure.error_file, None);
    }

    #[test]
    fn a_pipe_in_the_place_of_the_file_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("error.json");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let message = RankFailure::read(casualty(Exit::Code(9)), Some(&path)).message;
        assert!(message.contains("The error file is unusable"), "{message}");
    }

    #[test]
    fn the_root_cause_comes_first_then_ranks_that_failed_by_themselves() {
        let hang = Hang {
            seconds: 5,
            report: Some("logs/hang_1.txt".into()),
        };
        let failed = |number: usize, timestamp, stopped_by: Option<i32>, hang: Option<&Hang>| {
            let casualty = Casualty {
                rank: rank(number),
                hang: hang.cloned(),
                stopped_by,
                ..casualty(Exit::Signal(stopped_by.unwrap_or(9)))
            };
            RankFailure {
                timestamp,
                ..RankFailure::read(casualty, None)
            }
        };
        let own = |number, timestamp| failed(number, timestamp, None, None);
        let stopped = |number, timestamp| failed(number, timestamp, Some(15), None);
        let hung = failed(1, 14, Some(15), Some(&hang));
        for (failures, blamed) in [
            (vec![], &[][..]),
            (vec![own(0, 7), own(1, 6)], &[1, 0]),
            // A rank that was told to end is not the root of the same second.
            (vec![stopped(0, 7), own(1, 7)], &[1]),
            // The sibling of a rank that hangs obeyed sooner.
            (vec![stopped(0, 7), hung.clone()], &[1]),
            (
                vec![own(0, 100), stopped(1, 100), own(2, 99), own(3, 100)],
                &[2, 0, 3],
            ),
        ] {
            let found = by_themselves(&failures).into_iter();
            let found: Vec<usize> = found.map(|it| it.casualty.rank.global).collect();
            assert_eq!(found, blamed);
        }
        assert_eq!(
            hung.message,
            "Signal 15 (SIGTERM) received by PID 1234, sent by rrun because the rank made no \
             progress for 5 s (--hang-timeout); what all ranks did: logs/hang_1.txt"
        );
    }

    #[test]
    fn an_error_file_is_handed_on_with_the_exit_code() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("own.json");
        let handed_on = |failure: RankFailure| {
            failure.forward_to(&own).expect("written");
            std::fs::read_to_string(&own).ok()
        };
        let none = RankFailure::read(casualty(Exit::Code(1)), None);
        assert_eq!(handed_on(none), None);
        for (left, handed) in [
            (json!({"message": "m"}), r#"{"message":"m"}"#),
            (
                json!({"message": {"message": "m"}}),
                r#"{"message":{"message":"m","errorCode":9}}"#,
            ),
        ] {
            assert_eq!(handed_on(with(&left)).as_deref(), Some(handed));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_make_a_failure(bytes: Vec<u8>) {
            prop_assert!(!from_bytes(&bytes).message.is_empty());
        }
    }
}
