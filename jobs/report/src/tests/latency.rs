//! What episodes felt of a latency, and success against it.

use super::*;
use crate::{LatencyMode, LatencyPoint, LatencyUnit};
use jobs::episode::FeltLatency;

fn delayed(name: &str, latency: serde_json::Value) -> serde_json::Value {
    json!({"name": name, "num_episodes": 2, "latency": latency})
}

/// Returns an episode in which inferences took these steps.
fn felt(name: &str, number: u64, success: bool, steps: &[u64], held: u64) -> Line {
    let mut latency = FeltLatency {
        held,
        ..FeltLatency::default()
    };
    steps.iter().for_each(|steps| latency.add(*steps));
    line(Episode {
        latency: Some(latency),
        success: Some(success),
        ..samples::episode(0, name, number)
    })
}

fn points(series: &[LatencyPoint]) -> Vec<(&str, f64, u64)> {
    let points = series.iter();
    points
        .map(|point| (point.job.as_str(), point.latency, point.rates.successes))
        .collect()
}

#[test]
fn what_was_felt_is_summed_over_the_episodes() {
    let measured = delayed("a", json!({"measured": true, "hold": "zero"}));
    let plan = plan([measured, job("b", 2)]);
    let lines = [
        felt("a", 0, true, &[3, 5], 1),
        felt("a", 1, false, &[2], 4),
        felt("b", 0, true, &[], 0),
    ];
    let report = Report::new(&plan, &lines, Context::default());
    assert_eq!(report.per_job[1].latency, None);
    let latency = report.per_job[0].latency.clone().unwrap();
    assert_eq!((latency.mode, latency.given), (LatencyMode::Measured, None));
    assert_eq!((latency.inferences, latency.held_actions), (3, 5));
    assert_eq!((latency.min_steps, latency.max_steps), (Some(2), Some(5)));
    assert!((latency.mean_steps.unwrap() - 10.0 / 3.0).abs() < 1e-12);
}

#[test]
fn jobs_that_are_equal_but_for_their_latency_are_one_series() {
    let mut other = delayed("other", json!({"steps": 1}));
    other["arena_env_args"] = json!({"environment": "push"});
    let slow = delayed("slow", json!({"steps": 4}));
    let plan = plan([
        slow,
        other,
        job("a", 2),
        delayed("measured", json!("measured")),
    ]);
    let lines = [
        felt("slow", 0, false, &[4], 0),
        felt("a", 0, true, &[], 0),
        felt("measured", 0, true, &[2, 3], 0),
    ];
    let series = Report::new(&plan, &lines, Context::default()).per_latency;
    assert_eq!(series.len(), 1, "a single job is no series");
    assert_eq!(series[0].unit, LatencyUnit::Steps);
    let expected = [("a", 0.0, 1), ("measured", 2.5, 1), ("slow", 4.0, 0)];
    assert_eq!(points(&series[0].points), expected);
}

#[test]
fn a_series_of_times_is_in_milliseconds() {
    let latencies = [("a", json!({"ms": 150})), ("b", json!({"steps": 0}))];
    let plan = plan(latencies.map(|(name, latency)| delayed(name, latency)));
    let lines = [felt("a", 0, true, &[3], 0), felt("b", 0, true, &[], 0)];
    let series = Report::new(&plan, &lines, Context::default()).per_latency;
    assert_eq!(series[0].unit, LatencyUnit::Ms);
    assert_eq!(points(&series[0].points), [("b", 0.0, 1), ("a", 150.0, 1)]);
}
