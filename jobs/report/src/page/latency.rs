//! Plots success rates against the latency of the policy: one drawing for each series of jobs that
//! are equal but for it, and a table of all jobs with a latency.

use jobs::format;
use maud::{Markup, html};

use crate::page::chart::{Mark, curve};
use crate::page::parts::{Cell, MOST_NAME, clip, count, cut, heads, known, number, table, title};
use crate::stats::Solved;
use crate::{JobReport, LatencyMode, LatencyReport, LatencySeries, LatencyUnit, Report};

/// Maximum number of drawings.
const MOST: usize = 100;

pub(super) const NAMES: [&str; 3] = ["latency", "Latency", "Success by latency of the policy"];

/// Returns the section, which is empty if no job has a latency.
pub(super) fn section(report: &Report) -> Markup {
    let jobs = report.per_job.iter();
    let jobs: Vec<_> = jobs
        .filter_map(|job| Some((job, job.latency.as_ref()?)))
        .collect();
    let heads = heads([
        "Job",
        "Latency",
        "Solved",
        "Fewest steps felt",
        "Mean",
        "Most",
        "Actions held",
    ]);
    let series = &report.per_latency;
    html! {
        @if !jobs.is_empty() {
            p.lead {
                "While the policy infers, the environment goes on with the rest of its previous actions. "
                "Dots are rates, lines are 95" (format::THIN) "% Wilson intervals."
            }
            @for series in series.iter().take(MOST) { (plot(series)) }
            (cut(series.len().saturating_sub(MOST)))
            (table(["Latency", ""], &heads, jobs.iter(), |(job, latency)| row(job, latency)))
        }
    }
}

fn row(job: &JobReport, latency: &LatencyReport) -> Vec<Cell> {
    let steps = |steps: Option<u64>| {
        known(steps.map(|steps| steps as f64), |steps| {
            format::count(steps as u64)
        })
    };
    let solved = Solved::from(&job.rates);
    vec![
        title(&job.name).into(),
        given(latency).into(),
        number(Some(solved.successes as f64), |_| solved.to_string()),
        steps(latency.min_steps),
        known(latency.mean_steps, format::digits),
        steps(latency.max_steps),
        count(latency.held_actions),
    ]
}

fn given(latency: &LatencyReport) -> String {
    match (latency.mode, latency.given) {
        (LatencyMode::Steps, Some(1.0)) => "1 step".to_owned(),
        (LatencyMode::Steps, Some(steps)) => format!("{steps} steps"),
        (LatencyMode::Ms, Some(ms)) => format!("{ms}{}ms", format::THIN),
        _ => "measured".to_owned(),
    }
}

/// Draws one series: the latency to the right, the rate upwards.
fn plot(series: &LatencySeries) -> Markup {
    let unit = match series.unit {
        LatencyUnit::Steps => "latency in steps; success rate in\u{202f}%",
        LatencyUnit::Ms => "latency in ms; success rate in\u{202f}%",
    };
    let points = series.points.iter().map(|point| Mark {
        at: point.latency,
        solved: Solved::new(point.rates.successes, point.rates.episodes),
        name: point.job.clone(),
    });
    html! {
        figure.curve {
            figcaption { (clip(&series.environment, MOST_NAME)) " " small { (series.policy_type) } }
            (curve(&points.collect::<Vec<_>>(), unit))
        }
    }
}
