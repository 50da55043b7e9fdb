//! Plans the files of a job: its dataset from the options that name its format and contents, its
//! videos from its `video_cfg`, unless `--no-video` is given.
//!
//! A dataset may have demonstrations that a rank wrote before it was killed, and whose lines it did
//! not write. Their episodes run again, so that they must not stay in it:
//!
//! ```text
//! killed here ─► dataset ─► [kill] ─► journal line
//! ```
//! What no line of any journal names is dropped when the next rank has the dataset, see
//! [`crate::eval::rank`]; lines that do not count are lines, too.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use jobs::episode::DemoRef;
use jobs::eval_args::{EvalArgs, ExportMode};
use jobs::files;
use jobs::job::Job;
use jobs::journal;
use jobs::layout::{RecordFormat, RunFolder};
use jobs::placement::Seat;
use jobs::rules::is_filmed;

use crate::env::EnvSpec;
use crate::eval::Stop;
use crate::eval::ledger::Ledger;
use crate::eval::rank_setup::RankSetup;
use crate::eval::rollout::job::task::Task;
use crate::record::{self, AS_RENDERED, DatasetPlan, EarlierDemos, LOW_RES, VideoPlan};

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
    let mut left_out = left_over(folder, path, &named).map_err(journals)?;
    if !left_out.is_empty() {
        out.monitor.say(&told(folder, path, &left_out));
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
    let stem = |seat: &Seat| RunFolder::video_stem(&job.name, *seat);
    (is_filmed(job, args) && !spec.cameras.is_empty()).then(|| VideoPlan {
        dir: folder.videos(job),
        stems: seats.iter().map(stem).collect(),
        per_episode: job.video.per_episode,
        grids: if job.video.grid {
            grids(job, seats)
        } else {
            BTreeMap::new()
        },
        cameras: cameras.unwrap_or_else(|| every.collect()),
        camera_limit: if job.video.use_high_res_cameras == Some(false) {
            LOW_RES
        } else {
            AS_RENDERED
        },
        fps: job.video.fps.unwrap_or(spec.control_hz).max(1),
        bitrate: BITRATE,
    })
}

/// Returns one grid video for each worker and GPU.
fn grids(job: &Job, seats: &[Seat]) -> BTreeMap<String, Vec<usize>> {
    let mut grids: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (env, seat) in seats.iter().enumerate() {
        let grid = grids.entry(RunFolder::grid_stem(&job.name, *seat));
        grid.or_default().push(env);
    }
    grids
}

/// Number of demonstrations that are named in a message.
const NAMED: usize = 5;

/// Returns the demonstrations of a dataset that no line of the journals names. `named` are some
/// that lines name; the journals are only read if there are more.
///
/// # Errors
/// Returns the errors of reading the journals. A dataset that cannot be read has none.
pub fn left_over(
    folder: &RunFolder,
    path: &Path,
    named: &BTreeSet<String>,
) -> io::Result<BTreeSet<String>> {
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let demos = record::demos(path).unwrap_or_default();
    let mut left: BTreeSet<String> = demos.into_iter().collect();
    left.retain(|demo| !named.contains(demo));
    if left.is_empty() {
        return Ok(left);
    }
    let file = folder.relative(path);
    let named = journal::demos(&folder.journals())?;
    left.retain(|demo| !is_in(&named, &file, demo));
    if !left.is_empty() {
        keep_superseded(folder, path, &mut left)?;
    }
    Ok(left)
}

/// Returns what the user is told about demonstrations that are dropped.
pub fn told(folder: &RunFolder, path: &Path, left: &BTreeSet<String>) -> String {
    let file = folder.relative(path);
    let named: Vec<_> = left.iter().take(NAMED).map(String::as_str).collect();
    let more = if left.len() > NAMED { ", …" } else { "" };
    let named = named.join(", ");
    format!("`{file}`: dropped {named}{more}, which no line of the journals names")
}

/// Keeps what the journals of superseded jobs name: the file as it is stays with them. A LeRobot
/// folder has no second name, so that those episodes stay in it.
fn keep_superseded(folder: &RunFolder, path: &Path, left: &mut BTreeSet<String>) -> io::Result<()> {
    let file = folder.relative(path);
    for entry in files::entries(&folder.superseded())? {
        let earlier = RunFolder::new(&entry?.path());
        let named = journal::demos(&earlier.journals())?;
        if !left.iter().any(|demo| is_in(&named, &file, demo)) {
            continue;
        }
        let place = earlier.root().join(&file);
        let made = place.parent().map_or(Ok(()), std::fs::create_dir_all);
        if made
            .and_then(|()| std::fs::hard_link(path, &place))
            .is_err()
        {
            left.retain(|demo| !is_in(&named, &file, demo));
        }
    }
    Ok(())
}

