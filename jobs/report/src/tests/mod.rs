use std::io::Write as _;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use jobs::episode::Episode;
use jobs::job::JobIndex;
use jobs::journal::{Blame, JobEnd, JobStart, Line, RankStart};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::progress::Progress;
use jobs::samples;

use lines::{at, broken, end, episode, job, job_end, job_start, plan, rank_end, rank_start};

mod arena;
pub(crate) mod documented;
mod eval_info;
mod job_status;
mod journals;
mod latency;
pub(crate) mod lines;
mod shared;
pub(crate) mod simulated;
mod variations;

fn two_jobs() -> RunPlan {
    plan([job("a", 4), job("b", 2)])
}

fn line(episode: Episode) -> Line {
    episode.into()
}

fn everything() -> Vec<Line> {
    let of_a = (0..4).map(|number| line(episode(0, number, number != 3)));
    let of_b = (0..2).map(|number| line(episode(1, number, true)));
    let ends = [end(0, None), end(1, None)];
    of_a.chain(of_b).chain(ends).collect()
}

fn report(lines: &[Line]) -> Report {
    Report::new(&two_jobs(), lines, Context::default())
}

/// A run folder with a plan and journals.
pub(crate) struct TestRun {
    _dir: tempfile::TempDir,
    pub(crate) folder: RunFolder,
}

impl TestRun {
    pub(crate) fn new(plan: &RunPlan) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        std::fs::create_dir(folder.journals()).unwrap();
        let run = Self { _dir: dir, folder };
        run.write_plan(plan);
        run
    }

    pub(crate) fn write_plan(&self, plan: &RunPlan) {
        let text = serde_json::to_vec(plan).unwrap();
        jobs::layout::write_whole(&self.folder.plan(), &text).unwrap();
    }

    /// Appends to the journal of a rank.
    pub(crate) fn append(&self, rank: usize, bytes: &[u8]) {
        let path = self.folder.journal(rank);
        let mut file = std::fs::OpenOptions::new();
        let file = file.create(true).append(true).open(path);
        file.unwrap().write_all(bytes).unwrap();
    }
}

/// Merges journals of the two jobs.
fn merged(journals: Journals) -> Merged {
    Merged::new(two_jobs(), journals).unwrap()
}

/// Writes the files of a report of these lines.
fn written(plan: &RunPlan, lines: &[Line]) -> TestRun {
    let run = TestRun::new(plan);
    let merged = Merged::new(plan.clone(), Journals::of_lines(lines)).unwrap();
    crate::write(&run.folder, &merged, Context::default()).unwrap();
    run
}

/// Returns a fact of each job.
fn of_jobs<T>(report: &Report, fact: impl Fn(&JobReport) -> T) -> Vec<T> {
    report.per_job.iter().map(fact).collect()
}

#[test]
fn a_whole_run_is_complete() {
    let report = report(&everything());
    assert!(report.complete());
    let all = &report.overall;
    assert_eq!((all.expected, all.episodes, all.successes), (Some(6), 6, 5));
    assert_eq!(report.per_job[0].rates.success_rate, Some(0.75));
    assert_eq!(report.mean_task_success_rate, Some(0.875));
    assert_eq!(report.per_job[0].steps_per_s, Some(20.0));
    assert_eq!(report.per_group.len(), 2);
}

#[test]
fn a_mean_over_jobs_is_that_of_their_sums_to_the_last_bit() {
    let names: Vec<_> = (0..10).map(|job| format!("job{job}")).collect();
    let of_job = |(at, name): (usize, &String)| {
        let episode = |number| Episode {
            return_: 0.1,
            ..samples::episode(at, name, number)
        };
        (0..50).map(episode).map(line).collect::<Vec<_>>()
    };
    let lines: Vec<_> = names.iter().enumerate().flat_map(of_job).collect();
    let plan = plan(names.iter().map(|name| job(name, 50)));
    let report = Report::new(&plan, &lines, Context::default());
    let sum = |count: usize, value: f64| (0..count).fold(0.0, |sum, _| sum + value);
    let mean = sum(10, sum(50, 0.1)) / 500.0;
    assert_ne!(mean, sum(500, 0.1) / 500.0, "the order of the sums matters");
    assert_eq!(report.overall.mean_return, Some(mean));
    assert_eq!(report.per_policy[0].rates.mean_return, Some(mean));
    assert_eq!(report.per_group[0].rates.mean_return, Some(mean));
}

#[test]
fn what_a_policy_counted_is_averaged_over_its_scored_episodes() {
    let counted = |number, steps: f64| {
        let counts = [("planner_steps", steps), ("success_rate", 9.0)];
        Episode {
            metrics: counts.map(|(name, count)| (name.to_owned(), count)).into(),
            ..episode(0, number, true)
        }
    };
    let lost = broken(counted(2, 100.0), "lost");
    let lines = [counted(0, 2.0), counted(1, 5.0), lost, episode(1, 0, true)].map(line);
    let report = report(&lines);
    let metrics = &report.per_job[0].metrics;
    assert_eq!(metrics["planner_steps"], 3.5);
    assert_eq!(
        metrics["success_rate"],
        2.0 / 3.0,
        "ours has its own meaning"
    );
    assert!(!report.per_job[1].metrics.contains_key("planner_steps"));
}

