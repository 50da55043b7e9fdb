//! Plans and lines of journals, for all tests of this crate.

use jobs::costs::Costs;
use jobs::episode::{DemoRef, End, Episode, VideoRef};
use jobs::job::JobIndex;
use jobs::journal::{
    Blame, Decision, EnvLost, EpisodeStart, JobEnd, JobStart, Line, PolicyFiles, Question, RankEnd,
    RankStart, Verdict,
};
use jobs::plan::RunPlan;
use jobs::samples;
use serde_json::{Value, json};

use crate::{Context, Journals, Merged, Report};

impl Journals {
    /// Creates a journal in memory with the lines of one rank.
    pub(crate) fn of_lines(lines: &[Line]) -> Self {
        let text = lines.iter().map(|line| format!("{}\n", json!(line)));
        Self::default().and_delivered([(0, text.collect::<String>().into_bytes())])
    }
}

impl Report {
    /// Builds the report of lines in memory.
    pub(crate) fn new(plan: &RunPlan, lines: &[Line], context: Context) -> Self {
        let merged = Merged::new(plan.clone(), Journals::of_lines(lines)).unwrap();
        Self::of(&merged, context).unwrap()
    }
}

/// Names of the jobs.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Returns a moment of the run.
pub(crate) fn at(second: u64) -> String {
    format!("2026-11-21T10:{:02}:{:02}.000Z", second / 60, second % 60)
}

/// Returns a plan of jobs with these fields.
pub(crate) fn plan(fields: impl IntoIterator<Item = Value>) -> RunPlan {
    RunPlan {
        schema: "rrun/plan/4".to_owned(),
        jobs_file: "jobs.json".to_owned(),
        seed: 42,
        world_size: 2,
        jobs: samples::jobs(fields),
        ..RunPlan::default()
    }
}

/// Returns the fields of a job.
pub(crate) fn job(name: &str, episodes: u64) -> Value {
    json!({"name": name, "num_episodes": episodes})
}

/// Returns an episode of job `a` or `b` on the rank of this number.
pub(crate) fn episode(job: usize, number: u64, is_solved: bool) -> Episode {
    Episode {
        rank: job,
        success: Some(is_solved),
        end: match is_solved {
            true => End::Success,
            false => End::TimeLimit,
        },
        ..samples::episode(job, NAMES[job], number)
    }
}

/// Returns the episode as one that an error has broken.
pub(crate) fn broken(episode: Episode, error: &str) -> Episode {
    Episode {
        success: None,
        end: End::Error,
        error: Some(error.to_owned()),
        ..episode
    }
}

/// Returns a solved episode that ended at this second.
pub(crate) fn ended(job: usize, number: u64, second: u64) -> Line {
    let episode = Episode {
        ended: at(second),
        ..episode(job, number, true)
    };
    episode.into()
}

pub(crate) fn began(job: usize, episode: u64, env: usize, second: u64) -> Line {
    Line::EpisodeStart(EpisodeStart {
        job: NAMES[job].to_owned(),
        job_index: JobIndex(job),
        episode,
        rank: job,
        env,
        started: at(second),
        ..EpisodeStart::default()
    })
}

pub(crate) fn rank_start(rank: usize, restart: u32, second: u64) -> RankStart {
    RankStart {
        rank,
        restart,
        world_size: 2,
        host: format!("node{rank}"),
        device: "cpu".to_owned(),
        started: at(second),
        ..RankStart::default()
    }
}

pub(crate) fn job_start(job: usize, rank: usize, second: u64) -> JobStart {
    JobStart {
        job: NAMES[job].to_owned(),
        job_index: JobIndex(job),
        rank,
        started: at(second),
        ..JobStart::default()
    }
}

/// Returns the end of a job on the rank of its number.
pub(crate) fn job_end(job: usize, error: Option<&str>) -> JobEnd {
    JobEnd {
        job: NAMES[job].to_owned(),
        job_index: JobIndex(job),
        rank: job,
        error: error.map(str::to_owned),
        wall_s: 2.0,
        infer_busy_s: 1.5,
        sim_busy_s: 1.0,
        costs: Costs {
            env_steps: 40,
            policy_calls: 10,
            peak_rss_bytes: 1,
            ..Costs::default()
        },
        ..JobEnd::default()
    }
}

pub(crate) fn end(job: usize, error: Option<&str>) -> Line {
    Line::JobEnd(Box::new(job_end(job, error)))
}

pub(crate) fn rank_end(rank: usize, second: u64) -> Line {
    Line::RankEnd(RankEnd {
        rank,
        wall_s: 20.0,
        busy_s: 12.5,
        ended: at(second),
        ..RankEnd::default()
    })
}

/// Returns what a lost environment of job `b` leaves.
pub(crate) fn env_lost(env: usize, blame: Blame) -> Line {
    Line::EnvLost(Box::new(EnvLost {
        job: "b".to_owned(),
        job_index: JobIndex(1),
        rank: 1,
        env,
        episode: 0,
        step: 17,
        attempt: 1,
        blame,
        reason: "killed by SIGKILL".to_owned(),
        stderr: vec!["out of memory".to_owned()],
        at: String::new(),
    }))
}

/// Returns a decision after 12 of 40 rounds.
pub(crate) fn decision(verdict: Verdict, errors: u64) -> Decision {
    Decision {
        against: "outputs/base".to_owned(),
        claim: None,
        question: Question::Regression,
        margin: 0.05,
        level: 0.05,
        verdict,
        rounds: 12,
        comparable_rounds: 40,
        both: 10,
        only_a: 9,
        only_b: 1,
        neither: 4,
        errors,
        difference: Some(-8.0 / 24.0),
        interval: Some([-0.6, -0.051]),
        at: String::new(),
        launch: None,
    }
}

/// Returns the sum of a policy, which was written at a moment.
pub(crate) fn policy_files(path: &str, sha256: &str, at: &str) -> Line {
    Line::PolicyFiles(PolicyFiles {
        policy_type: "torchscript".to_owned(),
        path: path.to_owned(),
        sha256: sha256.to_owned(),
        bytes: 3,
        at: at.to_owned(),
    })
}

pub(crate) fn demo(file: &str, demo: &str) -> Option<DemoRef> {
    let (file, demo) = (file.to_owned(), demo.to_owned());
    Some(DemoRef { file, demo })
}

/// Returns ten frames of a video.
pub(crate) fn video(file: &str, first_frame: u64) -> Option<VideoRef> {
    Some(VideoRef {
        file: file.to_owned(),
        first_frame,
        frames: 10,
        fps: None,
    })
}
