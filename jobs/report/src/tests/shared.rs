//! Tests reports of a job that several ranks share.

use super::*;
use jobs::placement::Share;
use jobs::progress::Progress;

/// Returns a plan of one job with 4 environments and 8 episodes, or 100 steps each.
fn shared(in_steps: bool) -> RunPlan {
    plan([match in_steps {
        true => json!({"total_num_envs": 4, "num_episodes": null, "num_steps": 100}),
        false => json!({"total_num_envs": 4, "num_episodes": 8}),
    }])
}

fn share(rank: usize, ranks: usize) -> Option<Share> {
    Some(Share::of(rank, ranks, 4))
}

fn start(rank: usize, ranks: usize) -> JobStart {
    JobStart {
        share: share(rank, ranks),
        ..job_start(0, rank, 0)
    }
}

fn began(rank: usize, ranks: usize) -> Line {
    Line::JobStart(JobStart {
        episodes: Some(8),
        ..start(rank, ranks)
    })
}

fn ending(rank: usize, ranks: usize, second: u64, error: Option<&str>) -> JobEnd {
    JobEnd {
        rank,
        share: share(rank, ranks),
        ended: at(second),
        wall_s: 2.0 + rank as f64,
        ..job_end(0, error)
    }
}

fn ended(rank: usize, ranks: usize, second: u64, error: Option<&str>) -> Line {
    Line::JobEnd(Box::new(ending(rank, ranks, second, error)))
}

/// Returns the episodes of one of two ranks: those of environments 0 and 1, or of 2 and 3.
fn half(rank: usize) -> Vec<Line> {
    let own = (0..8).filter(|number| share(rank, 2).unwrap().slot(*number).is_some());
    let of_rank = |number| Episode {
        rank,
        ..episode(0, number, true)
    };
    own.map(|number| line(of_rank(number))).collect()
}

/// Returns the lines of both ranks before their ends.
fn with_episodes() -> Vec<Line> {
    let starts = vec![began(0, 2), began(1, 2)];
    [starts, half(0), half(1)].concat()
}

fn whole() -> Vec<Line> {
    let ends = vec![ended(0, 2, 1, None), ended(1, 2, 2, None)];
    [with_episodes(), ends].concat()
}

fn status(plan: &RunPlan, lines: &[Line]) -> Status {
    Report::new(plan, lines, Context::default()).per_job[0].status
}

#[test]
fn a_job_of_two_ranks_is_complete_when_both_are() {
    let report = Report::new(&shared(false), &whole(), Context::default());
    let job = &report.per_job[0];
    assert!(report.complete());
    assert_eq!((job.status, job.attempts), (Status::Completed, 1));
    assert_eq!((job.rates.episodes, job.num_envs), (8, 4));
    assert_eq!((&*job.ranks, job.costs.env_steps), (&[0, 1][..], 80));
    assert_eq!(job.wall_s, 3.0, "ranks run side by side");
}

#[test]
fn one_rank_alone_is_half_of_it() {
    let mut lines = vec![began(0, 2), began(1, 2)];
    lines.extend(half(0));
    lines.push(ended(0, 2, 1, None));
    let report = Report::new(&shared(false), &lines, Context::default());
    assert_eq!(report.per_job[0].status, Status::Running);
    let missing: Vec<_> = report.missing.iter().map(|id| id.episode).collect();
    assert_eq!(missing, [2, 3, 6, 7], "those of environments 2 and 3");
    assert!(report.partial);
}

#[test]
fn a_job_in_steps_is_not_over_before_its_last_rank() {
    let plan = shared(true);
    let mut lines = whole();
    let last = lines.pop().unwrap();
    assert_eq!(status(&plan, &lines), Status::Running);
    lines.push(last);
    assert_eq!(status(&plan, &lines), Status::Completed);
}

#[test]
fn a_rank_that_failed_fails_the_job_although_the_other_ended_later() {
    let plan = shared(true);
    let mut lines = with_episodes();
    lines.extend([ended(0, 2, 1, Some("boom")), ended(1, 2, 2, None)]);
    let report = Report::new(&plan, &lines, Context::default());
    assert_eq!(report.per_job[0].status, Status::Failed);
    assert_eq!(report.per_job[0].error.as_deref(), Some("boom"));
}

#[test]
fn a_failure_is_of_the_past_when_other_ranks_ran_its_environments() {
    let plan = shared(true);
    let mut lines = whole();
    lines.insert(0, ended(3, 4, 0, Some("boom")));
    assert_eq!(status(&plan, &lines), Status::Completed);
    lines.push(ended(2, 4, 3, Some("again")));
    let failed = status(&plan, &lines);
    assert_eq!(failed, Status::Failed, "environment 2 was the last to end");
}

#[test]
fn a_failure_that_will_be_tried_again_is_none() {
    let plan = shared(true);
    let mut lines = with_episodes();
    lines.push(Line::JobEnd(Box::new(JobEnd {
        retried: true,
        ..ending(0, 2, 1, Some("boom"))
    })));
    assert_eq!(status(&plan, &lines), Status::Running);
}

#[test]
fn a_rank_has_finished_when_its_own_environments_have() {
    for in_steps in [false, true] {
        let plan = shared(in_steps);
        let mut lines = half(0);
        lines.push(ended(0, 2, 1, None));
        let is_finished = |lines: &[Line], rank, ranks| {
            Progress::of(JobIndex(0), lines).is_finished(&plan.jobs[0], share(rank, ranks))
        };
        assert!(is_finished(&lines, 0, 2));
        assert!(
            is_finished(&lines, 1, 4),
            "half of what is finished is finished"
        );
        let is_whole = Progress::of(JobIndex(0), &lines).is_finished(&plan.jobs[0], None);
        assert!(!is_finished(&lines, 1, 2) && !is_whole);
        assert!(
            !is_finished(&lines, 0, 1),
            "it also has the environments of the other"
        );
        lines.push(ended(0, 2, 2, Some("boom")));
        let is_still = is_finished(&lines, 0, 2);
        assert_eq!(is_still, !in_steps, "of a number of episodes all are there");
    }
}

#[test]
fn a_job_in_steps_that_began_again_has_the_episodes_of_its_last_attempts() {
    let ended = |number: u64, second: u64| {
        line(Episode {
            ended: at(second),
            ..episode(0, number, number.is_multiple_of(2))
        })
    };
    let began = |rank, ranks, second| {
        Line::JobStart(JobStart {
            started: at(second),
            ..start(rank, ranks)
        })
    };
    let counts = |lines: &[Line]| {
        let report = Report::new(&shared(true), lines, Context::default());
        assert!(report.duplicates.is_empty());
        (report.overall.episodes, report.overall.successes)
    };
    // Environments 0 and 1 continued; 2 and 3 were started again, and got less far.
    let mut lines = vec![began(0, 2, 0), began(1, 2, 0)];
    lines.extend([0, 1, 2, 3].map(|number| ended(number, 1)));
    lines.extend([
        ended(4, 2),
        ended(6, 2),
        began(1, 2, 3),
        ended(2, 4),
        ended(3, 4),
    ]);
    assert_eq!(counts(&lines), (5, 3));
    // One rank runs all environments again.
    lines.extend([began(0, 1, 5), ended(0, 6)]);
    assert_eq!(counts(&lines), (1, 1));
}
