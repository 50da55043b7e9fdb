//! Tests which jobs a report calls completed, failed or finished.

use super::*;

#[test]
fn a_failed_job_is_a_failure_with_its_reason_and_log() {
    let mut lines = everything();
    let Some(Line::JobEnd(end)) = lines.pop() else {
        unreachable!("the last line is an end")
    };
    lines.remove(5);
    lines.push(Line::JobEnd(Box::new(JobEnd {
        error: Some("no EGL".to_owned()),
        log: Some("logs/1.log".to_owned()),
        ..*end
    })));
    let report = report(&lines);
    assert_eq!(
        (report.per_job[1].status, report.partial),
        (Status::Failed, true)
    );
    let (reason, log) = ("no EGL".to_owned(), Some("logs/1.log".to_owned()));
    assert_eq!(
        report.failures,
        [FailureReport {
            job: "b".to_owned(),
            episode: None,
            rank: Some(1),
            reason,
            log
        }]
    );
}

#[test]
fn a_job_of_which_every_episode_is_there_is_complete_whatever_its_attempts_said() {
    let mut lines = everything();
    lines.push(end(1, Some("no space left")));
    let report = report(&lines);
    assert!(report.complete(), "{:?}", report.failures);
    assert_eq!(
        (report.per_job[1].status, report.per_job[1].error.as_deref()),
        (Status::Completed, None)
    );
}

#[test]
fn a_job_in_steps_is_done_when_it_says_so() {
    let plan = plan(
        json!([{"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "p", "num_steps": 9}]),
    );
    assert!(Report::new(&plan, &[], Context::default()).partial);
    let lines = [line(episode(0, 0, true)), end(0, None)];
    assert!(Report::new(&plan, &lines, Context::default()).complete());
}

#[test]
fn a_job_that_was_completed_before_is_not_expected_to_run() {
    let mut first = job("a", 4);
    first["status"] = json!("completed");
    let report = Report::new(&plan(json!([first])), &[], Context::default());
    assert!(report.complete());
    assert_eq!(report.overall.expected, Some(0));
}

#[test]
fn a_job_that_failed_in_one_rank_and_went_well_in_another_is_completed() {
    let at = |line: Line, moment: &str| match line {
        Line::JobEnd(end) => Line::JobEnd(Box::new(JobEnd {
            ended: moment.to_owned(),
            ..*end
        })),
        other => other,
    };
    let mut lines = everything();
    lines.truncate(6);
    // The journal of rank 0, where the job succeeded in the end, is read before that of rank 1.
    lines.extend([
        at(end(0, None), "2026-11-21T10:00:09.000Z"),
        at(end(1, None), "2026-11-21T10:00:09.000Z"),
    ]);
    lines.push(at(end(1, Some("no such file")), "2026-11-21T10:00:01.000Z"));
    assert!(report(&lines).complete(), "{:?}", report(&lines).failures);
}

#[test]
fn a_job_that_is_not_to_run_is_not_missing() {
    let mut skipped = job("b", 2);
    skipped["status"] = json!("failed");
    let plan = plan(json!([job("a", 4), skipped]));
    let lines: Vec<_> = everything()
        .into_iter()
        .take(4)
        .chain([end(0, None)])
        .collect();
    let report = Report::new(&plan, &lines, Context::default());
    assert!(report.complete());
    assert_eq!(report.per_job[1].status, Status::Failed);
}

#[test]
fn a_job_is_finished_when_nothing_of_it_would_run_again() {
    let plan = plan(json!([
        job("a", 4),
        {"name": "replay", "arena_env_args": {"environment": "reach"}, "policy_type": "replay_action"}
    ]));
    let errored = Episode {
        success: None,
        error: Some("NaN".to_owned()),
        ..episode(1, 1, false)
    };
    let start = Line::JobStart(JobStart {
        job_index: JobIndex(1),
        rank: 0,
        episodes: Some(2),
        ..JobStart::default()
    });
    let of = |job: usize, lines: &[Line]| progress::finished(lines, &plan.jobs[job], None);
    let mut lines: Vec<_> = (0..4)
        .map(|number| line(episode(0, number, true)))
        .collect();
    assert!(of(0, &lines), "killed before its last line");
    lines.extend([
        end(0, Some("no space left")),
        start,
        line(episode(1, 0, true)),
        line(errored),
        end(1, None),
    ]);
    assert!(of(0, &lines), "its episodes are all there");
    assert!(!of(1, &lines), "an errored episode runs again");
    lines.push(line(episode(1, 1, true)));
    assert!(of(1, &lines));
}
