//! The paths of the files of a run, and which datasets a job has there.
//!
//! ```text
//! <output>/plan.json                             the plan: what the run was asked to do
//!          journal/journal_rank<r>.jsonl         what happened in a rank
//!                  extract_<id>.jsonl            what rank 0 has read in all of them, for the other
//!                                                ranks of a large launch while it runs
//!          logs/rank<r>.log                      messages of a rank
//!               model_server_<host>.log          output of a node's model server
//!               tracker_<name>.log               output of the process of a tracker
//!               hang_<n>.txt                     stacks of ranks that hung, or on request
//!          tensorboard/events.out.tfevents.*     event files of TensorBoard
//!          live/rank<r>_env<i>.png commands.json pictures and commands of the live page, while the
//!                                                run lasts
//!          <job>/dataset_<job>_rank<r>.hdf5      dataset_<job>.hdf5 with a world size of one
//!                <job>_video_rank<worker>_gpu<g>_env<i>.mp4
//!                                                i: index within the worker; the folder may be
//!                                                another one (video_base_dir)
//!                episode_results_rebuild<k>.jsonl  episodes as Arena lists them, if asked for
//!          superseded/<n>/                       unchanged files put away by --accept-changed-jobs
//!          merge.json                            list of the runs in a merged folder
//!          plan.lock                             locked while the plan is changed
//!          launch.lock/<launch>-<host>-<pid>.json
//!                                                a node of the launch that writes here
//!          report.json final_benchmark_report.json report.html metrics.json eval_info.json
//!          episodes.jsonl variations.jsonl       the report and its parts
//!          arena_experiment_result.json          all results as Arena lists them, if asked for
//! ```
//! See [`crate::launch`] for the files of `launch.lock`.

use std::fs::{DirEntry, File};
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::job::Job;
use crate::placement::Seat;

/// The folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    root: PathBuf,
}

