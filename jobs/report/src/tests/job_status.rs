//! Tests which jobs a report calls completed, failed or finished.

use super::*;

#[test]
fn a_failed_job_is_a_failure_with_its_reason_and_log() {
    let mut lines = everything();
    lines.pop();
    lines.remove(5);
    lines.push(Line::JobEnd(Box::new(JobEnd {
        log: Some("logs/1.log".to_owned()),
        ..job_end(1, Some("no EGL"))
    })));
    let report = report(&lines);
    assert_eq!(report.per_job[1].status, Status::Failed);
    assert!(report.partial);
    let failure = FailureReport {
        job: "b".to_owned(),
        episode: None,
        rank: Some(1),
        reason: "no EGL".to_owned(),
        log: Some("logs/1.log".to_owned()),
    };
    assert_eq!(report.failures, [failure]);
}

#[test]
fn a_job_of_which_every_episode_is_there_is_complete_whatever_its_attempts_said() {
    let mut lines = everything();
    lines.push(end(1, Some("no space left")));
    let report = report(&lines);
    assert!(report.complete(), "{:?}", report.failures);
    let job = &report.per_job[1];
    assert_eq!((job.status, &job.error), (Status::Completed, &None));
}

#[test]
fn a_job_in_steps_is_done_when_it_says_so() {
    let plan = plan([json!({"num_episodes": null, "num_steps": 9})]);
    assert!(Report::new(&plan, &[], Context::default()).partial);
    let lines = [line(episode(0, 0, true)), end(0, None)];
    assert!(Report::new(&plan, &lines, Context::default()).complete());
}

#[test]
fn a_job_that_was_completed_before_is_not_expected_to_run() {
    let mut first = job("a", 4);
    first["status"] = json!("completed");
    let report = Report::new(&plan([first]), &[], Context::default());
    assert!(report.complete());
    assert_eq!(report.overall.expected, Some(0));
}

#[test]
fn a_job_that_failed_in_one_rank_and_went_well_in_another_is_completed() {
    let ended = |job, error, second| {
        Line::JobEnd(Box::new(JobEnd {
            ended: at(second),
            ..job_end(job, error)
        }))
    };
    let mut lines = everything();
    lines.truncate(6);
    // The journal of rank 0, where the job succeeded in the end, is read before that of rank 1.
    lines.extend([ended(0, None, 9), ended(1, None, 9)]);
    lines.push(ended(1, Some("no such file"), 1));
    assert!(report(&lines).complete(), "{:?}", report(&lines).failures);
}

#[test]
fn a_job_that_is_not_to_run_is_not_missing() {
    let mut skipped = job("b", 2);
    skipped["status"] = json!("failed");
    let plan = plan([job("a", 4), skipped]);
    let lines = [&everything()[..4], &[end(0, None)]].concat();
    let report = Report::new(&plan, &lines, Context::default());
    assert!(report.complete());
    assert_eq!(report.per_job[1].status, Status::Failed);
}

#[test]
fn a_job_is_finished_when_nothing_of_it_would_run_again() {
    let replay = json!({"name": "replay", "policy_type": "replay_action", "num_episodes": null});
    let plan = plan([job("a", 4), replay]);
    let start = Line::JobStart(JobStart {
        episodes: Some(2),
        ..job_start(1, 0, 0)
    });
    let of = |job: usize, lines: &[Line]| {
        Progress::of(JobIndex(job), lines).is_finished(&plan.jobs[job], None)
    };
    let mut lines: Vec<_> = (0..4)
        .map(|number| line(episode(0, number, true)))
        .collect();
    assert!(of(0, &lines), "killed before its last line");
    lines.extend([
        end(0, Some("no space left")),
        start,
        line(episode(1, 0, true)),
    ]);
    lines.extend([line(broken(episode(1, 1, false), "NaN")), end(1, None)]);
    assert!(of(0, &lines), "its episodes are all there");
    assert!(!of(1, &lines), "an errored episode runs again");
    lines.push(line(episode(1, 1, true)));
    assert!(of(1, &lines));
}
