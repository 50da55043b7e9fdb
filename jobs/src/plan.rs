//! What a run was asked to do: `plan.json`, and the identity by which a run folder is gone on with or refused.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::assign::Only;
use crate::eval_args::EvalArgs;
use crate::file::JobFile;
use crate::job::{Job, Length};
use crate::journal;
use crate::layout::{RunFolder, beside, write_whole};

/// Schema of `plan.json`.
const SCHEMA: &str = "rrun/plan/1";

/// What a run was asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// `rrun/plan/1`.
    pub schema: String,
    /// The jobs file, as it was named.
    pub jobs_file: String,
    /// Identity of its bytes.
    pub jobs_sha256: String,
    /// Base seed.
    pub seed: u64,
    /// Of the jobs file these jobs and episodes only; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Only>,
    /// Ranks when it was begun; a run can be gone on with by another number.
    pub world_size: usize,
    /// All jobs that may run, in file order.
    pub jobs: Vec<Job>,
    /// Version of `rrun` that began it.
    pub rrun: String,
    /// UTC.
    pub created: String,
}

/// A run folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunFolderError {
    /// It holds another run.
    #[error(
        "run folder `{}` holds another run: its {field} is {found}, this one has {wanted}; name another --output or move it away",
        folder.display()
    )]
    Other {
        /// The folder.
        folder: PathBuf,
        /// What differs.
        field: &'static str,
        /// There.
        found: String,
        /// Here.
        wanted: String,
    },
    /// Its plan is damaged.
    #[error("`{}` is no plan of rrun: {err}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        err: serde_json::Error,
    },
    /// It cannot be made or read.
    #[error("cannot use run folder `{}`: {err}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        err: io::Error,
    },
}

impl RunPlan {
    /// Decides what is run; `--num-steps` fills in for jobs without a length of their own.
    pub fn new(args: &EvalArgs, file: JobFile, world_size: usize, created: String) -> Self {
        let mut jobs = file.jobs;
        for job in &mut jobs {
            if let (Length::Policy, Some(steps), false) =
                (job.length, args.num_steps, job.policy_type == "replay_action")
            {
                job.length = Length::Steps(steps);
            }
        }
        Self {
            schema: SCHEMA.to_owned(),
            jobs_file: file.path.display().to_string(),
            jobs_sha256: file.sha256,
            seed: args.seed,
            only: args.only.clone(),
            world_size,
            jobs,
            rrun: env!("CARGO_PKG_VERSION").to_owned(),
            created,
        }
    }

    /// Writes the plan into its folder, or finds that the folder already holds this run. Ranks and launcher may all do
    /// so at once: the first one's file counts.
    ///
    /// # Errors
    /// [`RunFolderError`]; nothing in the folder was changed then.
    pub fn settle(self, folder: &RunFolder) -> Result<Self, RunFolderError> {
        let io = |err| RunFolderError::Io { folder: folder.root().to_owned(), err };
        std::fs::create_dir_all(folder.journals()).map_err(io)?;
        self.replace_unbegun(folder)?;
        if !folder.plan().exists() {
            // A link does not replace what is there: of two writers one wins.
            let mine = beside(&folder.plan());
            let text = serde_json::to_vec_pretty(&self).map_err(|err| io(err.into()))?;
            write_whole(&mine, &text).map_err(io)?;
            let linked = std::fs::hard_link(&mine, folder.plan());
            std::fs::remove_file(&mine).map_err(io)?;
            match linked {
                Err(err) if err.kind() != ErrorKind::AlreadyExists => return Err(io(err)),
                _ => {}
            }
        }
        let found = Self::read(folder)?;
        self.refuse_other(&found, folder)?;
        Ok(found)
    }

    /// Reads the plan of a run folder.
    ///
    /// # Errors
    /// [`RunFolderError`] when there is none or it is damaged.
    pub fn read(folder: &RunFolder) -> Result<Self, RunFolderError> {
        let text =
            std::fs::read(folder.plan()).map_err(|err| RunFolderError::Io { folder: folder.root().to_owned(), err })?;
        serde_json::from_slice(&text).map_err(|err| RunFolderError::Damaged { path: folder.plan(), err })
    }

    /// Checks, without writing, that the folder is new or holds this run.
    ///
    /// # Errors
    /// [`RunFolderError::Other`] or [`RunFolderError::Damaged`].
    pub fn check(&self, folder: &RunFolder) -> Result<(), RunFolderError> {
        if !folder.plan().exists() || !begun(folder) {
            return Ok(());
        }
        self.refuse_other(&Self::read(folder)?, folder)
    }