/// Makes a method for the path of each file and folder that a run folder has beside its jobs.
macro_rules! own_paths {
    ($($(#[$about:meta])* $name:ident => $file:literal,)+) => {
        impl RunFolder {
            $($(#[$about])* pub fn $name(&self) -> PathBuf { self.root.join($file) })+
        }

        /// Their names, which no job can have.
        const OWN: &[&str] = &[$($file),+];
    };
}

own_paths! {
    /// The plan: what the run was asked to do.
    plan => "plan.json",
    /// The list of runs that a merged folder was made of.
    merge => "merge.json",
    /// The lock that is held while the plan is changed, or read by a rank that starts.
    plan_lock => "plan.lock",
    /// The folder with the locks of the launch that writes here, one file per node.
    launches => "launch.lock",
    /// The folder with the files of earlier jobs, see [`crate::plan`].
    superseded => "superseded",
    /// The folder of the journals.
    journals => "journal",
    /// The folder of the logs.
    logs => "logs",
    /// The folder of what the live page and the ranks tell each other, see [`crate::live`].
    live => "live",
    /// The folder of TensorBoard's event files.
    tensorboard => "tensorboard",
    /// The certificate, unless the user names another one.
    certificate => "certificate.json",
    /// The report in the schema of `rrun`.
    report => "report.json",
    /// The same report under the name that merge scripts look for.
    final_benchmark_report => "final_benchmark_report.json",
    /// `{job: {metric: value}}`, as Arena's `save_metrics_to_file` writes it.
    metrics => "metrics.json",
    /// The list of all finished episodes, one per line, ordered by job and episode.
    episodes => "episodes.jsonl",
    /// The list of all pairs of control and variant, one per line; it exists if jobs have variants.
    variations => "variations.jsonl",
    /// The report as an HTML page.
    page => "report.html",
    /// The results in the format of LeRobot's `lerobot-eval`.
    eval_info => "eval_info.json",
    /// The results of all runs, as Arena's `experiment_runner` collects them.
    arena_experiment_result => "arena_experiment_result.json",
}

impl RunFolder {
    /// Creates the paths of a run folder, without touching the disk.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Returns the path of the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Creates the folder, if it does not exist, so that no other user can read it. An existing
    /// folder keeps its permissions.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn make_private(&self) -> io::Result<()> {
        if let Some(parent) = self.root.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(&self.root) {
            Err(err) if err.kind() != ErrorKind::AlreadyExists => Err(err),
            _ => Ok(()),
        }
    }

    /// Returns the path of a rank's journal.
    pub fn journal(&self, rank: usize) -> PathBuf {
        self.journals().join(format!("journal_rank{rank}.jsonl"))
    }

    /// Returns the path of a rank's log, whose lines have times.
    pub fn log(&self, rank: usize) -> PathBuf {
        self.logs().join(format!("rank{rank}.log"))
    }

    /// Returns the path of the log of a node's model server.
    pub fn model_server_log(&self, host: &str) -> PathBuf {
        self.logs().join(format!("model_server_{host}.log"))
    }

    /// Returns the path of the log of an experiment tracker.
    pub fn tracker_log(&self, tracker: &str) -> PathBuf {
        self.logs().join(format!("tracker_{tracker}.log"))
    }

    /// Returns the path of the newest picture of an environment.
    pub fn picture(&self, rank: usize, env: usize) -> PathBuf {
        self.live().join(format!("rank{rank}_env{env}.png"))
    }

    /// Returns the path of what a user has asked of the ranks on the live page.
    pub fn commands(&self) -> PathBuf {
        self.live().join("commands.json")
    }

    /// Returns the path of a hang report of the launcher.
    pub fn hang_report(&self, number: u64) -> PathBuf {
        self.logs().join(format!("hang_{number}.txt"))
    }

    /// Returns the path of the cached checksums of policy files, so that they are not read again.
    pub fn policy_files(&self) -> PathBuf {
        self.journals().join("policy_files.json")
    }

    /// Returns the folder of a job's dataset and videos.
    pub fn job(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the path of a job's dataset in one rank, named as in Arena.
    pub fn dataset(&self, name: &str, rank: usize, world_size: usize) -> PathBuf {
        let file = match world_size {
            1 => format!("dataset_{name}.hdf5"),
            _ => format!("dataset_{name}_rank{rank}.hdf5"),
        };
        self.job(name).join(file)
    }

    /// Returns the folder of the files that planners keep about a job's episodes.
    pub fn planner(&self, name: &str) -> PathBuf {
        self.job(name).join("planner")
    }

    /// Returns the folder of a job's videos: that of the job, unless it names another one
    /// (`video_base_dir`).
    pub fn videos(&self, job: &Job) -> PathBuf {
        job.video
            .base_dir
            .clone()
            .unwrap_or_else(|| self.job(&job.name))
    }

    /// Returns the name of the video of one environment, without `.mp4`. The number after `rank` is
    /// that of its environment worker, which equals the rank unless there is a placement. Without a
    /// GPU the name has `gpu0`, so that scripts that match the name still work.
    pub fn video_stem(name: &str, Seat { worker, gpu, env }: Seat) -> String {
        format!("{name}_video_rank{worker}_gpu{gpu}_env{env}")
    }

    /// Returns the name of the video that shows all environments of a worker in a rank.
    pub fn grid_stem(name: &str, Seat { worker, gpu, .. }: Seat) -> String {
        format!("{name}_video_rank{worker}_gpu{gpu}_grid")
    }

    /// Returns the path of the episodes of one build of a job's environment, as Arena writes them.
    pub fn arena_episodes(&self, name: &str, rebuild: u64) -> PathBuf {
        self.job(name)
            .join(format!("episode_results_rebuild{rebuild}.jsonl"))
    }

    /// Returns the paths of all files that are made from plan and journals.
    pub fn reports(&self) -> Vec<PathBuf> {
        vec![
            self.report(),
            self.final_benchmark_report(),
            self.metrics(),
            self.episodes(),
            self.variations(),
            self.page(),
            self.eval_info(),
            self.arena_experiment_result(),
        ]
    }

    /// Returns whether a run folder has a file or folder of this name beside those of the jobs.
    pub(crate) fn has_own(name: &str) -> bool {
        OWN.contains(&name)
    }

    /// Returns a path as journals have it: relative to the folder, or absolute if it is elsewhere
    /// (`video_base_dir`).
    pub fn relative(&self, path: &Path) -> String {
        let elsewhere = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.strip_prefix(&self.root)
            .map_or_else(|_| elsewhere(), Path::to_owned)
            .to_string_lossy()
            .into_owned()
    }
}

/// Returns the rank of a journal by its file name: `journal_rank3.jsonl`, or
/// `journal_rank3_5f1c….jsonl` in a merged folder.
pub fn journal_rank(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?.strip_prefix("journal_rank")?;
    name.split(['_', '.']).next()?.parse().ok()
}

/// Writes a file atomically: writes a new file beside it, syncs it and renames it.
///
/// # Errors
/// Returns the errors of the file system; the old file is still there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_whole_with(path, |file| file.write_all(bytes))
}

/// As [`write_whole`], for content that is too large for memory: `write` fills the file.
///
/// # Errors
/// Returns the errors of [`write_whole`] and of `write`.
pub fn write_whole_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    replace(path, |file| {
        write(file)?;
        file.flush()?;
        file.get_ref().sync_all()
    })
}

/// Bytes of a file that are written at once. Reports have up to hundreds of MB, and each write may
/// be a request to a server of files.
const BUFFER: usize = 256 * 1024;

/// As [`write_whole_with`], without syncing: every reader sees a whole file, but it may be lost
/// in a power failure.
///
/// # Errors
/// As [`write_whole_with`].
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let beside = beside(path);
    let written = File::create(&beside).and_then(|file| {
        let mut file = BufWriter::with_capacity(BUFFER, file);
        write(&mut file)?;
        file.flush()
    });
    match written.and_then(|()| std::fs::rename(&beside, path)) {
        Ok(()) => Ok(()),
        Err(err) => {
            // The incomplete file is of no use; failing to remove it does not change the error.
            let _ = std::fs::remove_file(&beside);
            Err(err)
        }
    }
}

/// Returns a path beside `path` that no other process, thread or node uses.
pub(crate) fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    path.with_extension(format!("{}-{nanos}-{count}.tmp", std::process::id()))
}

