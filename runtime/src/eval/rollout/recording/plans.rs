//! Plans the files of a job: its dataset from the options that name its format and contents, its
//! videos from its `video_cfg`, unless `--no-video` is given.

use std::collections::BTreeMap;
use std::path::Path;

use jobs::eval_args::{EvalArgs, ExportMode};
use jobs::job::Job;
use jobs::layout::RunFolder;
use jobs::placement::Seat;
use jobs::record_format::RecordFormat;
use jobs::rules::is_filmed;

use crate::env::EnvSpec;
use crate::eval::ledger::Ledger;
use crate::eval::rank_setup::RankSetup;
use crate::eval::rollout::job::task::Task;
use crate::eval::rollout::recording::leftovers;
use crate::eval::stop::Stop;
use crate::record::{CameraSize, DatasetPlan, EarlierDemos, GridPlan, VideoPlan};

/// Bits per second of each environment's video.
const BITRATE: u32 = 1_500_000;

/// Returns the plan for the dataset of a job; `None` if none is recorded.
///
/// # Errors
/// Fails if the journals cannot be read.
pub fn dataset(
    run: &RankSetup,
    task: &Task,
    spec: &EnvSpec,
    out: &Ledger,
) -> Result<Option<DatasetPlan>, Stop> {
    let (folder, args, job) = (&run.folder, &run.args, task.job());
    if args.export_mode == ExportMode::None {
        return Ok(None);
    }
    let file = folder.dataset(&job.name, run.env.rank, run.env.world_size);
    // A dataset for training needs its images; one for analysis is far smaller without them.
    let (path, cameras) = match args.record_format {
        RecordFormat::Hdf5 => (file, args.record_cameras),
        RecordFormat::Lerobot => (file.with_extension(""), true),
    };
    let failed = DatasetPlan::failed_path(&path);
    Ok(Some(DatasetPlan {
        format: args.record_format,
        export: args.export_mode,
        earlier: demos(run, task, &path, out)?,
        earlier_failed: demos(run, task, &failed, out)?,
        env_args: serde_json::json!({
            "env_name": job.environment,
            "type": 2,
            "sim_args": {"dt": spec.sim_dt, "decimation": spec.decimation,
                         "render_interval": spec.decimation, "num_envs": job.num_envs},
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

/// Returns the plan for the videos of the environments in `seats`; `None` if no video is recorded.
pub fn videos(
    args: &EvalArgs,
    job: &Job,
    seats: &[Seat],
    folder: &RunFolder,
    spec: &EnvSpec,
) -> Option<VideoPlan> {
    let every = spec.cameras.iter().map(|camera| camera.name.clone());
    let cameras = job.video.cameras.clone();
    let cameras = cameras.filter(|cameras| !cameras.is_empty());
    (is_filmed(job, args) && !spec.cameras.is_empty()).then(|| VideoPlan {
        dir: folder.videos(job),
        stems: seats
            .iter()
            .map(|seat| RunFolder::video_stem(&job.name, *seat))
            .collect(),
        per_episode: job.video.per_episode,
        grids: if job.video.grid {
            grids(job, seats)
        } else {
            Vec::new()
        },
        cameras: cameras.unwrap_or_else(|| every.collect()),
        size: match job.video.use_high_res_cameras {
            Some(false) => CameraSize::LowRes,
            _ => CameraSize::AsRendered,
        },
        fps: job.video.fps.unwrap_or(spec.control_hz).max(1),
        bitrate: BITRATE,
    })
}

/// Returns one grid video for each worker and GPU.
fn grids(job: &Job, seats: &[Seat]) -> Vec<GridPlan> {
    let mut grids: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (env, seat) in seats.iter().enumerate() {
        grids
            .entry(RunFolder::grid_stem(&job.name, *seat))
            .or_default()
            .push(env);
    }
    grids
        .into_iter()
        .map(|(stem, envs)| GridPlan { stem, envs })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::env_with;
    use serde_json::json;

    fn planned(words: &[&str], video_cfg: serde_json::Value) -> Option<VideoPlan> {
        let more = json!({"name": "behavior", "total_num_envs": 4, "video_cfg": video_cfg, "num_episodes": null});
        let job = crate::eval::tests::jobs([more]).remove(0);
        let words = [&["--jobs", "x"], words].concat();
        let words: Vec<_> = words.iter().map(Into::into).collect();
        let args = EvalArgs::parse_words(&words);
        let seats =
            [(0, 0, 0), (0, 0, 1), (1, 1, 0)].map(|(worker, gpu, env)| Seat { worker, gpu, env });
        let (folder, env) = (
            RunFolder::new("out".as_ref()),
            env_with(&["front"], [224, 224]),
        );
        videos(&args.unwrap(), &job, &seats, &folder, &env)
    }

    #[test]
    fn a_video_is_named_by_worker_gpu_and_environment() {
        let plan = planned(&[], json!({})).unwrap();
        assert_eq!(
            plan.stems,
            [
                "behavior_video_rank0_gpu0_env0",
                "behavior_video_rank0_gpu0_env1",
                "behavior_video_rank1_gpu1_env0"
            ]
        );
        assert_eq!((plan.dir.to_str(), plan.fps), (Some("out/behavior"), 20));
        assert_eq!(plan.size, CameraSize::AsRendered);
    }

    #[test]
    fn a_job_says_what_is_filmed_and_a_run_whether() {
        let low = json!({"save_video": true, "use_high_res_cameras": false, "video_base_dir": "v", "fps": 10});
        let plan = planned(&[], low.clone()).unwrap();
        assert_eq!((plan.dir.to_str(), plan.fps), (Some("v"), 10));
        assert_eq!(plan.size, CameraSize::LowRes);
        assert!(planned(&["--no-video"], low).is_none());
        assert!(planned(&[], json!({"save_video": false})).is_none());
    }

    #[test]
    fn a_grid_has_the_environments_of_one_worker() {
        let plan = planned(&[], json!({"grid": true, "per_episode": true})).unwrap();
        let grids = plan.grids.iter();
        let grids: Vec<_> = grids
            .map(|grid| (grid.stem.as_str(), &grid.envs[..]))
            .collect();
        let first = ("behavior_video_rank0_gpu0_grid", &[0, 1][..]);
        assert_eq!(grids, [first, ("behavior_video_rank1_gpu1_grid", &[2])]);
        assert!(plan.per_episode);
    }
}
