//! Summarizes the result of a run in a few lines, and the decision of a sequential test in one.

use jobs::count::{counted, times};
use jobs::format;
use jobs::journal::{Decision, Verdict};

use crate::notes::notes;
use crate::stats::Solved;
use crate::{FailureReport, JobReport, PolicyRates, Rates, Report};

/// Maximum number of policies listed.
const MOST_POLICIES: usize = 8;

/// Maximum number of errors listed.
const MOST_ERRORS: u64 = 10;

/// Returns the number of episodes and the success rate, and one line for each thing that is
/// missing. With several policies, each has its own rate, because a rate over all of them depends
/// on how many episodes each had. Rates are without variants, which have a table of their own.
pub fn conclusion(report: &Report) -> String {
    let (rates, controls) = (&report.overall, Solved::from(&report.controls));
    let expected = rates
        .expected
        .map_or("?".to_owned(), |count| count.to_string());
    let found = format!("{} of {}", rates.episodes, counted(expected, "episode"));
    let policies: Vec<_> = report.tried().collect();
    let mut lines = Vec::new();
    if let [_, _, ..] = &policies[..] {
        let (count, errors) = (policies.len(), errors(rates));
        let of = match report.has_variants() {
            true => ", without variations:",
            false => "",
        };
        lines.push(format!("{found} of {count} policies{errors}{of}"));
        let of_policy = |policy: &&PolicyRates| {
            let (name, solved) = (report.policy_name(policy), Solved::from(&policy.rates));
            format!(
                "{name}: {}, {solved}{}",
                solved.share(),
                self::errors(&policy.rates)
            )
        };
        lines.extend(policies.iter().take(MOST_POLICIES).map(of_policy));
        if count > MOST_POLICIES {
            let more = count - MOST_POLICIES;
            lines.push(format!("… and {more} more policies, see report.json"));
        }
        lines.push(format!(
            "all {count} policies together: {}",
            controls.share()
        ));
    } else {
        let share = match (controls.episodes, report.has_variants()) {
            (0, _) => String::new(),
            (_, false) => format!(", {}", controls.share()),
            (_, true) => format!(", without variations {}, {controls}", controls.share()),
        };
        lines.push(format!("{found}{share}{}", errors(rates)));
    }
    lines.extend(report.decision.as_ref().map(decision));
    lines.extend(notes(report));
    if report.duplicates_count > 0 {
        let episodes = counted(report.duplicates_count, "episode");
        lines.push(format!(
            "{episodes} ran more than once; the first result of each counts"
        ));
    }
    let jobs = report.per_job.iter();
    let short = jobs.filter(|job| job.costs.out_of_memory > 0);
    lines.extend(short.map(|job| format!("{}: {}", job.name, shortage(job))));
    let failures = report.failures.iter().take(MOST_ERRORS as usize);
    lines.extend(failures.map(failure));
    if report.failures_count > MOST_ERRORS {
        let more = counted(report.failures_count - MOST_ERRORS, "more error");
        lines.push(format!("… and {more}, see report.json"));
    }
    lines.join("\n")
}

fn failure(failure: &FailureReport) -> String {
    let episode = failure.episode;
    let episode = episode.map_or_else(String::new, |episode| format!(" episode {episode}"));
    // The lines that follow, such as a traceback, were printed when it failed.
    let reason = failure.reason.lines().next().unwrap_or_default();
    format!("{}{episode}: {reason}", failure.job)
}

fn errors(rates: &Rates) -> String {
    match rates.errors {
        0 => String::new(),
        errors => format!(", {}", counted(errors, "error")),
    }
}

/// Explains why a job has no rate.
pub(super) fn no_episode(job: &JobReport) -> String {
    if !job.ended_before_an_episode() {
        return "no episode has ended".to_owned();
    }
    format!(
        "ended before its first episode did, after {} in all; num_episodes counts whole episodes",
        counted(job.costs.env_steps, "step")
    )
}