/// Format of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    /// One HDF5 file, as in robomimic and Isaac Lab.
    #[default]
    Hdf5,
    /// A folder, as in LeRobot v3.0.
    Lerobot,
}

impl RecordFormat {
    /// Returns the format of a dataset that exists.
    pub fn of_path(path: &Path) -> Self {
        match path.is_dir() {
            true => Self::Lerobot,
            false => Self::Hdf5,
        }
    }

    /// Returns the number of an episode in a dataset by its name there, in a format whose numbers
    /// go on from those in the journals. Other formats number their episodes themselves.
    pub fn demo_number(self, name: &str) -> Option<u64> {
        match self {
            Self::Hdf5 => name.strip_prefix("demo_")?.parse().ok(),
            Self::Lerobot => None,
        }
    }
}

/// A dataset of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatasetFile {
    /// Path of the file, or of the folder for LeRobot.
    pub path: PathBuf,
    /// The rank that wrote it; `None` for the only rank of a launch.
    pub rank: Option<usize>,
}

impl RunFolder {
    /// Returns the datasets that a job has in this folder, of any rank, format and world size,
    /// sorted by path. A job without a folder has none.
    ///
    /// # Errors
    /// Returns an error if the folder exists and cannot be read.
    pub fn datasets(&self, name: &str) -> io::Result<Vec<DatasetFile>> {
        let entries: Vec<_> = files::entries(&self.job(name))?.collect::<io::Result<_>>()?;
        let paths = entries.iter().map(DirEntry::path);
        let dataset = |path: PathBuf| {
            let rank = dataset_rank(&path, name)?;
            Some(DatasetFile { path, rank })
        };
        let mut found: Vec<_> = paths.filter_map(dataset).collect();
        found.sort();
        Ok(found)
    }
}

