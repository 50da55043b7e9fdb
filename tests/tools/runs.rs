//! Creates run folders as evaluations leave them: a plan, journals, and the files that they name.

use std::path::Path;

use jobs::episode::{DemoRef, End, Episode, VideoRef};
use jobs::eval_args::EvalArgs;
use jobs::file::JobFile;
use jobs::journal::{JobEnd, JobStart, Journal, Line, RankEnd, RankStart};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use report::Report;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A run folder.
pub struct Run {
    /// The temporary folder that holds it, if it is alone there.
    _dir: Option<TempDir>,
    pub folder: RunFolder,
    pub plan: RunPlan,
}

/// Returns a job with the scripted expert.
pub fn job(name: &str, episodes: u64) -> Value {
    json!({"name": name, "arena_env_args": {"environment": "reach"},
           "policy_type": "scripted", "num_episodes": episodes})
}

/// Returns the time `10:00:00` plus `second` seconds.
pub fn at(second: u64) -> String {
    format!(
        "2026-11-21T{:02}:{:02}:{:02}.000Z",
        10 + second / 3600,
        second / 60 % 60,
        second % 60
    )
}

impl Run {
    /// Creates a run of these jobs, of which nothing has started.
    pub fn new(jobs: &[Value]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run = Self::at(&dir.path().join("run"), jobs);
        Self {
            _dir: Some(dir),
            ..run
        }
    }

    /// Creates a run in this folder.
    pub fn at(path: &Path, jobs: &[Value]) -> Self {
        let text = json!({"jobs": jobs});
        let sha256 = format!("{:064x}", text.to_string().len());
        let file = JobFile {
            path: "jobs.json".into(),
            sha256,
            jobs: jobs::file::parse(&text).unwrap(),
            model_server: None,
        };
        let args = EvalArgs::parse_words(&["--jobs".into(), "jobs.json".into()]).unwrap();
        let folder = RunFolder::new(path);
        let plan = RunPlan::new(&args, file, 1, at(0))
            .settle(&folder, false)
            .unwrap();
        Self {
            _dir: None,
            folder,
            plan,
        }
    }

    /// Returns an episode of a job; every third one is not successful.
    pub fn episode(&self, job: usize, number: u64, rank: usize) -> Episode {
        let (is_solved, name) = (number % 3 != 2, &self.plan.jobs[job].name);
        Episode {
            seed: jobs::seed::episode(self.plan.seed, &self.plan.jobs[job], number),
            rank,
            success: Some(is_solved),
            end: if is_solved {
                End::Success
            } else {
                End::TimeLimit
            },
            length: 10 + number,
            return_: number as f64 / 3.0,
            ended: at(10 + number),
            ..jobs::samples::episode(job, name, number)
        }
    }

    /// Returns the same episode with its demonstration and its span of a video.
    pub fn recorded(&self, job: usize, number: u64, dataset: &str) -> Episode {
        let name = &self.plan.jobs[job].name;
        Episode {
            dataset: Some(DemoRef {
                file: format!("{name}/{dataset}.hdf5"),
                demo: format!("demo_{number}"),
            }),
            video: Some(VideoRef {
                file: format!("{name}/film.mp4"),
                first_frame: number * 10,
                frames: 10,
                fps: None,
            }),
            ..self.episode(job, number, 0)
        }
    }

    /// Writes one life of a rank: it starts, runs these episodes of each job, and ends.
    pub fn rank(&self, rank: usize, episodes: impl IntoIterator<Item = Episode>) -> &Self {
        let journal = Journal::open(&self.folder.journal(rank)).unwrap();
        let mut journal = journal.stamped(self.plan.stamps(None));
        let mut write = |line: Line| journal.append(&line).unwrap();
        write(Line::Rank(Box::new(RankStart {
            rank,
            world_size: 2,
            host: format!("node{rank}"),
            threads: Some(7),
            rounding: [("MKL_CBWR".to_owned(), "COMPATIBLE".to_owned())].into(),
            started: at(rank as u64),
            ..RankStart::default()
        })));
        let mut last = None;
        for episode in episodes {
            if last.as_ref() != Some(&episode.job) {
                last = Some(episode.job.clone());
                write(Line::JobStart(JobStart {
                    job: episode.job.clone(),
                    rank,
                    started: at(5),
                    ..JobStart::default()
                }));
            }
            write(Line::Episode(Box::new(episode)));
        }
        if let Some(job) = last {
            write(Line::JobEnd(Box::new(JobEnd {
                job,
                rank,
                wall_s: 5.0,
                ended: at(90),
                ..JobEnd::default()
            })));
        }
        write(Line::RankEnd(RankEnd {
            rank,
            wall_s: 100.0,
            busy_s: 80.0,
            ended: at(99),
            ..RankEnd::default()
        }));
        self
    }

    /// Writes a life of a rank that runs these episodes of the first job.
    pub fn solve(&self, rank: usize, numbers: impl Iterator<Item = u64>) -> &Self {
        self.rank(rank, numbers.map(|number| self.episode(0, number, rank)))
    }

    /// Writes everything that the plan asks for, by one rank.
    pub fn whole(&self) -> &Self {
        let all = (0..self.plan.jobs.len())
            .flat_map(|job| (0..self.count(job)).map(move |number| (job, number)));
        self.rank(0, all.map(|(job, number)| self.episode(job, number, 0)))
    }

    /// Returns the number of episodes of a job.
    fn count(&self, job: usize) -> u64 {
        match self.plan.jobs[job].length {
            jobs::job::Length::Episodes(count) => count,
            _ => 0,
        }
    }

    pub fn path(&self) -> &str {
        self.folder.root().to_str().unwrap()
    }

    pub fn report(&self) -> Report {
        let text = std::fs::read(self.folder.report()).expect("there is a report");
        serde_json::from_slice(&text).expect("it has its schema")
    }
}