#[test]
fn the_largest_reward_is_averaged_over_the_scored_episodes_that_have_one() {
    let most = |job, number, max_reward| Episode {
        max_reward,
        ..episode(job, number, true)
    };
    let lost = broken(most(0, 3, Some(9.0)), "lost");
    let [first, none, last] = [Some(0.5), None, Some(-1.0)];
    let scored = [
        most(0, 0, first),
        most(0, 1, none),
        most(0, 2, last),
        most(1, 0, none),
        lost,
    ];
    let report = report(&scored.map(line));
    let found = of_jobs(&report, |job| job.rates.mean_max_reward);
    assert_eq!(found, [Some(-0.25), None]);
    assert_eq!(report.overall.mean_max_reward, Some(-0.25));
}

#[test]
fn actions_out_of_bounds_are_added_up_over_all_episodes() {
    let outside = |job, number, actions_out_of_bounds| Episode {
        actions_out_of_bounds,
        ..episode(job, number, true)
    };
    let lost = broken(outside(0, 1, 5), "lost");
    let report = report(&[outside(0, 0, 2), lost, outside(1, 0, 0)].map(line));
    let found = of_jobs(&report, |job| job.rates.actions_out_of_bounds);
    assert_eq!(found, [7, 0]);
    assert_eq!(report.overall.actions_out_of_bounds, 7);
}

#[test]
fn a_job_has_an_instruction_where_its_episodes_agree() {
    let told = |job, number, text: &str| {
        line(Episode {
            language_instruction: text.to_owned(),
            ..episode(job, number, true)
        })
    };
    let same = [told(0, 0, "push"), told(0, 1, "push")];
    let report = report(&[&same[..], &[told(1, 0, "push"), told(1, 1, "pull")]].concat());
    let instructions = of_jobs(&report, |job| job.instruction.clone());
    assert_eq!(instructions, [Some("push".to_owned()), None]);
}

#[test]
fn a_missing_episode_is_named_and_makes_it_partial() {
    let mut lines = everything();
    lines.remove(1);
    let report = report(&lines);
    assert!(report.partial && !report.complete());
    let missing = report
        .missing
        .iter()
        .map(|id| (id.job.as_str(), id.episode));
    assert_eq!(missing.collect::<Vec<_>>(), [("a", 1)]);
}

#[test]
fn an_error_is_no_failure_and_both_rates_say_so() {
    let mut lines = everything();
    lines[0] = line(broken(episode(0, 0, false), "NaN"));
    let report = report(&lines);
    let rates = &report.per_job[0].rates;
    assert_eq!((rates.errors, rates.success_rate), (1, Some(0.5)));
    assert_eq!(rates.completion_only_rate, Some(2.0 / 3.0));
    let failure = FailureReport {
        job: "a".to_owned(),
        episode: Some(0),
        rank: Some(0),
        reason: "NaN".to_owned(),
        log: None,
    };
    assert_eq!(report.failures, [failure]);
    assert_eq!(report.failures_count, 1);
    assert!(!report.partial && !report.complete());
}

#[test]
fn an_error_that_went_well_the_second_time_counts_as_the_second() {
    let mut lines = everything();
    lines.insert(0, line(broken(episode(0, 0, false), "NaN")));
    let report = report(&lines);
    assert!(report.complete() && report.duplicates.is_empty());
    let progress = Progress::of(JobIndex(0), &lines);
    assert!(progress.done().eq(0..4));
}

#[test]
fn an_episode_that_ran_twice_counts_once_and_is_named() {
    let mut lines = everything();
    lines.push(line(Episode {
        ended: at(0),
        ..episode(0, 2, false)
    }));
    let report = report(&lines);
    let twice = Duplicate {
        job: "a".to_owned(),
        episode: 2,
        agree: false,
    };
    assert_eq!(report.duplicates, [twice]);
    assert_eq!((report.overall.episodes, report.overall.successes), (6, 5));
}

#[test]
fn the_same_line_from_journal_and_gather_is_one_event() {
    let twice = [everything(), everything()].concat();
    assert_eq!(report(&twice), report(&everything()));
}

#[test]
fn a_missing_rank_makes_it_partial() {
    let context = Context {
        missing_ranks: vec![1],
        ..Context::default()
    };
    assert!(Report::new(&two_jobs(), &everything(), context).partial);
}

#[test]
fn a_report_is_read_back_as_it_was_written() {
    let report = report(&everything());
    let text = serde_json::to_vec(&report).unwrap();
    assert_eq!(serde_json::from_slice::<Report>(&text).unwrap(), report);
}

proptest! {
    #[test]
    fn coverage_adds_up_whatever_the_order_and_the_copies(
        picks in proptest::collection::vec((0usize..2, 0u64..6, any::<bool>()), 0..40)
    ) {
        let lines: Vec<_> = picks.iter().map(|(job, number, success)| line(episode(*job, *number, *success))).collect();
        let report = report(&lines);
        let within = |job: usize, expected: u64| {
            let mut numbers: Vec<_> = picks.iter().filter(|p| p.0 == job && p.1 < expected).map(|p| p.1).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len()
        };
        prop_assert_eq!(report.missing.len(), 6 - within(0, 4) - within(1, 2));
        prop_assert!(report.overall.successes <= report.overall.episodes);
    }
}

#[test]
fn a_lost_environment_is_told_with_its_last_words_and_is_no_failure() {
    let mut lines = everything();
    let of_neighbour = lines::env_lost(3, Blame::Neighbour);
    lines.extend([lines::env_lost(2, Blame::Own), of_neighbour]);
    let report = report(&lines);
    assert!(report.complete());
    assert_eq!(
        report.env_losses_count, 1,
        "a neighbour has lost nothing of its own"
    );
    let loss = &report.env_losses[0];
    assert_eq!((loss.env, loss.step), (2, 17));
    assert_eq!(loss.stderr, ["out of memory"]);
}