/// Returns which rank wrote a dataset of the job `name`, see [`RunFolder::dataset`]; `None` if the
/// path is not that of a dataset.
fn dataset_rank(path: &Path, name: &str) -> Option<Option<usize>> {
    let file = path.file_name()?.to_str()?;
    let rest = file.strip_prefix("dataset_")?.strip_prefix(name)?;
    let rest = rest.strip_suffix(".hdf5").unwrap_or(rest);
    let rest = rest.strip_suffix("_failed").unwrap_or(rest);
    match rest.strip_prefix("_rank") {
        None => rest.is_empty().then_some(None),
        Some(rank) => rank.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_in_a_dataset_name_only_when_there_are_several() {
        let folder = RunFolder::new(Path::new("out"));
        let found = folder.dataset("push", 0, 1);
        assert_eq!(found, Path::new("out/push/dataset_push.hdf5"));
        let shown = folder.dataset("push", 3, 4);
        assert_eq!(shown, Path::new("out/push/dataset_push_rank3.hdf5"));
        assert_eq!(folder.relative(Path::new("out/push/a.mp4")), "push/a.mp4");
        assert!(folder.relative(Path::new("videos/a.mp4")).starts_with('/'));
    }

    #[test]
    fn no_job_can_have_the_name_of_a_file_of_the_run() {
        let names = ["journal", "plan.json", "live", "reach"];
        assert_eq!(names.map(RunFolder::has_own), [true, true, true, false]);
    }

    #[test]
    fn a_private_folder_is_that_of_its_user_alone_and_one_that_is_there_is_left_as_it_is() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (fresh, there) = (dir.path().join("a/b"), dir.path().join("there"));
        RunFolder::new(&fresh).make_private().unwrap();
        std::fs::create_dir(&there).unwrap();
        std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o755)).unwrap();
        RunFolder::new(&there).make_private().unwrap();
        assert_eq!((mode(&fresh), mode(&there)), (0o700, 0o755));
    }

    #[test]
    fn a_journal_says_whose_it_is() {
        let ranks = [
            "journal_rank12.jsonl",
            "out/journal_rank3_5f1c.jsonl",
            "journal.jsonl",
            "journal_rank.jsonl",
        ];
        let found = ranks.map(|name| journal_rank(Path::new(name)));
        assert_eq!(found, [Some(12), Some(3), None, None]);
    }

    #[test]
    fn a_file_is_replaced_in_one_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_datasets_of_a_job_are_those_of_any_rank_and_format() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        assert_eq!(folder.datasets("a").unwrap(), []);
        std::fs::create_dir(folder.job("a")).unwrap();
        for name in [
            "dataset_a.hdf5",
            "dataset_a_rank12.hdf5",
            "dataset_a_rank3_failed",
            "dataset_a.hdf5.tmp",
            "dataset_a.hdf5.damaged",
            "dataset_a.damaged1",
            "dataset_ab.hdf5",
            "a_video_rank0_gpu0_env0.mp4",
        ] {
            std::fs::write(folder.job("a").join(name), "").unwrap();
        }
        let found = folder.datasets("a").unwrap().into_iter();
        let found: Vec<_> = found
            .map(|dataset| (folder.relative(&dataset.path), dataset.rank))
            .collect();
        let wanted = [
            ("a/dataset_a.hdf5", None),
            ("a/dataset_a_rank12.hdf5", Some(12)),
            ("a/dataset_a_rank3_failed", Some(3)),
        ];
        assert_eq!(found, wanted.map(|(path, rank)| (path.to_owned(), rank)));
    }
}
