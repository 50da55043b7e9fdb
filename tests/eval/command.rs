//! Runs `rrun eval` on a jobs file and checks its results.

use std::path::{Path, PathBuf};

use jobs::episode::{Episode, EpisodeOutcome};
use jobs::journal::{self, Accepted, EnvLost, Line, PolicyFiles};
use jobs::layout::RunFolder;
use report::Report;
use serde_json::{Value, json};

pub use rig::run::{Ended, Given, Running, Signal};
pub use rig::wait::until;

/// One evaluation in its own folder.
pub struct Eval {
    /// The program whose folder it is.
    given: Given,
    output: PathBuf,
    words: Vec<String>,
    is_resumed: bool,
    launcher: Vec<String>,
    env: Vec<(String, String)>,
}

/// Returns a job with the scripted expert.
pub fn job(name: &str, episodes: u64, num_envs: u64) -> Value {
    json!({
        "name": name,
        "arena_env_args": {"environment": name, "num_envs": num_envs},
        "policy_type": "scripted",
        "num_episodes": episodes,
    })
}

impl Eval {
    /// Creates an evaluation of these jobs by `rrun`, without videos.
    pub fn new(jobs: &[Value]) -> Self {
        Self::without_jobs().jobs(jobs)
    }

    /// Creates an evaluation without a jobs file, whose arguments name a configuration.
    pub fn without_jobs() -> Self {
        let given = Given::rrun();
        Self {
            output: given.path("out"),
            given,
            words: vec!["--no-video".to_owned()],
            is_resumed: false,
            launcher: vec![rig::rrun().to_owned()],
            env: Vec::new(),
        }
    }

    pub fn nproc(mut self, ranks: usize) -> Self {
        self.launcher
            .extend(["--nproc-per-node".to_owned(), ranks.to_string()]);
        self
    }

    /// Sets another number of ranks.
    pub fn world_of(mut self, ranks: usize) -> Self {
        if let Some(last) = self.launcher.last_mut() {
            *last = ranks.to_string();
        }
        self
    }

