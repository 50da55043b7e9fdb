//! Tests that `docs/report.md` and the report have the same fields.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::*;
use jobs::episode::VideoRef;
use jobs::job::Variant;
use jobs::journal::{Blame, Decision, RankEnd, RankGpu, RankStart, Verdict};
use jobs::plan::{Git, Resumed};

/// Objects whose keys are data.
const MAPS: [&str; 4] = [
    "run.versions",
    "config.settings",
    "per_job[].settings",
    "per_job[].metrics",
];

/// Returns a report in which no list is empty.
pub(crate) fn full() -> Report {
    let video = lines::video("", 0).map(|video| VideoRef {
        fps: Some(20),
        ..video
    });
    let decision = Decision {
        claim: Some("1/2".parse().unwrap()),
        ..lines::decision(Verdict::Passed, 0)
    };
    let lines = [
        Line::Rank(Box::new(RankStart {
            gpu: Some(RankGpu::default()),
            ..RankStart::default()
        })),
        Line::JobStart(JobStart::default()),
        lines::env_lost(0, Blame::Unknown),
        lines::policy_files("", "", ""),
        Line::Decision(Box::new(decision)),
        line(Episode {
            video,
            ..episode(0, 0, false)
        }),
        line(Episode {
            env: 1,
            ..episode(0, 0, false)
        }),
        line(broken(episode(0, 1, false), "NaN")),
        end(0, Some("boom")),
        Line::RankEnd(RankEnd {
            failure: Some(String::new()),
            ..RankEnd::default()
        }),
    ];
    let git = Some(Git::default());
    let variant = Some(Variant {
        of: "a".to_owned(),
        name: "dark".to_owned(),
        groups: Vec::new(),
    });
    let delayed = json!({"name": "b", "num_episodes": 2, "latency": {"steps": 2}});
    let mut planned = plan([job("a", 4), delayed, job("c", 4)]);
    planned.jobs[2].variant = variant;
    let plan = RunPlan {
        resumed_from: vec![Resumed {
            git: git.clone(),
            ..Resumed::default()
        }],
        git,
        ..planned
    };
    Report::new(&plan, &lines, Context::default())
}

fn paths(value: &Value, path: &str, to: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !MAPS.contains(&path) => {
            for (key, value) in map {
                let below = format!("{path}.{key}");
                paths(value, below.trim_start_matches('.'), to);
            }
        }
        Value::Array(entries) if entries.iter().any(Value::is_object) => {
            for entry in entries {
                paths(entry, &format!("{path}[]"), to);
            }
        }
        _ => drop(to.insert(path.to_owned())),
    }
}

/// Returns the field names in backticks in the first cell of each table row.
fn documented() -> BTreeSet<String> {
    let text = include_str!("../../../../docs/report.md");
    let first_cell = |line: &'static str| line.strip_prefix("| `")?.split(" | ").next();
    let names = text
        .lines()
        .filter_map(first_cell)
        .flat_map(|cell| cell.split(", "));
    let names = names.map(|name| name.trim_matches(['`', ' ']).to_owned());
    let is_file = |name: &String| name.ends_with(".json") || name.ends_with(".jsonl");
    names.filter(|name| !is_file(name)).collect()
}

#[test]
fn every_field_is_documented_and_nothing_else() {
    let mut report = serde_json::to_value(full()).unwrap();
    let rates: Map<String, Value> = report["overall"].as_object().unwrap().clone();
    for list in ["per_job", "per_group", "per_policy"] {
        for entry in report[list].as_array_mut().unwrap() {
            // Each entry also has the counts and rates of `overall`.
            let entry = entry.as_object_mut().unwrap();
            entry.retain(|key, _| !rates.contains_key(key));
        }
    }
    // So has this.
    report["controls"] = Value::Null;
    let mut fields = BTreeSet::new();
    paths(&report, "", &mut fields);
    let documented = documented();
    let missing: Vec<_> = fields.difference(&documented).collect();
    assert_eq!(missing, [""; 0], "not in docs/report.md");
    let gone: Vec<_> = documented.difference(&fields).collect();
    assert_eq!(gone, [""; 0], "not in the report");
}
