use proptest::prelude::*;
use serde_json::json;

use super::*;
use jobs::episode::{End, Episode};
use jobs::job::JobIndex;
use jobs::journal::{Blame, EnvLost, JobEnd, JobStart, RankStart};
use jobs::progress;
use jobs::samples;

mod arena;
mod documented;
mod eval_info;
mod job_status;
mod journals;
mod latency;
mod shared;
mod variations;

fn plan(jobs: serde_json::Value) -> RunPlan {
    RunPlan {
        schema: String::new(),
        jobs_file: "jobs.json".to_owned(),
        jobs_sha256: String::new(),
        seed: 42,
        only: None,
        world_size: 2,
        jobs: jobs::file::parse(&json!({"jobs": jobs})).unwrap(),
        rrun: String::new(),
        created: String::new(),
        ..RunPlan::default()
    }
}

fn job(name: &str, episodes: u64) -> serde_json::Value {
    json!({"name": name, "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": episodes})
}

fn two_jobs() -> RunPlan {
    plan(json!([job("a", 4), job("b", 2)]))
}

fn episode(job: usize, number: u64, success: bool) -> Episode {
    let end = if success {
        End::Success
    } else {
        End::TimeLimit
    };
    Episode {
        rank: job,
        success: Some(success),
        end,
        ..samples::episode(job, ["a", "b"][job], number)
    }
}

fn line(episode: Episode) -> Line {
    episode.into()
}

fn end(job: usize, error: Option<&str>) -> Line {
    Line::JobEnd(Box::new(JobEnd {
        job_index: JobIndex(job),
        rank: job,
        error: error.map(str::to_owned),
        wall_s: 2.0,
        env_steps: 40,
        frames: 0,
        policy_calls: 10,
        infer_busy_s: 1.5,
        sim_busy_s: 1.0,
        peak_rss_bytes: 1,
        ..JobEnd::default()
    }))
}

fn everything() -> Vec<Line> {
    let mut lines: Vec<_> = (0..4)
        .map(|number| line(episode(0, number, number != 3)))
        .collect();
    lines.extend((0..2).map(|number| line(episode(1, number, true))));
    lines.extend([end(0, None), end(1, None)]);
    lines
}

fn report(lines: &[Line]) -> Report {
    Report::new(&two_jobs(), lines, Context::default())
}

#[test]
fn a_whole_run_is_complete() {
    let report = report(&everything());
    assert!(report.complete());
    assert_eq!(
        (
            report.overall.expected,
            report.overall.episodes,
            report.overall.successes
        ),
        (Some(6), 6, 5)
    );
    assert_eq!(report.per_job[0].rates.success_rate, Some(0.75));
    assert_eq!(report.mean_task_success_rate, Some(0.875));
    assert_eq!(report.per_job[0].steps_per_s, Some(20.0));
    assert_eq!(report.per_group.len(), 2);
}

