//! The end of a run: the journals of all ranks are gathered, and rank 0 writes the report.

use std::time::Duration;

use jobs::live::Commands;
use report::tables;
use report::{Context, Journals, Merged, Report};

use crate::console;
use crate::eval::monitor::peers::Peers;
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;
use tcpstore::{Deadline, Store};
use torchlib::{Gathering, Route};

/// Time limit for the gather: all ranks have arrived or are lost, so only data is left to be moved.
const GATHER: Duration = Duration::from_secs(60);

/// Rank and bytes of the journals that other ranks sent; those in the run folder are read from
/// there.
type Delivered = Vec<(usize, Vec<u8>)>;

/// Gathers the journals of all ranks on rank 0. The other ranks send theirs and get nothing back.
/// Returns them with facts about the run for the report, and a note for the user.
pub fn bring_together(
    setup: &RankSetup,
    peers: &Peers,
    lost: &[usize],
) -> (Delivered, Context, Option<String>) {
    let (env, folder, device) = (&setup.env, &setup.folder, setup.device.device);
    let mine = std::fs::read(folder.journal(env.rank)).unwrap_or_default();
    let (mut delivered, mut note) = (Vec::new(), None);
    let mut context = Context::now(env.world_size);
    let gathering = |store: &Store| Gathering {
        store: store.prefix(&format!("rrun/gather/{}/{}", env.run_id, env.round)),
        rank: env.rank,
        world: env.world_size,
        device,
        // NCCL needs rank 0, so it is not used if rank 0 is lost.
        own_gpu_each: matches!(device, tch::Device::Cuda(_)) && !lost.contains(&0),
        // A lost rank never sends its journal, and the others need only seconds.
        until: Deadline::after(if lost.is_empty() { GATHER } else { GATHER / 6 }),
    };
    let gathered = match &peers.store {
        _ if env.world_size == 1 => None,
        None => Some(Err("there is no store".to_owned())),
        Some(store) => Some(gathering(store).run(mine).map_err(|err| err.to_string())),
    };
    let mut parts = vec![None; env.world_size];
    match gathered {
        None => context.route = "single".to_owned(),
        Some(Ok(gathered)) => {
            (parts, note) = (gathered.parts, gathered.note);
            let route = match gathered.route {
                Route::Store => "store",
                Route::Nccl => "nccl",
            };
            context.route = route.to_owned();
        }
        Some(Err(err)) => note = Some(format!("results were not gathered: {err}")),
    }
    for (rank, part) in parts.into_iter().enumerate() {
        match part {
            _ if rank == env.rank => {}
            Some(part) => delivered.push((rank, part)),
            None => context.missing_ranks.push(rank),
        }
    }
    (delivered, context, note)
}

/// Writes the report and prints the tables, with that of a reference if there is one.
///
/// # Errors
/// Returns a [`Stop`] if a file cannot be read or written.
pub fn report(
    setup: &RankSetup,
    delivered: Delivered,
    context: Context,
    reference: Option<String>,
) -> Result<Report, Stop> {
    let (folder, plan) = (&setup.folder, &setup.plan);
    let failed = |err: std::io::Error| {
        let what = format_args!("cannot write the report into `{}`", folder.root().display());
        Stop::rank(what, err)
    };
    let on_disk = Journals::of(folder).map_err(failed)?;
    let journals = on_disk.and_delivered(delivered);
    let merged = Merged::new(plan.clone(), journals).map_err(failed)?;
    let context = Context {
        commands: Commands::found(folder),
        ..context
    };
    let report = report::write(folder, &merged, context).map_err(failed)?;
    console::out(format_args!(
        "\n{}",
        tables::summary(plan, &report, reference)
    ));
    console::out(format_args!("report: {}", folder.report().display()));
    console::out(format_args!("page:   {}", folder.page().display()));
    Ok(report)
}
