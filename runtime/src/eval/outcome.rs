//! The end of a run: what all ranks wrote down comes together, and rank 0 says what came out.

use std::time::{Duration, SystemTime};

use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::rank_env::RankEnv;
use jobs::report::{Context, Journals, Report};
use jobs::table;
use jobs::time::rfc3339;

use crate::eval::console;
use crate::eval::peers::Peers;
use c10d::{Route, Who, gather};

/// Everyone has arrived, or is lost: what is left is moving bytes.
const GATHER: Duration = Duration::from_secs(60);

/// The journals of all ranks, and how they came together.
pub struct Together {
    /// What other ranks delivered; what the run folder has is read where it is.
    pub delivered: Vec<(usize, Vec<u8>)>,
    /// For the report.
    pub context: Context,
    /// What the user should know.
    pub note: Option<String>,
}

/// Brings the journals of all ranks to rank 0; the other ranks deliver theirs and get nothing back.
pub fn bring_together(
    env: &RankEnv,
    folder: &RunFolder,
    peers: &Peers,
    device: tch::Device,
    lost: &[usize],
) -> Together {
    let mine = std::fs::read(folder.journal(env.rank)).unwrap_or_default();
    let who = Who { rank: env.rank, world: env.world_size, restart: env.round, run_id: env.run_id.clone() };
    // NCCL needs rank 0's word, and nobody waits for a rank 0 that is lost.
    let own_gpu_each = matches!(device, tch::Device::Cuda(_)) && !lost.contains(&0);
    // Who is lost does not come any more: the others need seconds.
    let deadline = if lost.is_empty() { GATHER } else { GATHER / 6 };
    let mut context = context(env);
    match gather(peers.store(), who, device, own_gpu_each, &mine, deadline) {
        Ok(gathered) => {
            context.route = match gathered.route {
                Route::Single => "single",
                Route::Store => "store",
                Route::Nccl => "nccl",
            }
            .to_owned();
            let parts = gathered.parts.iter().enumerate();
            context.missing_ranks = parts.filter(|(_, part)| part.is_none()).map(|(rank, _)| rank).collect();
            let parts = gathered.parts.into_iter().enumerate().filter(|(rank, _)| *rank != env.rank);
            let delivered = parts.filter_map(|(rank, part)| Some((rank, part?))).collect();
            Together { delivered, context, note: gathered.note }
        }
        Err(err) => {
            context.missing_ranks = (0..env.world_size).filter(|rank| *rank != env.rank).collect();
            Together { delivered: Vec::new(), context, note: Some(format!("results were not gathered: {err}")) }
        }
    }
}

/// What the journals in the run folder say, when there is no time to gather.
pub fn from_disk(env: &RankEnv, stopped: String) -> Together {
    let context = Context { stopped: Some(stopped), ..context(env) };
    Together { delivered: Vec::new(), context, note: None }
}

fn context(env: &RankEnv) -> Context {
    Context {
        argv: std::env::args().collect(),
        world_size: env.world_size,
        route: "journals".to_owned(),
        missing_ranks: Vec::new(),
        stopped: None,
        created: rfc3339(SystemTime::now()),
    }
}

/// Writes the report and prints the tables.
///
/// # Errors
/// Those of the file system, naming the folder.
pub fn report(folder: &RunFolder, plan: &RunPlan, together: Together) -> Result<Report, String> {
    let failed = |err: std::io::Error| format!("cannot write the report into `{}`: {err}", folder.root().display());
    let on_disk = Journals::of(folder).map_err(failed)?;
    let add = |journals: Journals, (rank, bytes)| journals.and_delivered(rank, bytes);
    let journals = together.delivered.into_iter().fold(on_disk, add);
    let report = jobs::report::write(folder, plan, &journals, together.context).map_err(failed)?;
    let rows = plan.jobs.iter().zip(&report.per_job).map(|(job, report)| (job, report.status.as_str()));
    console::out(format_args!("\n{}\n{}", table::jobs(rows), table::metrics_summary(&report)));
    let comparison = table::comparison(&report);
    if !comparison.is_empty() {
        console::out(comparison);
    }
    console::out(table::conclusion(&report));
    console::out(format_args!("report: {}", folder.report().display()));
    Ok(report)
}
