//! What a rank reads of the journals when it starts.

use std::io;
use std::time::Duration;

use jobs::plan::RunPlan;
use jobs::rank_env::RankEnv;

use crate::eval::monitor::Monitor;
use crate::eval::rank::history::extract::{self, Extract, ExtractWriter};
use crate::eval::rank::history::{JournalHistory, name};
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;
use tcpstore::Store;

/// From this world size on, rank 0 reads the journals for all ranks when a round begins. With fewer
/// ranks it is better that none waits for another.
const SHARED_FROM: usize = 64;

/// The key under which rank 0 tells the others where they find what it has read.
const HISTORY: &str = "history";

/// Time that the other ranks wait for rank 0. Without an answer they read the journals themselves.
const TOLD: Duration = Duration::from_secs(120);

/// Where a rank finds at its start what it has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// In its own journal: no other can have a line for it.
    Own,
    /// In all journals.
    All,
    /// In all journals, and the other ranks wait for an extract of them.
    AllForOthers,
    /// In an extract that rank 0 writes.
    RankZero,
}

/// Reads what a rank has to know at its start. Thousands of ranks that begin together would open
/// millions of files if each of them read all journals, so they read only their own if nothing in
/// the others can be for them, and otherwise what rank 0 has written for them. Rank 0 keeps the
/// extract as long as it runs.
///
/// # Errors
/// Returns a [`Stop`] if the journals cannot be read.
pub fn begin(
    setup: &RankSetup,
    monitor: &Monitor,
) -> Result<(JournalHistory, Option<Extract>), Stop> {
    let RankSetup { plan, env, .. } = setup;
    let store = monitor.peers.eval_store();
    let store = store.filter(|_| env.world_size >= SHARED_FROM);
    let begins = match store {
        None => false,
        Some(store) if env.rank == 0 => store.check(HISTORY).is_ok_and(|is_told| !is_told),
        Some(_) => read_own(setup)?.starts <= 1,
    };
    let all = || JournalHistory::read(setup, monitor, &mut None);
    let history = match (source(plan, env, begins), store) {
        (Source::Own, _) => read_own(setup)?,
        (Source::AllForOthers, Some(store)) => return read_for_others(setup, store, monitor),
        (Source::RankZero, Some(store)) => read_extract(setup, store).or_else(|reason| {
            tracing::info!(reason, "reads all journals, without the extract of rank 0");
            all()
        })?,
        (Source::All | Source::AllForOthers | Source::RankZero, _) => all()?,
    };
    Ok((history, None))
}

/// Determines the source of a rank. `begins` says that the rank has not started in this round
/// before, and that the world is large enough for extracts.
fn source(plan: &RunPlan, env: &RankEnv, begins: bool) -> Source {
    let is_first_round = is_first_round(plan, env);
    match env.rank {
        0 if begins && !is_first_round => Source::AllForOthers,
        0 => Source::All,
        _ if is_first_round && env.restart_count == 0 => Source::Own,
        _ if begins && !is_first_round => Source::RankZero,
        _ => Source::All,
    }
}

/// Whether this launch began the run, so that there was nothing to read when its ranks started, and
/// no rank has been lost, so that each still has the work that it began with.
fn is_first_round(plan: &RunPlan, env: &RankEnv) -> bool {
    env.launch.is_some() && plan.begun_by == env.launch && env.round == 0
}

/// Returns whether nothing of the run was there before this rank started.
pub fn is_first_life(RankSetup { plan, env, .. }: &RankSetup) -> bool {
    is_first_round(plan, env) && env.restart_count == 0
}

/// Reads all journals, and writes an extract of them for the other ranks.
fn read_for_others(
    setup: &RankSetup,
    store: &Store,
    monitor: &Monitor,
) -> Result<(JournalHistory, Option<Extract>), Stop> {
    let created = ExtractWriter::create(&setup.folder.journals());
    let mut writer = created.inspect_err(not_written).ok();
    let history = JournalHistory::read(setup, monitor, &mut writer)?;
    let finished = writer.map(|writer| writer.finish().inspect_err(not_written));
    let written = finished.and_then(Result::ok);
    let (extract, said) = written.unzip();
    // If this fails, the others read the journals after a time limit.
    let _ = store.set(HISTORY, said.unwrap_or_default().as_bytes());
    Ok((history, extract))
}

pub(super) fn not_written(err: &io::Error) {
    tracing::warn!(%err, "cannot write an extract of the journals");
}

/// Reads the extract of rank 0, and this rank's own journal.
fn read_extract(setup: &RankSetup, store: &Store) -> Result<JournalHistory, String> {
    let said = store.get(HISTORY, TOLD).map_err(|err| err.to_string())?;
    let said = String::from_utf8_lossy(&said);
    let RankSetup { folder, env, .. } = setup;
    let journal = name(&folder.journal(env.rank));
    let mut history = JournalHistory::default();
    let parts = extract::read(&folder.journals(), &said, &journal);
    let parts = parts.map_err(|err| err.to_string())?;
    parts.into_iter().for_each(|part| history.add(part, false));
    tracing::info!(
        lines = history.lines.len(),
        "has read the extract of rank 0 instead of all journals"
    );
    history.refresh_own(setup).map_err(|err| err.to_string())?;
    Ok(history)
}

fn read_own(setup: &RankSetup) -> Result<JournalHistory, Stop> {
    let mut history = JournalHistory::default();
    history.refresh_own(setup)?;
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_reads_the_journals_of_others_only_if_something_can_be_for_it() {
        let of = |rank, begun_by: Option<&str>, round, restart_count, begins| {
            let plan = RunPlan {
                begun_by: begun_by.map(str::to_owned),
                ..RunPlan::default()
            };
            let mut env = RankEnv::read(|_| None).unwrap();
            env.launch = Some("a".to_owned());
            (env.rank, env.round, env.restart_count) = (rank, round, restart_count);
            source(&plan, &env, begins)
        };
        // The launch that began the run.
        assert_eq!(of(3, Some("a"), 0, 0, true), Source::Own);
        assert_eq!(of(3, Some("a"), 0, 1, false), Source::All);
        assert_eq!(of(0, Some("a"), 0, 0, true), Source::All);
        // A new round of it, and a rank that is restarted alone in this round.
        assert_eq!(of(3, Some("a"), 1, 1, true), Source::RankZero);
        assert_eq!(of(0, Some("a"), 1, 1, true), Source::AllForOthers);
        assert_eq!(of(3, Some("a"), 1, 2, false), Source::All);
        assert_eq!(of(0, Some("a"), 1, 2, false), Source::All);
        // Another launch.
        assert_eq!(of(3, Some("b"), 0, 0, true), Source::RankZero);
        assert_eq!(of(0, Some("b"), 0, 0, true), Source::AllForOthers);
        assert_eq!(of(3, Some("b"), 0, 1, false), Source::All);
        assert_eq!(of(3, None, 0, 0, true), Source::RankZero);
    }

    #[test]
    fn without_the_name_of_its_launch_no_rank_is_the_first() {
        let env = RankEnv::read(|_| None).unwrap();
        assert_eq!(env.launch, None);
        assert_eq!(source(&RunPlan::default(), &env, false), Source::All);
    }
}
