//! Tests that `docs/report.md` and the report have the same fields.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::*;
use jobs::claim::Claim;
use jobs::episode::VideoRef;
use jobs::job::Variant;
use jobs::journal::{Blame, Decision, PolicyFiles, Question, RankEnd, RankGpu, RankStart, Verdict};
use jobs::plan::{Git, Resumed};

/// Objects whose keys are data.
const MAPS: [&str; 4] = [
    "run.versions",
    "config.settings",
    "per_job[].settings",
    "per_job[].metrics",
];

/// Returns a report in which no list is empty.
fn full() -> Report {
    let gpu = Some(RankGpu {
        index: 0,
        name: String::new(),
        bytes: 1,
        uuid: String::new(),
    });
    let lost = EnvLost {
        job_index: JobIndex(0),
        rank: 0,
        env: 0,
        episode: 0,
        step: 0,
        attempt: 1,
        blame: Blame::Own,
        reason: String::new(),
        stderr: Vec::new(),
        at: String::new(),
    };
    let video = Some(VideoRef {
        file: String::new(),
        first_frame: 0,
        frames: 1,
        fps: Some(20),
    });
    let files = PolicyFiles {
        policy_type: String::new(),
        path: String::new(),
        sha256: String::new(),
        bytes: 1,
        at: String::new(),
    };
    let decision = Decision {
        against: String::new(),
        claim: Some(Claim {
            solved: 1,
            episodes: 2,
        }),
        question: Question::Regression,
        margin: 0.05,
        level: 0.05,
        verdict: Verdict::Passed,
        rounds: 1,
        comparable_rounds: 1,
        both: 1,
        only_a: 0,
        only_b: 0,
        neither: 0,
        errors: 0,
        difference: None,
        interval: None,
        at: String::new(),
        launch: None,
    };
    let lines = [
        Line::Rank(Box::new(RankStart {
            gpu,
            ..RankStart::default()
        })),
        Line::JobStart(JobStart::default()),
        Line::EnvLost(Box::new(lost)),
        Line::PolicyFiles(files),
        Line::Decision(Box::new(decision)),
        line(Episode {
            video,
            ..episode(0, 0, false)
        }),
        line(Episode {
            env: 1,
            ..episode(0, 0, false)
        }),
        line(Episode {
            error: Some("NaN".to_owned()),
            ..episode(0, 1, false)
        }),
        end(0, Some("boom")),
        Line::RankEnd(RankEnd {
            failure: Some(String::new()),
            ..RankEnd::default()
        }),
    ];
    let git = Some(Git {
        commit: String::new(),
        dirty: false,
    });
    let variant = Some(Variant {
        of: "a".to_owned(),
        name: "dark".to_owned(),
        groups: Vec::new(),
    });
    let delayed = json!({"name": "b", "arena_env_args": {"environment": "reach"}, "num_episodes": 2,
                         "policy_type": "scripted", "latency": {"steps": 2}});
    let mut planned = plan(json!([job("a", 4), delayed, job("c", 4)]));
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
    let below = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    match value {
        Value::Object(map) if !MAPS.contains(&path) => map
            .iter()
            .for_each(|(key, value)| paths(value, &below(key), to)),
        Value::Array(entries) if entries.iter().any(Value::is_object) => {
            entries
                .iter()
                .for_each(|entry| paths(entry, &format!("{path}[]"), to));
        }
        _ => {
            to.insert(path.to_owned());
        }
    }
}

/// Returns the field names in backticks in the first cell of each table row.
fn documented() -> BTreeSet<String> {
    let text = include_str!("../../../../docs/report.md");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = rows
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches(['`', ' ']).to_owned());
    names
        .filter(|name| !name.ends_with(".json") && !name.ends_with(".jsonl"))
        .collect()
}

#[test]
fn every_field_is_documented_and_nothing_else() {
    let mut report = serde_json::to_value(full()).unwrap();
    let rates: Map<String, Value> = report["overall"].as_object().unwrap().clone();
    for list in ["per_job", "per_group", "per_policy"] {
        for entry in report[list].as_array_mut().unwrap() {
            // Each entry also has the counts and rates of `overall`.
            entry
                .as_object_mut()
                .unwrap()
                .retain(|key, _| !rates.contains_key(key));
        }
    }
    // So has this.
    report["controls"] = Value::Null;
    let mut fields = BTreeSet::new();
    paths(&report, "", &mut fields);
    let documented = documented();
    assert_eq!(
        fields.difference(&documented).collect::<Vec<_>>(),
        [""; 0],
        "not in docs/report.md"
    );
    assert_eq!(
        documented.difference(&fields).collect::<Vec<_>>(),
        [""; 0],
        "not in the report"
    );
}