fn is_in(named: &BTreeSet<DemoRef>, file: &str, demo: &str) -> bool {
    named.contains(&DemoRef {
        file: file.to_owned(),
        demo: demo.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::episode::Episode;
    use jobs::journal::{Journal, Line};
    use jobs::samples;
    use serde_json::json;

    use crate::policy::tests::env_with;

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
        assert_eq!(plan.camera_limit, AS_RENDERED);
    }

    #[test]
    fn a_job_says_what_is_filmed_and_a_run_whether() {
        let low = json!({"save_video": true, "use_high_res_cameras": false, "video_base_dir": "v", "fps": 10});
        let plan = planned(&[], low.clone()).unwrap();
        assert_eq!((plan.dir.to_str(), plan.fps), (Some("v"), 10));
        assert_eq!(plan.camera_limit, LOW_RES);
        assert!(planned(&["--no-video"], low).is_none());
        assert!(planned(&[], json!({"save_video": false})).is_none());
    }

    #[test]
    fn a_grid_has_the_environments_of_one_worker() {
        let plan = planned(&[], json!({"grid": true, "per_episode": true})).unwrap();
        let of = |rank: &str| &plan.grids[&format!("behavior_video_{rank}_grid")][..];
        assert_eq!([of("rank0_gpu0"), of("rank1_gpu1")], [&[0, 1][..], &[2]]);
        assert!(plan.per_episode);
    }

    const FILE: &str = "a/dataset_a.hdf5";

    /// Writes a dataset with these demonstrations, as a superseded run or this one has it.
    fn dataset(folder: &RunFolder, demos: &[&str]) {
        std::fs::create_dir_all(folder.job("a")).unwrap();
        let file = hdf5::File::create(folder.root().join(FILE)).unwrap();
        let data = file.create_group("data").unwrap();
        for demo in demos {
            data.create_group(demo).unwrap();
        }
    }

    fn journal(folder: &RunFolder, demos: &[&str]) {
        std::fs::create_dir_all(folder.journals()).unwrap();
        let mut journal = Journal::open(&folder.journal(0)).unwrap();
        for (number, demo) in (0..).zip(demos) {
            let demo = DemoRef {
                file: FILE.to_owned(),
                demo: (*demo).to_owned(),
            };
            let episode = Episode {
                dataset: Some(demo),
                ..samples::episode(0, "a", number)
            };
            journal.append(&Line::from(episode)).unwrap();
        }
    }

    fn left(folder: &RunFolder, named: &[&str]) -> Vec<String> {
        let named = named.iter().map(|name| (*name).to_owned()).collect();
        let left = left_over(folder, &folder.root().join(FILE), &named).unwrap();
        left.into_iter().collect()
    }

    #[test]
    fn what_no_line_names_is_left_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        assert_eq!(left(&folder, &[]), [""; 0], "there is no dataset");
        dataset(&folder, &["demo_0", "demo_1", "demo_2"]);
        journal(&folder, &["demo_1"]);
        assert_eq!(left(&folder, &["demo_0"]), ["demo_2"]);
        std::fs::write(folder.root().join(FILE), "no dataset").unwrap();
        assert_eq!(left(&folder, &[]), [""; 0], "who opens it keeps it aside");
    }

    #[test]
    fn what_a_superseded_run_names_stays_in_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let superseded = RunFolder::new(&folder.superseded().join("1"));
        dataset(&folder, &["demo_0", "demo_1", "demo_2"]);
        journal(&folder, &["demo_0"]);
        journal(&superseded, &["demo_0", "demo_1"]);
        assert_eq!(left(&folder, &[]), ["demo_1", "demo_2"]);
        let kept = record::demos(&superseded.root().join(FILE)).unwrap();
        assert_eq!(kept, ["demo_0", "demo_1", "demo_2"]);
        // If the file cannot be kept there, they stay where they are.
        assert_eq!(left(&folder, &[]), ["demo_2"]);
    }
}
