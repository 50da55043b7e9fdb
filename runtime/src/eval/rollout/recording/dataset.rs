//! Plans the dataset of a job from the options that name its format and contents.

use std::path::Path;

use jobs::eval_args::ExportMode;
use jobs::record_format::RecordFormat;

use crate::env::EnvSpec;
use crate::eval::rollout::job::context::JobContext;
use crate::eval::rollout::job::earlier::Earlier;
use crate::eval::rollout::recording::episode_log::EpisodeLog;
use crate::eval::rollout::recording::leftovers;
use crate::eval::stop::Stop;
use crate::record::{DatasetPlan, EarlierDemos, Export, Format};

/// Returns the plan for the dataset of a job; `None` if none is recorded.
///
/// # Errors
/// Fails if the journals cannot be read.
pub fn plan(
    context: &JobContext,
    spec: &EnvSpec,
    earlier: &Earlier,
    log: &mut EpisodeLog,
) -> Result<Option<DatasetPlan>, Stop> {
    let (folder, args, job) = (context.folder, context.args, context.job());
    let export = match args.export_mode {
        _ if args.no_dataset => return Ok(None),
        ExportMode::None => return Ok(None),
        ExportMode::All => Export::All,
        ExportMode::Succeeded => Export::Succeeded,
        ExportMode::Separate => Export::Separate,
    };
    let file = folder.dataset(&job.name, context.env.rank, context.env.world_size);
    // A dataset for training needs its images; one for analysis is far smaller without them.
    let (format, path, cameras) = match args.record_format {
        RecordFormat::Hdf5 => (Format::Hdf5, file, args.record_cameras),
        RecordFormat::Lerobot => (Format::LeRobot, file.with_extension(""), true),
    };
    let failed = DatasetPlan::failed_path(&path);
    Ok(Some(DatasetPlan {
        format,
        export,
        earlier: demos(context, earlier, &path, log)?,
        earlier_failed: demos(context, earlier, &failed, log)?,
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
fn demos(
    context: &JobContext,
    earlier: &Earlier,
    path: &Path,
    log: &mut EpisodeLog,
) -> Result<EarlierDemos, Stop> {
    let folder = context.folder;
    let file = folder.relative(path);
    let [named, runs_again] = earlier.demos(context.work, &file);
    let journals = |err| {
        let folder = folder.journals();
        Stop::job(format_args!(
            "cannot read the journals in `{}`: {err}",
            folder.display()
        ))
    };
    let mut left_out = leftovers::of(folder, path, &named).map_err(journals)?;
    if !left_out.is_empty() {
        log.observer.say(&leftovers::told(folder, path, &left_out));
    }
    left_out.extend(runs_again);
    Ok(EarlierDemos {
        next: earlier.first_demo(context.args.record_format, &file),
        left_out,
    })
}
