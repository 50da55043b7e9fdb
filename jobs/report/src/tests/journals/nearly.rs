//! Tests lines that are nearly those of an episode: what the scan accepts can be read again, and
//! nothing that a line says ends a report.

use serde_json::Value;

use super::*;
use jobs::episode::FeltLatency;

#[test]
fn a_line_that_is_nearly_an_episode_is_damage_and_no_end_of_the_report() {
    let whole = json!(line(episode(0, 0, false)));
    rig::cases::check("src/tests/journals/nearly.txt", |changes| {
        counts(&rig::cases::changed(&whole, changes).to_string())
    });
    let later = whole
        .to_string()
        .replacen("\"job\":", "\"later\":1e999,\"job\":", 1);
    assert_eq!(counts(&later), "1 episodes, 0 damaged", "it is ignored");
}

/// Returns how many episodes a journal of this line has, and how many damaged lines.
fn counts(line: &str) -> String {
    let journals = Journals::default().and_delivered([(0, format!("{line}\n").into_bytes())]);
    let merged = merged(journals);
    let report = Report::of(&merged, Context::default()).unwrap();
    let (episodes, damage) = (report.overall.episodes, merged.damage().count());
    format!("{episodes} episodes, {damage} damaged")
}

/// Returns an episode with all of its fields.
fn whole() -> Value {
    let file = "a/x".to_owned();
    let whole = Episode {
        success_at_end: Some(true),
        max_reward: Some(1.0),
        actions_out_of_bounds: 2,
        latency: Some(FeltLatency {
            inferences: 3,
            ..FeltLatency::default()
        }),
        error: Some("NaN".to_owned()),
        dataset: lines::demo(&file, "demo_0"),
        video: lines::video(&file, 0),
        episode_video: Some(file),
        metrics: BTreeMap::from([("tokens".to_owned(), 2.0)]),
        ended: at(1),
        ..episode(0, 0, true)
    };
    serde_json::to_value(whole).unwrap()
}

/// Returns the paths of all fields, nested ones included.
fn paths(value: &Value, at: &str) -> Vec<String> {
    let fields = value.as_object().into_iter().flatten();
    let with_below = |(name, field): (&String, &Value)| {
        let path = format!("{at}/{name}");
        let below = paths(field, &path);
        [path].into_iter().chain(below)
    };
    fields.flat_map(with_below).collect()
}

#[test]
fn what_the_scan_accepts_is_read_again_and_no_line_ends_a_report() {
    let odd = json!([null, true, -1, 1.5, 1e308, u64::MAX, "", "x", [], [1], {}, {"steps": -1}]);
    let odd = odd.as_array().unwrap();
    let scored = rig::cases::changed(&whole(), "- error");
    for line in [whole(), scored] {
        for path in paths(&line, "") {
            let others = odd.iter().map(|odd| format!("{path} = {odd}"));
            for change in others.chain([format!("- {path}")]) {
                is_read(&rig::cases::changed(&line, &change));
            }
        }
    }
}

#[track_caller]
fn is_read(line: &Value) {
    let text = format!("{{\"type\":\"episode\",{}\n", &line.to_string()[1..]);
    let journals = Journals::default().and_delivered([(0, text.clone().into_bytes())]);
    let merged = merged(journals);
    let report = Report::of(&merged, Context::default());
    assert!(report.is_ok(), "{text}: {:?}", report.err());
    let mut jobs = merged.plan.jobs.iter();
    let read = jobs.try_for_each(|job| merged.each_episode_of(job, drop));
    assert!(read.is_ok(), "{text}: {read:?}");
}
