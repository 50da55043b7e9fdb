//! Determines the launch of a rank. A launcher that names its launch also holds the lock on the run
//! folder. Otherwise rank 0 locks the folder for all ranks and publishes the launch in the store.

use std::time::Duration;

use jobs::launch::{self, LaunchLock};
use jobs::refusal::Refusal;

use crate::console;
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;
use tcpstore::Store;

/// Time limit for rank 0, which may have to find out whether a launch on another machine still
/// runs.
const VERDICT: Duration = Duration::from_secs(120);

/// Prefix of rank 0's message that it has locked the folder; the name of the launch follows.
const TAKEN: &str = "launch ";

/// Determines the launch of this rank. Rank 0 of an unnamed launch locks the run folder and returns
/// the lock.
///
/// # Errors
/// Returns a [`Stop`] if another launch holds the folder, or if the store does not answer.
pub fn join(setup: &mut RankSetup, store: Option<&Store>) -> Result<Option<LaunchLock>, Stop> {
    if setup.env.launch.is_some() {
        return Ok(None);
    }
    let key = format!("rrun/launch/{}/{}", setup.env.run_id, setup.env.round);
    let (launch, lock) = match store {
        Some(store) if setup.env.rank > 0 => (heard(store, &key)?, None),
        store => {
            let lock = take(setup);
            if let Some(store) = store {
                let said = match &lock {
                    Ok(lock) => format!("{TAKEN}{}", lock.launch()),
                    Err(err) => err.to_string(),
                };
                store.set(&key, said.as_bytes())?;
            }
            let lock = lock?;
            (lock.launch().to_owned(), Some(lock))
        }
    };
    setup.env.launch = Some(launch.clone());
    setup.plan.launch = Some(launch);
    Ok(lock)
}

fn take(setup: &RankSetup) -> Result<LaunchLock, Stop> {
    let launch = launch::fresh_id();
    let launch = launch.map_err(|err| Stop::rank("cannot name this launch", err))?;
    let lock = LaunchLock::take(&setup.folder, &launch, |text| {
        console::say(
            console::Level::Info,
            "rrun-rank:",
            text,
            serde_json::json!({}),
        )
    })?;
    Ok(lock)
}

fn heard(store: &Store, key: &str) -> Result<String, Stop> {
    let not_told = |err| Stop::rank("rank 0 has not taken the run folder", err);
    let said = store.get(key, VERDICT).map_err(not_told)?;
    let said = String::from_utf8_lossy(&said);
    match said.strip_prefix(TAKEN) {
        Some(launch) => Ok(launch.to_owned()),
        None => Err(Refusal::new(said).into()),
    }
}
