//! Where the files of a run are.
//!
//! ```text
//! <output>/plan.json                                     what was asked for
//!          journal/journal_rank<r>.jsonl                 what happened
//!          logs/rank<r>.log                              what was said
//!               model_server_<host>.log                  what the model server of a node has written
//!          <job>/dataset_<job>_rank<r>.hdf5              dataset_<job>.hdf5 in a world of one
//!                <job>_video_rank<worker>_gpu<g>_env<i>.mp4   i within the worker; elsewhere with video_base_dir
//!          superseded/<n>/                               what --accept-changed-jobs put away, as it was
//!          merge.json                                    what a merged folder was made of
//!          plan.lock                                     held while the plan is changed
//!          launch.lock/<launch>-<host>-<pid>.json        who writes into the folder, see [`crate::launch`]
//!          report.json final_benchmark_report.json report.html metrics.json eval_info.json episodes.jsonl
//! ```

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::job::Job;
use crate::placement::Seat;

/// The folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    /// Names the folder; makes nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folder if it is not there, so that nobody but this user can look into it. One that is there is left as
    /// its user has made it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make_private(&self) -> std::io::Result<()> {
        if let Some(parent) = self.root.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(&self.root) {
            Err(err) if err.kind() != std::io::ErrorKind::AlreadyExists => Err(err),
            _ => Ok(()),
        }
    }

    /// What was asked for.
    pub fn plan(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    /// What a merged folder was made of.
    pub fn merge(&self) -> PathBuf {
        self.root.join("merge.json")
    }

    /// Held while the plan is changed, or looked at by a rank that starts.
    pub fn plan_lock(&self) -> PathBuf {
        self.root.join("plan.lock")
    }

    /// Folder of the locks of the launch that writes here, one file a node.
    pub fn launches(&self) -> PathBuf {
        self.root.join("launch.lock")
    }

    /// Folder of what belonged to earlier jobs, see [`crate::plan`].
    pub fn superseded(&self) -> PathBuf {
        self.root.join("superseded")
    }

    /// Folder of the journals.
    pub fn journals(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// Journal of one rank.
    pub fn journal(&self, rank: usize) -> PathBuf {
        self.journals().join(format!("journal_rank{rank}.jsonl"))
    }

    /// What a rank has said, with times.
    pub fn log(&self, rank: usize) -> PathBuf {
        self.root.join("logs").join(format!("rank{rank}.log"))
    }

    /// What the model server of a node has written.
    pub fn model_server_log(&self, host: &str) -> PathBuf {
        self.root.join("logs").join(format!("model_server_{host}.log"))
    }

    /// What is remembered of the files of policies, so that they are not read again.
    pub fn policy_files(&self) -> PathBuf {
        self.journals().join("policy_files.json")
    }

    /// Folder of one job's dataset and videos.
    pub fn job(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Dataset of one job in one rank, named as Arena names it.
    pub fn dataset(&self, name: &str, rank: usize, world_size: usize) -> PathBuf {
        let file = match world_size {
            1 => format!("dataset_{name}.hdf5"),
            _ => format!("dataset_{name}_rank{rank}.hdf5"),
        };
        self.job(name).join(file)
    }

    /// Folder of what planners keep of a job's episodes.
    pub fn planner(&self, name: &str) -> PathBuf {
        self.job(name).join("planner")
    }

    /// Folder of a job's videos: its own, unless the job names another (`video_base_dir`).
    pub fn videos(&self, job: &Job) -> PathBuf {
        job.video.base_dir.clone().unwrap_or_else(|| self.job(&job.name))
    }

    /// Name of the video of one environment, without `.mp4`. The number after `rank` is that of its environment worker,
    /// which is the rank where nothing is placed; without a GPU it is `gpu0`, so that scripts which match the name go on
    /// to do so.
    pub fn video_stem(name: &str, Seat { worker, gpu, env }: Seat) -> String {
        format!("{name}_video_rank{worker}_gpu{gpu}_env{env}")
    }

    /// Name of the video that shows all environments of a worker in a rank.
    pub fn grid_stem(name: &str, Seat { worker, gpu, .. }: Seat) -> String {
        format!("{name}_video_rank{worker}_gpu{gpu}_grid")
    }

    /// The report, our schema.
    pub fn report(&self) -> PathBuf {
        self.root.join("report.json")
    }

    /// The same report under the name that merge scripts look for.
    pub fn final_benchmark_report(&self) -> PathBuf {
        self.root.join("final_benchmark_report.json")
    }

    /// The report to look at.
    pub fn page(&self) -> PathBuf {
        self.root.join("report.html")
    }

    /// `{job: {metric: value}}`, as Arena's `save_metrics_to_file` writes it.
    pub fn metrics(&self) -> PathBuf {
        self.root.join("metrics.json")
    }

    /// As LeRobot's `lerobot-eval` writes it.
    pub fn eval_info(&self) -> PathBuf {
        self.root.join("eval_info.json")
    }

    /// Every finished episode, one a line, in the order of jobs and episodes.
    pub fn episodes(&self) -> PathBuf {
        self.root.join("episodes.jsonl")
    }

    /// Everything that is made out of plan and journals.
    pub fn reports(&self) -> Vec<PathBuf> {
        let others = ["report.html", "eval_info.json"].map(|name| self.root.join(name));
        let ours = [self.report(), self.final_benchmark_report(), self.metrics(), self.episodes()];
        ours.into_iter().chain(others).collect()
    }

    /// A path as the journal has it: relative to the folder, or absolute where it is elsewhere (`video_base_dir`).
    pub fn relative(&self, path: &Path) -> String {
        let elsewhere = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.strip_prefix(&self.root).map_or_else(|_| elsewhere(), Path::to_owned).to_string_lossy().into_owned()
    }
}

/// The rank that a journal is of, by its name: `journal_rank3.jsonl`, and in a merged folder `journal_rank3_5f1c….jsonl`.
pub fn journal_rank(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?.strip_prefix("journal_rank")?;
    name.split(['_', '.']).next()?.parse().ok()
}

/// Writes a file so that there is never half of it: a new file beside it, synced, then renamed.
///
/// # Errors
/// Those of the file system; the old file is then still there.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    write_whole_with(path, |file| std::io::Write::write_all(file, bytes))
}

/// As [`write_whole`], for what is too large to hold: `write` fills the file.
///
/// # Errors
/// As [`write_whole`], and those of `write`.
pub fn write_whole_with(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    replace(path, |file| {
        write(file)?;
        file.sync_all()
    })
}

/// As [`write_whole_with`], without waiting for the disk: whole for every reader, and perhaps not there after a loss of
/// power.
///
/// # Errors
/// As [`write_whole_with`].
pub fn replace(path: &Path, write: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>) -> std::io::Result<()> {
    let beside = beside(path);
    let written = std::fs::File::create(&beside).and_then(|mut file| write(&mut file));
    match written.and_then(|()| std::fs::rename(&beside, path)) {
        Ok(()) => Ok(()),
        Err(err) => {
            // The half file is of no use; that it may not go away changes nothing about the error.
            let _ = std::fs::remove_file(&beside);
            Err(err)
        }
    }
}

/// A name beside `path` that no other process, thread or node uses.
pub(crate) fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    path.with_extension(format!("{}-{nanos}-{count}.tmp", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_in_a_dataset_name_only_when_there_are_several() {
        let folder = RunFolder::new(Path::new("out"));
        assert_eq!(folder.dataset("push", 0, 1), Path::new("out/push/dataset_push.hdf5"));
        assert_eq!(folder.dataset("push", 3, 4), Path::new("out/push/dataset_push_rank3.hdf5"));
        assert_eq!(folder.relative(Path::new("out/push/a.mp4")), "push/a.mp4");
        assert!(folder.relative(Path::new("videos/a.mp4")).starts_with('/'));
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
        let ranks = ["journal_rank12.jsonl", "out/journal_rank3_5f1c.jsonl", "journal.jsonl", "journal_rank.jsonl"];
        assert_eq!(ranks.map(|name| journal_rank(Path::new(name))), [Some(12), Some(3), None, None]);
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
}