/// Describes how often memory ran out, and what helps.
fn shortage(job: &JobReport) -> String {
    let knob = match job.costs.out_of_memory_batch {
        Some(0) => "not even one row fitted into an inference".to_owned(),
        Some(batch) => format!(
            "from then on an inference had at most {}; --max-batch {batch} does so from the start",
            counted(batch, "row")
        ),
        None => "a later try succeeded".to_owned(),
    };
    // What leaves more memory to the policy.
    let fewer = match job.num_envs / 2 {
        0 => "environments that use less leave more for the policy".to_owned(),
        half => {
            format!("fewer environments leave more for the policy, for example --num-envs {half}")
        }
    };
    format!(
        "out of memory {}: {knob}; {fewer}",
        times(job.costs.out_of_memory)
    )
}

/// Returns what a sequential test has decided, on how many rounds, and the difference.
pub fn decision(decision: &Decision) -> String {
    let points = decision.margin * 100.0;
    let meaning = match decision.verdict {
        Verdict::Passed => format!("the run has not lost {points} points or more"),
        Verdict::Regression => format!(
            "the run has solved fewer episodes, and a loss of {points} points or more is not \
             excluded"
        ),
        // Two one-sided tests: the interval below has two sides, and can reach beyond the margin.
        Verdict::Same if decision.claim.is_none() => format!(
            "the rates differ by less than {points} points, by a test of each side at {} %",
            percent(decision.level)
        ),
        Verdict::Same => format!("the rates differ by less than {points} points"),
        Verdict::Different => {
            format!("the rates differ, and a difference of {points} points or more is not excluded")
        }
        Verdict::Undecided => format!("{points} points are neither shown nor excluded"),
    };
    let (unit, reference) = match decision.claim {
        Some(claim) => ("episode", format!("the claimed {claim}")),
        None => ("pair", format!("`{}`", decision.against)),
    };
    // The journal may come from another user.
    let found = [
        decision.both,
        decision.only_a,
        decision.only_b,
        decision.neither,
    ];
    let pairs = counted(found.into_iter().fold(0, u64::saturating_add), unit);
    let broken = match decision.errors {
        0 => String::new(),
        errors => format!(", {} left out for errors", counted(errors, unit)),
    };
    let difference = match (decision.difference, decision.interval) {
        (Some(difference), Some(interval)) => format!(
            "{} points ({} %, at any time: {})",
            format::points(difference),
            percent(1.0 - decision.level),
            format::points_interval(interval)
        ),
        _ => "unknown".to_owned(),
    };
    format!(
        "{} after {}, {pairs}: {meaning}{broken}; difference from {reference}: {difference}",
        format::word(decision.verdict),
        counted(decision.rounds, "round"),
    )
}