    /// Adds options of the launcher.
    pub fn launcher_words(mut self, words: &[&str]) -> Self {
        self.launcher
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Sets another launcher command, up to the word `eval`.
    pub fn launched_by(mut self, words: &[String]) -> Self {
        self.launcher = words.to_vec();
        self
    }

    pub fn words(mut self, words: &[&str]) -> Self {
        self.words
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    pub fn with_video(mut self) -> Self {
        self.words.retain(|word| word != "--no-video");
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Continues the run folder with `--resume`, without a jobs file and without any earlier
    /// argument.
    pub fn resumed(mut self) -> Self {
        self.is_resumed = true;
        self.words.clear();
        self
    }

    /// Replaces the jobs in the jobs file.
    pub fn jobs(self, jobs: &[Value]) -> Self {
        self.jobs_text(&json!({"jobs": jobs}).to_string())
    }

    /// Replaces the text of the jobs file.
    pub fn jobs_text(self, text: &str) -> Self {
        std::fs::write(self.jobs_file(), text).unwrap();
        self
    }

    /// Creates an evaluation of an Experiment of Arena.
    pub fn of_experiment(yaml: &str) -> Self {
        let eval = Self::without_jobs();
        let path = eval.given.path("experiment.yaml");
        std::fs::write(&path, yaml).unwrap();
        eval.words(&["--experiment", &path.to_string_lossy()])
    }

    /// Sets another run folder.
    pub fn output(mut self, output: &Path) -> Self {
        output.clone_into(&mut self.output);
        self
    }

    pub fn jobs_file(&self) -> PathBuf {
        self.given.path("jobs.json")
    }

    pub fn folder(&self) -> RunFolder {
        RunFolder::new(&self.output)
    }

    /// Returns whether the arguments name the jobs.
    fn names_jobs(&self) -> bool {
        let names = |word: &String| word == "--config" || word == "--experiment";
        self.words.iter().any(names)
    }

    /// Returns the command line.
    fn command(&self) -> Given {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut words = self.launcher[1..].to_vec();
        words.push("eval".to_owned());
        if self.is_resumed {
            words.extend(["--resume".to_owned(), path(&self.output)]);
        } else {
            if self.jobs_file().exists() || !self.names_jobs() {
                words.extend(["--jobs".to_owned(), path(&self.jobs_file())]);
            }
            words.extend(["--output".to_owned(), path(&self.output)]);
        }
        words.extend(self.words.iter().cloned());
        let given = Given::new(&self.launcher[0])
            .beside(self.given.folder())
            .inherit()
            .without_env("LP_NUM_THREADS")
            .without_env("OMP_NUM_THREADS")
            .env("XDG_STATE_HOME", self.given.folder().root().display())
            .words(&words);
        let env = self.env.iter();
        env.fold(given, |given, (name, value)| given.env(name, value))
    }

    /// Starts the evaluation and returns at once.
    pub fn start(&self) -> Running {
        self.command().start()
    }

    /// Runs the evaluation to its end.
    #[track_caller]
    pub fn run(&self) -> Ended {
        self.command().run()
    }

    /// Runs the evaluation to its end with a stdout and stderr to which every write fails.
    pub fn run_unread(&self) -> Ended {
        self.command().below(r#"exec "$@" > /dev/full 2>&1"#).run()
    }

    /// Runs the evaluation to its end, which must be a success.
    #[track_caller]
    pub fn finished(self) -> Self {
        self.run().succeeds();
        self
    }

    /// Returns the lines of all journals.
    pub fn journal(&self) -> Vec<Line> {
        let journals =
            journal::read_all(&self.folder().journals(), &Accepted::default()).unwrap_or_default();
        journals
            .into_iter()
            .flat_map(|contents| contents.lines)
            .collect()
    }

    /// Returns the losses of environments that the journals have.
    pub fn losses(&self) -> Vec<EnvLost> {
        let lost = self.journal().into_iter().filter_map(|line| match line {
            Line::EnvLost(lost) => Some(*lost),
            _ => None,
        });
        lost.collect()
    }

    /// Returns the line about the files of the only policy.
    #[track_caller]
    pub fn policy_files(&self) -> PolicyFiles {
        let files = self.journal().into_iter().find_map(|line| match line {
            Line::PolicyFiles(files) => Some(files),
            _ => None,
        });
        files.expect("the journal has the checksum of the policy")
    }

    /// Returns the numbers of the episodes that an error ended.
    pub fn errors(&self) -> Vec<u64> {
        let errors = self.episodes().into_iter().filter(|e| e.error.is_some());
        errors.map(|episode| episode.episode).collect()
    }

    /// Returns the PID of the last start of a rank.
    pub fn pid_of(&self, rank: usize) -> Option<i32> {
        let mut starts = self.journal().into_iter().filter_map(|line| match line {
            Line::Rank(start) if start.rank == rank => i32::try_from(start.pid).ok(),
            _ => None,
        });
        starts.next_back()
    }

    /// Returns the number of finished episodes in all journals.
    pub fn journaled(&self) -> usize {
        self.journal()
            .iter()
            .filter(|line| matches!(line, Line::Episode(_)))
            .count()
    }

    pub fn report(&self) -> Report {
        let text = std::fs::read(self.folder().report()).expect("there is a report");
        serde_json::from_slice(&text).expect("the report has its schema")
    }

    /// Returns the lines of `episodes.jsonl`.
    pub fn episodes(&self) -> Vec<Episode> {
        let text = std::fs::read_to_string(self.folder().episodes()).expect("there are episodes");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line is an episode"))
            .collect()
    }

    /// Returns the part of the episodes that must not depend on where and when they ran.
    pub fn outcomes(&self) -> Vec<EpisodeOutcome> {
        self.episodes().iter().map(Episode::outcome).collect()
    }

    /// Waits until `count` episodes are in the journals.
    pub fn wait_for_episodes(&self, count: usize) {
        until(&format!("{count} episodes"), || self.journaled() >= count);
    }
}