#[test]
fn what_a_policy_counted_is_averaged_over_its_scored_episodes() {
    let counted = |number, steps: f64| {
        let metrics = [
            ("planner_steps".to_owned(), steps),
            ("success_rate".to_owned(), 9.0),
        ]
        .into();
        Episode {
            metrics,
            ..episode(0, number, true)
        }
    };
    let broken = Episode {
        success: None,
        error: Some("lost".to_owned()),
        end: End::Error,
        ..counted(2, 100.0)
    };
    let lines = [
        line(counted(0, 2.0)),
        line(counted(1, 5.0)),
        line(broken),
        line(episode(1, 0, true)),
    ];
    let report = report(&lines);
    assert_eq!(report.per_job[0].metrics["planner_steps"], 3.5);
    assert_eq!(
        report.per_job[0].metrics["success_rate"],
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
    let broken = Episode {
        success: None,
        error: Some("lost".to_owned()),
        end: End::Error,
        ..most(0, 3, Some(9.0))
    };
    let lines = [
        most(0, 0, Some(0.5)),
        most(0, 1, None),
        most(0, 2, Some(-1.0)),
        broken,
        most(1, 0, None),
    ];
    let report = report(&lines.map(line));
    let means: Vec<_> = report
        .per_job
        .iter()
        .map(|job| job.rates.mean_max_reward)
        .collect();
    assert_eq!(
        (means, report.overall.mean_max_reward),
        (vec![Some(-0.25), None], Some(-0.25))
    );
}

#[test]
fn actions_out_of_bounds_are_added_up_over_all_episodes() {
    let outside = |job, number, actions_out_of_bounds| Episode {
        actions_out_of_bounds,
        ..episode(job, number, true)
    };
    let broken = Episode {
        success: None,
        error: Some("lost".to_owned()),
        end: End::Error,
        ..outside(0, 1, 5)
    };
    let report = report(&[outside(0, 0, 2), broken, outside(1, 0, 0)].map(line));
    let counts: Vec<_> = report
        .per_job
        .iter()
        .map(|job| job.rates.actions_out_of_bounds)
        .collect();
    assert_eq!(
        (counts, report.overall.actions_out_of_bounds),
        (vec![7, 0], 7)
    );
}

#[test]
fn a_job_has_an_instruction_where_its_episodes_agree() {
    let told = |job, number, text: &str| {
        line(Episode {
            language_instruction: text.to_owned(),
            ..episode(job, number, true)
        })
    };
    let report = report(&[
        told(0, 0, "push"),
        told(0, 1, "push"),
        told(1, 0, "push"),
        told(1, 1, "pull"),
    ]);
    let instructions: Vec<_> = report
        .per_job
        .iter()
        .map(|job| job.instruction.as_deref())
        .collect();
    assert_eq!(instructions, [Some("push"), None]);
}

#[test]
fn a_missing_episode_is_named_and_makes_it_partial() {
    let mut lines = everything();
    lines.remove(1);
    let report = report(&lines);
    assert!(report.partial && !report.complete());
    assert_eq!(
        report.missing,
        [EpisodeId {
            job: "a".to_owned(),
            episode: 1
        }]
    );
}

#[test]
fn an_error_is_no_failure_and_both_rates_say_so() {
    let mut lines = everything();
    lines[0] = line(Episode {
        success: None,
        end: End::Error,
        error: Some("NaN".to_owned()),
        ..episode(0, 0, false)
    });
    let report = report(&lines);
    let rates = &report.per_job[0].rates;
    assert_eq!(
        (rates.errors, rates.success_rate, rates.completion_only_rate),
        (1, Some(0.5), Some(2.0 / 3.0))
    );
    let failure = FailureReport {
        job: "a".to_owned(),
        episode: Some(0),
        rank: Some(0),
        reason: "NaN".to_owned(),
        log: None,
    };
    assert_eq!(
        (&report.failures[..], report.failures_count),
        (&[failure][..], 1)
    );
    assert!(!report.partial && !report.complete());
}

#[test]
fn an_error_that_went_well_the_second_time_counts_as_the_second() {
    let mut lines = everything();
    lines.insert(
        0,
        line(Episode {
            success: None,
            error: Some("NaN".to_owned()),
            ..episode(0, 0, false)
        }),
    );
    let report = report(&lines);
    assert!(report.complete() && report.duplicates.is_empty());
    assert_eq!(progress::done(&lines)[&JobIndex(0)], [0, 1, 2, 3]);
}

#[test]
fn an_episode_that_ran_twice_counts_once_and_is_named() {
    let mut lines = everything();
    lines.push(line(Episode {
        ended: "2026-11-21T10:00:00.000Z".to_owned(),
        ..episode(0, 2, false)
    }));
    let report = report(&lines);
    assert_eq!(
        report.duplicates,
        [Duplicate {
            job: "a".to_owned(),
            episode: 2,
            agree: false
        }]
    );
    assert_eq!((report.overall.episodes, report.overall.successes), (6, 5));
}

#[test]
fn the_same_line_from_journal_and_gather_is_one_event() {
    let mut lines = everything();
    lines.extend(everything());
    assert_eq!(report(&lines), report(&everything()));
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
    assert_eq!(
        serde_json::from_slice::<Report>(&serde_json::to_vec(&report).unwrap()).unwrap(),
        report
    );
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
    lines.push(Line::EnvLost(Box::new(EnvLost {
        job_index: JobIndex(1),
        rank: 1,
        env: 2,
        episode: 0,
        step: 17,
        attempt: 1,
        blame: Blame::Own,
        reason: "killed by SIGKILL".to_owned(),
        stderr: vec!["out of memory".to_owned()],
        at: String::new(),
    })));
    let mut neighbour = lines.last().unwrap().clone();
    if let Line::EnvLost(lost) = &mut neighbour {
        (lost.env, lost.blame) = (3, Blame::Neighbour);
    }
    lines.push(neighbour);
    let report = report(&lines);
    assert!(report.complete());
    assert_eq!(
        report.env_losses_count, 1,
        "a neighbour has lost nothing of its own"
    );
    let loss = &report.env_losses[0];
    assert_eq!(
        (loss.env, loss.step, loss.stderr.as_slice()),
        (2, 17, &["out of memory".to_owned()][..])
    );
}

#[test]
fn a_plan_with_some_jobs_of_its_file_has_them_under_their_index_there() {
    let whole = two_jobs();
    let second = RunPlan {
        jobs: vec![whole.jobs[1].clone()],
        ..two_jobs()
    };
    let start = Line::JobStart(JobStart {
        job_index: JobIndex(1),
        rank: 1,
        ..JobStart::default()
    });
    let begin = Line::Rank(Box::new(RankStart {
        rank: 1,
        ..RankStart::default()
    }));
    let lines = [
        begin,
        start,
        line(episode(1, 0, true)),
        line(episode(1, 1, true)),
        end(1, None),
    ];
    let report = Report::new(&second, &lines, Context::default());
    assert!(report.complete());
    assert_eq!(
        (
            report.per_job[0].name.as_str(),
            report.per_job[0].rates.episodes
        ),
        ("b", 2)
    );
    assert_eq!(
        (
            report.per_rank[0].spans[0].job.as_str(),
            report.per_rank[0].jobs
        ),
        ("b", 1)
    );
}
