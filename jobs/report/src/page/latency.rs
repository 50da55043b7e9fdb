//! Plots success rates against the latency of the policy: one drawing for each series of jobs that
//! are equal but for it, and a table of all jobs with a latency.
//!
//! Positions are percentages of width and height, as those of `bars` are.

use jobs::format;
use maud::{Markup, html};

use crate::page::bars::{Bar, place};
use crate::page::cut;
use crate::page::link::clip;
use crate::page::sheet::title;
use crate::{
    JobReport, LatencyMode, LatencyPoint, LatencyReport, LatencySeries, LatencyUnit, Report,
};

/// Maximum number of drawings, and of rows of the table.
const MOST: usize = 100;

/// Returns the section; `None` if no job has a latency.
pub(super) fn section(report: &Report) -> Option<Markup> {
    let jobs = report.per_job.iter().filter(|job| job.latency.is_some());
    let jobs: Vec<_> = jobs.collect();
    if jobs.is_empty() {
        return None;
    }
    let series = &report.per_latency;
    let rest = "report.json has them all.";
    Some(html! {
        p.lead {
            "While the policy infers, the environment goes on with the rest of its previous actions. "
            "Dots are rates, lines are 95" (format::THIN) "% Wilson intervals."
        }
        @for series in series.iter().take(MOST) { (plot(series)) }
        (cut(series.len().min(MOST), series.len(), "series", rest))
        div.scroll role="region" aria-label="Latency" tabindex="0" {
            table {
                thead { tr {
                    th scope="col" { "Job" }
                    th scope="col" { "Latency" }
                    th.n scope="col" { "Solved" }
                    th.n scope="col" { "Steps felt: fewest" }
                    th.n scope="col" { "mean" }
                    th.n scope="col" { "most" }
                    th.n scope="col" { "Actions held" }
                } }
                tbody { @for job in jobs.iter().take(MOST) { (row(job)) } }
            }
        }
        (cut(jobs.len().min(MOST), jobs.len(), "jobs", rest))
    })
}

fn row(job: &JobReport) -> Markup {
    let Some(latency) = &job.latency else {
        return html! {};
    };
    let steps = |steps: Option<u64>| steps.map_or_else(|| "–".to_owned(), format::count);
    let mean = latency.mean_steps;
    html! {
        tr {
            th scope="row" { (title(&job.name)) }
            td { (given(latency)) }
            td.n { (format::count(job.rates.successes)) " of " (format::count(job.rates.episodes)) }
            td.n { (steps(latency.min_steps)) }
            td.n { (mean.map_or_else(|| "–".to_owned(), format::digits)) }
            td.n { (steps(latency.max_steps)) }
            td.n { (format::count(latency.held_actions)) }
        }
    }
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
    let most = series.points.last().map_or(1.0, |point| point.latency);
    let dots: Vec<_> = series
        .points
        .iter()
        .filter_map(|point| Dot::new(point, most))
        .collect();
    let unit = match series.unit {
        LatencyUnit::Steps => "steps",
        LatencyUnit::Ms => "ms",
    };
    html! {
        figure.latency {
            figcaption { (clip(&series.environment, 80)) " " small { (series.policy_type) } }
            svg width="100%" height="200" role="img" aria-label="Success rate against latency" {
                @for (y, label) in [(0.0, "100"), (25.0, "75"), (50.0, "50"), (75.0, "25"), (100.0, "0")] {
                    line.ruler x1="0%" x2="100%" y1=(place(y)) y2=(place(y)) {}
                    text.right x="-0.6em" y=(place(y)) dy="0.35em" { (label) }
                }
                @for pair in dots.windows(2) {
                    line.curve x1=(pair[0].x()) x2=(pair[1].x()) y1=(pair[0].y()) y2=(pair[1].y()) {}
                }
                @for dot in &dots { (dot.draw()) }
            }
            p.muted { "latency in " (unit) "; success rate in" (format::THIN) "%" }
        }
    }
}

/// A point of a series, in percent of width and height.
struct Dot<'a> {
    point: &'a LatencyPoint,
    right: f64,
    bar: Bar,
}

impl<'a> Dot<'a> {
    /// Leaves a margin of 3 % on both sides.
    fn new(point: &'a LatencyPoint, most: f64) -> Option<Self> {
        let bar = Bar::new(point.success_rate, point.wilson95)?;
        let right = 3.0 + 94.0 * point.latency / most;
        Some(Self { point, right, bar })
    }

    fn x(&self) -> String {
        place(self.right)
    }

    fn y(&self) -> String {
        place(100.0 - self.bar.rate)
    }

    fn draw(&self) -> Markup {
        let (low, high) = (place(100.0 - self.bar.low), place(100.0 - self.bar.high));
        let LatencyPoint {
            job,
            successes,
            episodes,
            latency,
            ..
        } = self.point;
        html! {
            line.interval x1=(self.x()) x2=(self.x()) y1=(low) y2=(high) {}
            circle.all cx=(self.x()) cy=(self.y()) r="4.5" {
                title { (job) ": " (format::count(*successes)) " of " (format::count(*episodes)) }
            }
            text.middle x=(self.x()) y="100%" dy="1.3em" { ((latency * 100.0).round() / 100.0) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(latency: f64, successes: u64, wilson95: [f64; 2]) -> LatencyPoint {
        LatencyPoint {
            job: format!("push_{latency}"),
            latency,
            episodes: 10,
            successes,
            success_rate: Some(successes as f64 / 10.0),
            wilson95: Some(wilson95),
        }
    }

    #[test]
    fn a_dot_stands_where_its_numbers_are() {
        let series = LatencySeries {
            environment: "push".to_owned(),
            policy_type: "gr00t".to_owned(),
            unit: LatencyUnit::Steps,
            points: vec![point(0.0, 10, [0.72, 1.0]), point(4.0, 5, [0.24, 0.76])],
        };
        let text = plot(&series).into_string();
        let has = |part: &str| assert!(text.contains(part), "{part} in {text}");
        has(r#"<circle class="all" cx="3.00%" cy="0.00%""#);
        has(r#"<circle class="all" cx="97.00%" cy="50.00%""#);
        has(r#"<line class="curve" x1="3.00%" x2="97.00%" y1="0.00%" y2="50.00%">"#);
        has(r#"<line class="interval" x1="97.00%" x2="97.00%" y1="76.00%" y2="24.00%">"#);
        has("push_4: 5 of 10");
    }
}
