//! Tests lines that are nearly those of an episode: what the scan accepts can be read again, and
//! nothing that a line says ends a report.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use jobs::episode::FeltLatency;

#[test]
fn a_line_that_is_nearly_an_episode_is_damage_and_no_end_of_the_report() {
    let whole = serde_json::to_string(&line(episode(0, 0, false))).unwrap();
    for (found, instead) in [
        ("\"seed\":", "\"seed\":1e308,\"_\":"),
        ("\"env\":", "\"env\":-1,\"_\":"),
        ("\"wall_s\":", "\"wall_s\":null,\"_\":"),
        ("\"job\":", "\"metrics\":{\"a\":[]},\"job\":"),
        ("\"job\":", "\"dataset\":{\"file\":\"x\"},\"job\":"),
        (
            "\"job\":",
            "\"video\":{\"file\":\"x\",\"first_frame\":-1,\"frames\":1},\"job\":",
        ),
        ("\"job\":", "\"latency\":3,\"job\":"),
        ("\"job\":", "\"latency\":{\"inferences\":1},\"job\":"),
        (
            "\"job\":",
            "\"latency\":{\"inferences\":1,\"steps\":2,\"min_steps\":1,\"max_steps\":1.5,\"held\":0},\"job\":",
        ),
    ] {
        let text = whole.replacen(found, instead, 1) + "\n";
        let plan = two_jobs();
        let journals = Journals::default().and_delivered([(0, text.clone().into_bytes())]);
        let merged = Merged::new(&plan, &journals).unwrap();
        let report = Report::of(&merged, Context::default()).unwrap();
        assert_eq!(
            (report.overall.episodes, merged.damage().count()),
            (0, 1),
            "{text}"
        );
    }
    // A field of a later version is ignored.
    let text = whole.replacen("\"job\":", "\"later\":1e999,\"job\":", 1) + "\n";
    let (plan, journals) = (
        two_jobs(),
        Journals::default().and_delivered([(0, text.into_bytes())]),
    );
    let merged = Merged::new(&plan, &journals).unwrap();
    assert_eq!(
        Report::of(&merged, Context::default())
            .unwrap()
            .overall
            .episodes,
        1
    );
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
        dataset: Some(DemoRef {
            file: file.clone(),
            demo: "demo_0".to_owned(),
        }),
        video: Some(VideoRef {
            file: file.clone(),
            first_frame: 0,
            frames: 3,
            fps: Some(20),
        }),
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
    fields
        .flat_map(|(name, field)| {
            let path = format!("{at}/{name}");
            let below = paths(field, &path);
            [path].into_iter().chain(below)
        })
        .collect()
}

/// Puts `instead` at a path, or takes the field away.
fn changed(mut line: Value, path: &str, instead: Option<Value>) -> Value {
    let (parent, name) = path.rsplit_once('/').unwrap();
    let parent = line.pointer_mut(parent).and_then(Value::as_object_mut);
    let parent = parent.unwrap();
    match instead {
        Some(instead) => parent.insert(name.to_owned(), instead),
        None => parent.remove(name),
    };
    line
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        let names = prop_oneof![Just("steps".to_owned()), "[a-z]{1,3}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(names, inner, 0..3).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn what_the_scan_accepts_is_read_again_and_no_line_ends_a_report(
        field in any::<proptest::sample::Index>(), instead in proptest::option::of(any_value()), error in any::<bool>(),
    ) {
        let mut line = whole();
        if !error {
            line = changed(line, "/error", None);
        }
        let paths = paths(&line, "");
        let path: &String = field.get(&paths);
        let line = changed(line, path, instead).to_string();
        let text = format!("{{\"type\":\"episode\",{}\n", &line[1..]);
        let plan = two_jobs();
        let journals = Journals::default().and_delivered([(0, text.clone().into_bytes())]);
        let merged = Merged::new(&plan, &journals).unwrap();
        let report = Report::of(&merged, Context::default());
        prop_assert!(report.is_ok(), "{text}: {:?}", report.err());
        let read = plan.jobs.iter().try_for_each(|job| merged.each_episode_of(job, drop));
        prop_assert!(read.is_ok(), "{text}: {read:?}");
    }
}
