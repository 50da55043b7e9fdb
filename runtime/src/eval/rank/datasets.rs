//! Datasets that a rank cleans before its work: an earlier rank may have been killed after it had
//! written a demonstration and before the line of it. A rank that runs such a job again opens its own
//! dataset and drops what has no line; nobody may open the others again.
//!
//! ```text
//! rank r  dataset_a_rank<r>.hdf5    its own, whether it runs the job again or not
//! rank 0  all that belong to no rank of this world: of earlier starts with other numbers of ranks
//! ```

use std::io;
use std::path::PathBuf;

use jobs::job::Job;
use jobs::journal;

use crate::eval::monitor::Monitor;
use crate::eval::rank::history::{JournalHistory, is_first_life};
use crate::eval::rank_setup::RankSetup;
use crate::eval::rollout::job::task;
use crate::eval::rollout::recording::plans;
use crate::record::{self, DatasetPlan};

/// Drops what no journal line names from the datasets of this rank. A dataset that cannot be read
/// or written is reported and left as it is.
pub fn clean(setup: &RankSetup, past: &JournalHistory, monitor: &Monitor) {
    if is_first_life(setup) {
        return;
    }
    for job in &setup.plan.jobs {
        clean_job(setup, past, monitor, job);
    }
}

/// Works like [`clean`], for one job.
pub fn clean_job(setup: &RankSetup, past: &JournalHistory, monitor: &Monitor, job: &Job) {
    let datasets = match of_this_rank(setup, job) {
        Ok(datasets) => datasets,
        Err(err) => {
            let folder = setup.folder.job(&job.name);
            let text = format!("warning: datasets in `{}`: {err}", folder.display());
            return monitor.say(&text);
        }
    };
    for path in datasets {
        let file = setup.folder.relative(&path);
        let lines = past.about(job.index);
        let named = task::demos_in(task::demos_of(&lines).map(|(_, demo)| demo), &file);
        let left = plans::left_over(&setup.folder, &path, &named).map_err(|err| err.to_string());
        let cleaned = left.and_then(|left| match record::leave_out(&path, &left) {
            Ok(()) => Ok(left),
            Err(err) => Err(err.to_string()),
        });
        match cleaned {
            Ok(left) if left.is_empty() => {}
            Ok(left) => monitor.say(&plans::told(&setup.folder, &path, &left)),
            Err(reason) => monitor.say(&format!("warning: `{file}` is left as it is: {reason}")),
        }
    }
}

/// Returns the datasets of a job that this rank alone may write.
fn of_this_rank(setup: &RankSetup, job: &Job) -> io::Result<Vec<PathBuf>> {
    let (folder, env) = (&setup.folder, &setup.env);
    if env.rank != 0 {
        let hdf5 = folder.dataset(&job.name, env.rank, env.world_size);
        let all = [hdf5.clone(), hdf5.with_extension("")];
        let both = |path: PathBuf| [DatasetPlan::failed_path(&path), path];
        let all = all.into_iter().flat_map(both);
        return Ok(all.filter(|path| path.exists()).collect());
    }
    let mut datasets = folder.datasets(&job.name)?;
    datasets.retain(|dataset| match dataset.rank {
        Some(rank) if env.world_size > 1 && rank < env.world_size => rank == 0,
        // A rank that was lost may not know it yet.
        Some(rank) => rank == 0 || !journal::is_held(&folder.journal(rank)),
        None => true,
    });
    Ok(datasets.into_iter().map(|dataset| dataset.path).collect())
}
