use super::*;
use crate::tests::lines::at;
use crate::{JobSpan, LifeReport};

fn span(job: &str, from: u64, to: u64) -> JobSpan {
    JobSpan {
        job: job.to_owned(),
        attempt: 0,
        started: at(from),
        ended: at(to),
        whole: true,
        error: None,
    }
}

fn life(from: u64, to: u64, end: HowEnded) -> LifeReport {
    LifeReport {
        started: at(from),
        ended: at(to),
        end,
        failure: None,
        restart: 0,
        round: 0,
        pid: 1,
    }
}

fn rank(lives: Vec<LifeReport>, spans: Vec<JobSpan>) -> RankReport {
    RankReport {
        lives,
        spans,
        ..crate::page::tests::rank(0)
    }
}

fn timeline(least: f64, zone: &Zone) -> Timeline<'_> {
    let [from_ms, to_ms] = [0, 100].map(|second| millis(&at(second)).unwrap());
    Timeline {
        from_ms,
        to_ms,
        least,
        is_merged: false,
        zone,
    }
}

fn of_ranks(per_rank: Vec<RankReport>) -> Report {
    Report {
        per_rank,
        ..crate::page::tests::report()
    }
}

#[test]
fn a_job_stands_where_its_moments_are() {
    let rank = rank(
        vec![life(0, 50, HowEnded::Died), life(60, 100, HowEnded::Done)],
        vec![span("a", 10, 50), span("b", 61, 86)],
    );
    let zone = Zone::utc();
    let timeline = timeline(LEAST, &zone);
    let bars = timeline.bars(&rank);
    let places: Vec<_> = bars
        .iter()
        .map(|bar| (bar.from, bar.to, bar.busy()))
        .collect();
    assert_eq!(places, [(10.0, 50.0, 1.0), (61.0, 86.0, 1.0)]);
    let text = drawn(&rank, &timeline).into_string();
    for part in [
        r#"<rect class="life" x="0.00%" y="4" width="50.00%""#,
        r#"<line class="death" x1="50.00%" x2="50.00%""#,
        r#"<rect class="job" x="10.00%""#,
        r#"<rect class="job odd" x="61.00%""#,
        "died after 10:00:50",
        "b, 10:01:01 to 10:01:26",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("class=\"death\"").count(), 1);
}

#[test]
fn jobs_that_are_too_short_are_joined_and_as_dark_as_they_are_dense() {
    let spans = (0..100)
        .flat_map(|second| [span("a", second, second), span("b", second, second + 1)])
        .collect();
    let rank = rank(vec![], spans);
    let zone = Zone::utc();
    let dense = timeline(10.0, &zone).bars(&rank);
    assert_eq!(dense.len(), 10, "{dense:?}");
    let is_dense = |bar: &JobBar| bar.jobs == 20 && (bar.busy() - 1.0).abs() < 1e-9;
    assert!(dense.iter().all(is_dense), "{dense:?}");
    let spans = vec![span("a", 0, 1), span("b", 3, 4), span("c", 50, 60)];
    let rank = self::rank(vec![], spans);
    let sparse = timeline(5.0, &zone).bars(&rank);
    let found: Vec<_> = sparse.iter().map(|bar| (bar.jobs, bar.busy())).collect();
    assert_eq!(found, [(2, 0.5), (1, 1.0)]);
}

#[test]
fn ranks_that_died_are_among_those_that_are_shown() {
    let ranks = (0..200).map(|number| RankReport {
        deaths: u64::from(number == 150),
        ..crate::page::tests::rank(number)
    });
    let report = of_ranks(ranks.collect());
    let text = section(&report, &Zone::utc()).into_string();
    assert_eq!(text.matches("<div class=\"lane\">").count(), MOST_RANKS);
    assert!(text.contains("<b>rank 150</b>") && text.contains("<b>rank 0</b>"));
    assert!(text.contains("and 136 more, see report.json"), "{text}");
}

#[test]
fn ranks_of_merged_runs_are_told_apart_by_their_journals() {
    let of = |journal: &str| RankReport {
        journal: format!("journal/{journal}"),
        ..crate::page::tests::rank(0)
    };
    let text = |journals: &[&str]| {
        let ranks = journals.iter().map(|journal| of(journal)).collect();
        section(&of_ranks(ranks), &Zone::utc()).into_string()
    };
    assert!(!text(&["a.jsonl"]).contains("a.jsonl"));
    assert!(text(&["a.jsonl", "b.jsonl"]).contains("b.jsonl"));
}
