//! Determines the launch of a rank. A launcher that names its launch also holds the lock on the run
//! folder. Otherwise rank 0 locks the folder for all ranks and publishes the launch in the store.

use std::time::Duration;

use jobs::launch::{self, LaunchLock, LockError};

use crate::console;
use crate::eval::rank::Fault;
use crate::eval::setup::rank_setup::RankSetup;
use c10d::Store;

/// Time limit for rank 0, which may have to find out whether a launch on another machine still
/// runs.
const VERDICT: Duration = Duration::from_secs(120);

/// Prefix of rank 0's message that it has locked the folder; the name of the launch follows.
const TAKEN: &str = "launch ";

/// Determines the launch of this rank. Rank 0 of an unnamed launch locks the run folder and returns
/// the lock.
///
/// # Errors
/// Returns [`Fault::Refused`] if another launch holds the folder, and [`Fault::Broken`] if the
/// store does not answer.
pub(in crate::eval) fn join(
    ready: &mut RankSetup,
    store: Option<&Store>,
) -> Result<Option<LaunchLock>, Fault> {
    if ready.env.launch.is_some() {
        return Ok(None);
    }
    let key = format!("rrun/launch/{}/{}", ready.env.run_id, ready.env.round);
    let (launch, lock) = match store {
        Some(store) if ready.env.rank > 0 => (heard(store, &key)?, None),
        store => {
            let lock = take(ready);
            if let Some(store) = store {
                tell(store, &key, &lock)?;
            }
            let lock = lock?;
            (lock.launch().to_owned(), Some(lock))
        }
    };
    ready.env.launch = Some(launch.clone());
    ready.plan.launch = Some(launch);
    Ok(lock)
}

fn take(ready: &RankSetup) -> Result<LaunchLock, Fault> {
    let launch = launch::fresh_id()
        .map_err(|err| Fault::Broken(format!("cannot name this launch: {err}")))?;
    LaunchLock::take(&ready.folder, &launch, |text| {
        console::say(
            console::Level::Info,
            "rrun-rank:",
            text,
            serde_json::json!({}),
        )
    })
    .map_err(|err| match err {
        LockError::Held { .. } | LockError::Link { .. } => Fault::Refused(err.to_string()),
        LockError::Io { .. } => Fault::Broken(err.to_string()),
    })
}

fn tell(store: &Store, key: &str, lock: &Result<LaunchLock, Fault>) -> Result<(), Fault> {
    let said = match lock {
        Ok(lock) => format!("{TAKEN}{}", lock.launch()),
        Err(Fault::Refused(reason) | Fault::Broken(reason)) => reason.clone(),
    };
    store
        .set(key, said.as_bytes())
        .map_err(|err| Fault::Broken(err.to_string()))
}

fn heard(store: &Store, key: &str) -> Result<String, Fault> {
    let said = store
        .get(key, VERDICT)
        .map_err(|err| Fault::Broken(format!("rank 0 has not taken the run folder: {err}")))?;
    let said = String::from_utf8_lossy(&said).into_owned();
    said.strip_prefix(TAKEN)
        .map(str::to_owned)
        .ok_or(Fault::Refused(said))
}