/// Returns a share in percent, without the last digits of a binary fraction.
fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::schema::FailureReport;
    use crate::tables::metrics_summary;
    use crate::tables::tests::plan;
    use crate::tests::lines;
    use jobs::costs::Costs;
    use jobs::episode::Episode;
    use jobs::journal::{JobEnd, JobStart, Line};
    use jobs::plan::RunPlan;
    use jobs::samples;
    use serde_json::json;

    fn episode(job: usize, number: u64, is_solved: bool) -> Line {
        let episode = Episode {
            success: Some(is_solved),
            ..samples::episode(job, &format!("j{job}"), number)
        };
        episode.into()
    }

    /// Returns the report of a plan and these lines.
    fn report(plan: &RunPlan, lines: &[Line]) -> Report {
        Report::new(plan, lines, Context::default())
    }

    fn start(job: usize, path: &str) -> Line {
        let settings = [("policy_path".to_owned(), json!(path))].into();
        Line::JobStart(JobStart {
            job: format!("j{job}"),
            settings,
            ..JobStart::default()
        })
    }

    #[test]
    fn of_several_policies_each_has_its_rate_before_the_sum() {
        let mut plan = plan(3);
        plan.jobs[2].policy_type = "random_action".to_owned();
        let starts = [start(0, "a.pt"), start(1, "b.pt")];
        let solved = [
            (0, true),
            (0, true),
            (1, true),
            (1, false),
            (2, false),
            (2, false),
        ];
        let episodes = solved.iter().enumerate();
        let episodes = episodes.map(|(at, (job, solved))| episode(*job, at as u64 % 2, *solved));
        let report = report(
            &plan,
            &starts.into_iter().chain(episodes).collect::<Vec<_>>(),
        );
        insta::assert_snapshot!(conclusion(&report));
        assert_eq!(report.overall.policies, 3);
        assert_eq!(report.per_policy[0].rates.policies, 1);
    }

    #[test]
    fn two_jobs_of_one_policy_have_one_rate() {
        let lines = [start(0, "a.pt"), episode(0, 0, true), episode(1, 0, false)];
        let text = conclusion(&report(&plan(2), &lines));
        let rate = "2 of 4 episodes, 50.0 % solved (95 %: 9.5 to 90.5)\n";
        assert!(text.starts_with(rate), "{text}");
    }

    #[test]
    fn a_job_in_steps_that_ends_before_an_episode_says_so_and_has_no_rate() {
        let plan = lines::plan([json!({"name": "j0", "num_episodes": null, "num_steps": 9})]);
        let end = Line::JobEnd(Box::new(JobEnd {
            job: "j0".to_owned(),
            costs: Costs {
                env_steps: 9,
                ..Costs::default()
            },
            ..JobEnd::default()
        }));
        let report = report(&plan, &[start(0, "a.pt"), end]);
        let told =
            "1 job ended before its first episode did; num_episodes counts whole episodes: j0";
        assert_eq!(conclusion(&report), format!("0 of 0 episodes\n{told}"));
        let words = "ended before its first episode did, after 9 steps in all; num_episodes counts whole episodes";
        let summary = metrics_summary(&report);
        assert!(!summary.contains("success_rate"), "{summary}");
        assert!(summary.contains(&format!("  {words}\n")), "{summary}");
        assert!(!report.per_job[0].metrics.contains_key("success_rate"));
    }

    #[test]
    fn a_shortage_of_memory_is_said_with_its_knob() {
        let mut report = report(&plan(1), &[]);
        let mut told = |times, batch| {
            let job = &mut report.per_job[0];
            (job.costs.out_of_memory, job.costs.out_of_memory_batch) = (times, batch);
            conclusion(&report)
                .split_once("\nj0: ")
                .unwrap()
                .1
                .to_owned()
        };
        let all = [(3, Some(4)), (3, Some(1)), (3, Some(0)), (1, None)];
        insta::assert_snapshot!(all.map(|(times, batch)| told(times, batch)).join("\n\n"));
    }

    #[test]
    fn of_a_long_reason_the_first_line_is_said_again() {
        let mut report = report(&plan(1), &[]);
        report.failures = vec![FailureReport {
            job: "j0".to_owned(),
            episode: Some(3),
            reason: "the simulator raised KeyError\n    a traceback\n    KeyError".to_owned(),
            ..FailureReport::default()
        }];
        let text = conclusion(&report);
        let told = "\nj0 episode 3: the simulator raised KeyError";
        assert!(text.ends_with(told), "{text}");
    }

    #[test]
    fn one_error_is_no_plural() {
        let mut report = report(&plan(1), &[episode(0, 0, true)]);
        for (count, said) in [(1, ", 1 error\n"), (2, ", 2 errors\n")] {
            report.overall.errors = count;
            let text = conclusion(&report);
            assert!(text.contains(said), "{text}");
        }
    }

    fn of(verdict: Verdict, errors: u64) -> String {
        decision(&crate::tests::lines::decision(verdict, errors))
    }

    #[test]
    fn a_decision_names_rounds_pairs_margin_and_difference() {
        let all = [
            (Verdict::Regression, 0),
            (Verdict::Same, 0),
            (Verdict::Undecided, 2),
        ];
        insta::assert_snapshot!(all.map(|(verdict, errors)| of(verdict, errors)).join("\n"));
    }
}