    /// A plan that was refused after it was written (by a rank, say) has come to nothing: the corrected one replaces it.
    fn replace_unbegun(&self, folder: &RunFolder) -> Result<(), RunFolderError> {
        let io = |err| RunFolderError::Io { folder: folder.root().to_owned(), err };
        if !folder.plan().exists() || begun(folder) {
            return Ok(());
        }
        match Self::read(folder) {
            Ok(found) if self.refuse_other(&found, folder).is_ok() => Ok(()),
            _ => {
                write_whole(&folder.plan(), &serde_json::to_vec_pretty(self).map_err(|err| io(err.into()))?).map_err(io)
            }
        }
    }

    fn refuse_other(&self, found: &Self, folder: &RunFolder) -> Result<(), RunFolderError> {
        let only = |plan: &Self| plan.only.as_ref().map_or_else(|| "not given".to_owned(), |only| format!("`{only}`"));
        let pairs = [
            ("schema", &found.schema, &self.schema),
            ("jobs file (sha256)", &found.jobs_sha256, &self.jobs_sha256),
            ("seed", &found.seed.to_string(), &self.seed.to_string()),
            ("--only", &only(found), &only(self)),
        ];
        let other = |field, found: &String, wanted: &String| RunFolderError::Other {
            folder: folder.root().to_owned(),
            field,
            found: found.clone(),
            wanted: wanted.clone(),
        };
        if let Some((field, found, wanted)) = pairs.into_iter().find(|(_, found, wanted)| found != wanted) {
            return Err(other(field, found, wanted));
        }
        let lengths = |plan: &Self| plan.jobs.iter().map(|job| job.length).collect::<Vec<_>>();
        if lengths(found) != lengths(self) {
            return Err(other("--num-steps", &"different".to_owned(), &"its own".to_owned()));
        }
        Ok(())
    }
}

/// Whether a journal has a line, or cannot be read.
fn begun(folder: &RunFolder) -> bool {
    let Ok(journals) = journal::read_all(&folder.journals()) else { return true };
    journals.iter().any(|(_, contents)| !contents.lines.is_empty() || !contents.damaged.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, Line, RankEnd};
    use serde_json::json;

    fn plan(seed: &str, episodes: u64) -> RunPlan {
        let entry = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted",
                           "num_episodes": episodes});
        let file = JobFile {
            path: "jobs.json".into(),
            sha256: format!("{episodes:064}"),
            jobs: crate::file::parse(&json!({"jobs": [entry]})).unwrap(),
        };
        let args = EvalArgs::parse_words(&["--jobs".into(), "jobs.json".into(), "--seed".into(), seed.into()]).unwrap();
        RunPlan::new(&args, file, 2, "now".to_owned())
    }

    #[test]
    fn the_same_run_goes_on_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let first = plan("1", 3).settle(&folder).unwrap();
        assert_eq!(plan("1", 3).settle(&folder).unwrap(), first);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "plan.json and journal, nothing else");
    }

    #[test]
    fn another_run_is_refused_and_leaves_the_folder_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        plan("1", 3).settle(&folder).unwrap();
        begin(&folder);
        let before = std::fs::read(folder.plan()).unwrap();
        assert!(plan("2", 3).settle(&folder).unwrap_err().to_string().contains("its seed is 1, this one has 2"));
        assert!(plan("1", 4).settle(&folder).unwrap_err().to_string().contains("its jobs file (sha256) is 0"));
        let some = RunPlan { only: Some("a:1".parse().unwrap()), ..plan("1", 3) };
        let refusal = some.settle(&folder).unwrap_err().to_string();
        assert!(refusal.contains("its --only is not given, this one has `a:1`; name another --output"), "{refusal}");
        assert_eq!(std::fs::read(folder.plan()).unwrap(), before);
    }

    /// A rank has written its first line.
    fn begin(folder: &RunFolder) {
        let end = RankEnd { rank: 0, wall_s: 0.0, busy_s: 0.0, stopped: false, ended: String::new() };
        Journal::open(&folder.journal(0)).unwrap().append(&Line::RankEnd(end)).unwrap();
    }

    #[test]
    fn a_run_that_came_to_nothing_is_replaced_by_the_corrected_one() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        plan("1", 3).settle(&folder).unwrap();
        assert!(plan("1", 4).check(&folder).is_ok());
        let corrected = plan("1", 4).settle(&folder).unwrap();
        assert_eq!((corrected.jobs_sha256.as_str(), &corrected), (plan("1", 4).jobs_sha256.as_str(), &plan("1", 4)));
        assert_eq!(RunPlan::read(&folder).unwrap(), corrected);
        begin(&folder);
        assert!(plan("1", 3).check(&folder).is_err());
    }

    #[test]
    fn four_writers_at_once_agree_on_one_plan() {
        let dir = tempfile::tempdir().unwrap();
        let folder = &RunFolder::new(dir.path());
        let settled: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|n| scope.spawn(move || RunPlan { created: n.to_string(), ..plan("1", 3) }.settle(folder)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        assert!(settled.iter().all(|plan| *plan == settled[0]));
    }
}
