//! Plans the dataset of a job from the options that name its format and contents.

use std::path::Path;

use jobs::eval_args::ExportMode;
use jobs::record_format::RecordFormat;

use crate::env::EnvSpec;
use crate::eval::ledger::Ledger;
use crate::eval::rollout::job::task::Task;
use crate::eval::rollout::recording::leftovers;
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;
use crate::record::{DatasetPlan, EarlierDemos, Export, Format};

/// Returns the plan for the dataset of a job; `None` if none is recorded.
///
/// # Errors
/// Fails if the journals cannot be read.
pub fn plan(
    run: &RankSetup,
    task: &Task,
    spec: &EnvSpec,
    out: &Ledger,
) -> Result<Option<DatasetPlan>, Stop> {
    let (folder, args, job) = (&run.folder, &run.args, task.job());
    let export = match args.export_mode {
        _ if args.no_dataset => return Ok(None),
        ExportMode::None => return Ok(None),
        ExportMode::All => Export::All,
        ExportMode::Succeeded => Export::Succeeded,
        ExportMode::Separate => Export::Separate,
    };
    let file = folder.dataset(&job.name, run.env.rank, run.env.world_size);
    // A dataset for training needs its images; one for analysis is far smaller without them.
    let (format, path, cameras) = match args.record_format {
        RecordFormat::Hdf5 => (Format::Hdf5, file, args.record_cameras),
        RecordFormat::Lerobot => (Format::LeRobot, file.with_extension(""), true),
    };
    let failed = DatasetPlan::failed_path(&path);
    Ok(Some(DatasetPlan {
        format,
        export,
        earlier: demos(run, task, &path, out)?,
        earlier_failed: demos(run, task, &failed, out)?,
        env_args: serde_json::json!({
            "env_name": job.environment,
            "type": 2,
            "sim_args": {"dt": spec.sim_dt, "decimation": spec.decimation, "render_interval": spec.decimation,
                         "num_envs": job.num_envs},
        }),
        cameras: cameras && job.enable_cameras != Some(false),
        path,
    }))
}

/// Returns what the journals say about the demonstrations of a dataset.
fn demos(run: &RankSetup, task: &Task, path: &Path, out: &Ledger) -> Result<EarlierDemos, Stop> {
    let folder = &run.folder;
    let file = folder.relative(path);
    let [named, runs_again] = task.demos(&file);
    let journals = |err| {
        let folder = folder.journals();
        Stop::job(format_args!(
            "cannot read the journals in `{}`: {err}",
            folder.display()
        ))
    };
    let mut left_out = leftovers::of(folder, path, &named).map_err(journals)?;
    if !left_out.is_empty() {
        out.monitor.say(&leftovers::told(folder, path, &left_out));
    }
    left_out.extend(runs_again);
    Ok(EarlierDemos {
        next: task.first_demo(run.args.record_format, &file),
        left_out,
    })
}
