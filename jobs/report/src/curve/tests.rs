//! Tests of the curve: its file, its table and its page.

use super::*;

fn score(successes: u64, episodes: u64) -> SolvedRate {
    Solved::new(successes, episodes).into()
}

fn point(step: u64, of_jobs: &[(&str, u64)]) -> Point {
    let of_job = |(name, successes): &(&str, u64)| JobScore {
        name: (*name).to_owned(),
        score: score(*successes, 10),
    };
    let jobs = of_jobs.iter().map(of_job).collect();
    let successes = of_jobs.iter().map(|(_, successes)| successes).sum();
    Point {
        name: format!("step_{step}"),
        step,
        state: PointState::Evaluated,
        run: format!("step_{step}"),
        overall: Some(score(successes, 10 * of_jobs.len() as u64)),
        jobs,
        ..Point::default()
    }
}

fn curve() -> Curve {
    let failed = Point {
        name: "step_300<b>".to_owned(),
        step: 300,
        state: PointState::Failed,
        reason: Some("no <memory>".to_owned()),
        ..Point::default()
    };
    Curve {
        schema: SCHEMA.to_owned(),
        checkpoints: "runs/pick".to_owned(),
        jobs_file: "jobs.json".to_owned(),
        points: vec![
            point(100, &[("a", 2), ("b", 4)]),
            point(200, &[("a", 9), ("b", 8)]),
            failed,
        ],
        ..Curve::default()
    }
}

#[test]
fn what_is_written_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("watch.json");
    assert_eq!(Curve::read(&path), None);
    curve().write(dir.path()).unwrap();
    assert_eq!(Curve::read(&path), Some(curve()));
    for text in [
        "",
        "{}",
        "[1]",
        r#"{"schema": "rrun/watch/1"}"#,
        r#"{"schema": "other"}"#,
    ] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(Curve::read(&path), None, "{text}");
    }
}

#[test]
fn the_table_has_a_row_for_each_checkpoint() {
    insta::assert_snapshot!(curve().table());
}

#[test]
fn the_best_checkpoint_is_the_one_with_the_highest_rate() {
    let curve = curve();
    let (best, rate) = curve.best().unwrap();
    assert_eq!((best.step, rate), (200, 0.85));
    assert!(Curve::default().best().is_none());
}

#[test]
fn the_page_draws_all_jobs_together_and_each_alone() {
    let page = curve().page();
    assert_eq!(page.matches("<svg class=\"curve\"").count(), 3);
    assert_eq!(page.matches("<circle").count(), 6);
    assert_eq!(page.matches("class=\"interval\"").count(), 6);
    assert!(page.contains("step 200: 85.0\u{202f}%"));
    assert!(page.contains("the best so far is step 200"));
    assert!(page.contains("href=\"./step_100/report.html\""));
}

#[test]
fn names_and_reasons_of_others_are_text() {
    let page = curve().page();
    assert!(page.contains("step_300&lt;b&gt;") && page.contains("no &lt;memory&gt;"));
    assert!(!page.contains("step_300<b>"));
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    let mut foreign = curve();
    foreign.points[0].run = "../../x\" onclick=\"".to_owned();
    assert!(!foreign.page().contains("onclick="));
}

#[test]
fn a_curve_without_results_says_so() {
    let page = Curve::default().page();
    assert!(page.contains("No episode has ended yet."));
    let mut one = curve();
    one.points.truncate(1);
    let told = "cx=\"50.00%\"";
    assert!(one.page().contains(told), "a single step is in the middle");
}
