//! Plans the dataset of a job from the options that name its format and contents.

use std::path::Path;

use jobs::eval_args::ExportMode;
use jobs::record_format::RecordFormat;

use crate::env::EnvSpec;
use crate::eval::rollout::job::context::JobContext;
use crate::eval::rollout::job::earlier::Earlier;
use crate::record::{DatasetPlan, EarlierDemos, Export, Format};

/// Returns the plan for the dataset of a job; `None` if none is recorded.
pub fn plan(context: &JobContext, spec: &EnvSpec, earlier: &Earlier) -> Option<DatasetPlan> {
    let (folder, args, job) = (context.folder, context.args, context.job());
    let export = match args.export_mode {
        _ if args.no_dataset => return None,
        ExportMode::None => return None,
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
    let demos = |path: &Path| EarlierDemos {
        next: earlier.first_demo(args.record_format, &folder.relative(path)),
        ..EarlierDemos::default()
    };
    Some(DatasetPlan {
        format,
        export,
        earlier: demos(&path),
        earlier_failed: demos(&DatasetPlan::failed_path(&path)),
        env_args: serde_json::json!({
            "env_name": job.environment,
            "type": 2,
            "sim_args": {"dt": spec.sim_dt, "decimation": spec.decimation, "render_interval": spec.decimation,
                         "num_envs": job.num_envs},
        }),
        cameras: cameras && job.enable_cameras != Some(false),
        path,
    })
}
