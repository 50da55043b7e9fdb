use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use jobs::episode::{DemoRef, VideoRef};
use jobs::job::JobIndex;
use jobs::journal::{JobStart, Line, PolicyFiles};
use jobs::samples;

use crate::Journals;

fn plan() -> RunPlan {
    let entry = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "p", "num_episodes": 4});
    RunPlan {
        seed: 42,
        jobs: jobs::file::parse(&json!({"jobs": [entry]})).unwrap(),
        ..RunPlan::default()
    }
}

fn episode(number: u64) -> Episode {
    Episode {
        seed: seed::episode(42, &plan().jobs[0], number),
        return_: 1.0,
        ended: format!("2026-11-21T10:00:{number:02}.000Z"),
        dataset: Some(DemoRef {
            file: "a/a.hdf5".to_owned(),
            demo: format!("demo_{number}"),
        }),
        video: Some(VideoRef {
            file: "a/a.mp4".to_owned(),
            first_frame: number * 10,
            frames: 10,
            fps: None,
        }),
        ..samples::episode(0, "a", number)
    }
}

fn audit(lines: &[Line]) -> (Findings, JobAudit) {
    let (plan, journals) = (plan(), Journals::of_lines(lines));
    let merged = Merged::new(&plan, &journals).unwrap();
    (run(&merged), job(&merged, &plan, &plan.jobs[0]).unwrap())
}

fn lines(episodes: impl IntoIterator<Item = Episode>) -> Vec<Line> {
    episodes
        .into_iter()
        .map(|episode| Line::Episode(Box::new(episode)))
        .collect()
}

#[test]
fn a_whole_run_has_no_findings_and_names_its_files() {
    let (run, job) = audit(&lines((0..4).map(episode)));
    assert_eq!(
        (run, &job.findings),
        (Findings::default(), &Findings::default())
    );
    assert_eq!((job.expected, job.episodes, job.errors), (Some(4), 4, 0));
    assert_eq!(
        job.datasets["a/a.hdf5"]
            .iter()
            .map(|demo| demo.name.as_str())
            .next_back(),
        Some("demo_3")
    );
    assert_eq!(
        job.videos["a/a.mp4"][1],
        EpisodeFrames {
            episode: 1,
            first: 10,
            frames: 10
        }
    );
}

#[test]
fn what_is_missing_broken_or_there_twice_is_found() {
    let broken = Episode {
        error: Some("NaN".to_owned()),
        success: None,
        dataset: None,
        video: None,
        ..episode(2)
    };
    let again = Episode {
        length: 11,
        ended: String::new(),
        ..episode(0)
    };
    let (_, job) = audit(&lines([episode(0), again, broken]));
    assert_eq!(job.unfinished, ["a: episodes 1, 3 are missing"]);
    assert_eq!(
        job.findings.wrong,
        [
            "a: episode 2 is broken by an error",
            "a: episode 0 is scored more than once, with different outcomes"
        ]
    );
    let same = Episode {
        wall_s: 2.0,
        ..episode(0)
    };
    let (_, job) = audit(&lines((0..4).map(episode).chain([same])));
    assert!(job.findings.wrong.is_empty());
    assert_eq!(
        job.findings.notes,
        ["a: episode 0 is scored more than once, with the same outcome"]
    );
}

#[test]
fn an_episode_that_is_not_the_plans_is_found() {
    let other = Episode {
        seed: 7,
        job: "b".to_owned(),
        ..episode(1)
    };
    let (run, job) = audit(&lines([
        episode(0),
        other,
        episode(2),
        episode(3),
        episode(9),
    ]));
    assert_eq!(
        run.wrong,
        [
            "`journal/journal_rank0.jsonl`: 1 unplanned line (5): of episodes that are not in the \
             plan"
        ]
    );
    assert_eq!(
        job.findings.wrong,
        [
            "a: episode 1 is not run from the seed that plan and number give",
            "a: episode 1 is written under the name of another job"
        ]
    );
}

#[test]
fn a_line_that_cannot_be_read_is_a_note_once_its_episode_is_there() {
    let (plan, whole) = (plan(), lines((0..4).map(episode)));
    let of = |lines: &[Line]| {
        let mut text = b"{\"type\":\"episode\",\"job\":\"a\",\"job_in\n".to_vec();
        for line in lines {
            text.extend(serde_json::to_vec(line).unwrap());
            text.push(b'\n');
        }
        let journals = Journals::default().and_delivered([(0, text)]);
        run(&Merged::new(&plan, &journals).unwrap())
    };
    let told = |findings: &[String]| {
        findings
            .iter()
            .any(|text| text.contains("1 damaged line (1)"))
    };
    let missing = of(&whole[..3]);
    assert!(
        told(&missing.wrong) && missing.notes.is_empty(),
        "{missing:?}"
    );
    let again = of(&whole);
    assert!(told(&again.notes) && again.wrong.is_empty(), "{again:?}");
}

#[test]
fn a_dataset_contradicts_the_journal_in_what_it_holds() {
    let (_, job) = audit(&lines((0..4).map(episode)));
    let demo = &job.datasets["a/a.hdf5"][1];
    let held = HeldDemo {
        episode: Some(1.0),
        seed: Some(demo.seed as f64),
        length: Some(10.0),
        return_: Some(1.0 + 1e-9),
        success: Some(true),
    };
    let told = |held: HeldDemo| demo.contradictions(&held).collect::<Vec<_>>();
    assert_eq!(told(held), [""; 0]);
    assert_eq!(told(HeldDemo::default()), [""; 0], "nothing is held");
    let other = HeldDemo {
        episode: Some(2.0),
        seed: Some(7.0),
        length: Some(11.0),
        return_: Some(f64::NAN),
        success: Some(false),
    };
    let named = [
        "episode number",
        "seed",
        "length",
        "success",
        "sum of rewards",
    ];
    let wanted = named.map(|name| format!("there with another {name} than in the journal"));
    assert_eq!(told(other), wanted);
}

#[test]
fn a_recording_with_gaps_is_found_and_one_of_successes_alone_is_none() {
    let failed = |number: u64| Episode {
        success: Some(false),
        dataset: None,
        ..episode(number)
    };
    let (_, job) = audit(&lines([episode(0), failed(1), failed(2), episode(3)]));
    assert!(job.findings.wrong.is_empty(), "--export-mode succeeded");
    let unrecorded = Episode {
        dataset: None,
        video: None,
        ..episode(3)
    };
    let (_, job) = audit(&lines([episode(0), failed(1), failed(2), unrecorded]));
    assert_eq!(
        job.findings.wrong,
        [
            "a: episode 3 is not in a dataset, though others like it are",
            "a: episode 3 is not in a video, though others are"
        ]
    );
}

#[test]
fn what_changed_between_starts_is_found() {
    let start = |dtype: &str, device: &str| {
        let settings = BTreeMap::from([
            ("dtype".to_owned(), json!(dtype)),
            ("device".to_owned(), json!(device)),
        ]);
        Line::JobStart(JobStart {
            settings,
            started: dtype.to_owned(),
            ..JobStart::default()
        })
    };
    let files = |sha256: &str| {
        let (policy_type, path, sha256, at) = (
            "p".to_owned(),
            "model".to_owned(),
            sha256.repeat(8),
            sha256.to_owned(),
        );
        Line::PolicyFiles(PolicyFiles {
            policy_type,
            path,
            sha256,
            bytes: 1,
            at,
        })
    };
    let mut all = lines((0..4).map(episode));
    all.extend([
        start("bfloat16", "cuda:0"),
        start("float32", "cuda:1"),
        files("1a2b3c4d"),
        files("5e6f7a8b"),
    ]);
    let (run, job) = audit(&all);
    assert_eq!(
        job.findings.wrong,
        ["a: dtype was \"bfloat16\", then \"float32\""]
    );
    let told = "policy `model` was changed during the run: its SHA-256 was 1a2b3c4d1a2b, then 5e6f7a8b5e6f";
    assert_eq!(run.wrong, [told]);
}

fn many() -> (RunPlan, Vec<Line>) {
    let entry = |name: &str, count: u64| json!({"name": name, "arena_env_args": {"environment": "reach"}, "policy_type": "p", "num_episodes": count});
    let jobs = jobs::file::parse(&json!({"jobs": [entry("a", 20), entry("b", 2), entry("c", 20)]}))
        .unwrap();
    let plan = RunPlan {
        seed: 42,
        jobs,
        id: "x".to_owned(),
        ..RunPlan::default()
    };
    let of = |job: usize, count: u64| {
        (0..count).map(move |number| Episode {
            job_index: JobIndex(job),
            ..episode(number)
        })
    };
    let lines = lines(of(0, 20).chain(of(1, 2)).chain(of(2, 20)));
    (plan, lines)
}

#[test]
fn episodes_to_run_again_are_spread_over_the_jobs() {
    let (plan, lines) = many();
    let journals = Journals::of_lines(&lines);
    let merged = Merged::new(&plan, &journals).unwrap();
    let chosen = |count, seed| rerun::choose(&merged, &plan, count, seed).unwrap();
    let counts = |chosen: &rerun::Chosen| chosen.values().map(BTreeMap::len).collect::<Vec<_>>();
    assert_eq!(
        (
            counts(&chosen(3, 0)),
            counts(&chosen(10, 0)),
            counts(&chosen(99, 0))
        ),
        (vec![1; 3], vec![4, 2, 4], vec![20, 2, 20])
    );
    assert_eq!(chosen(10, 0), chosen(10, 0));
    assert_ne!(chosen(10, 0), chosen(10, 1));
    let again = rerun::plan(&plan, &chosen(3, 0)).unwrap();
    assert!(
        again.jobs.iter().all(|job| job.selected(20) == 1) && again.options.contains_key("only")
    );
    assert_eq!(again.jobs[2].index, JobIndex(2));
}

#[test]
fn what_comes_out_otherwise_is_told_to_the_last_bit() {
    let (plan, mut lines) = many();
    let journals = Journals::of_lines(&lines);
    let merged = Merged::new(&plan, &journals).unwrap();
    let chosen = rerun::choose(&merged, &plan, 99, 0).unwrap();
    assert!(
        rerun::differences(&chosen, &merged, &plan)
            .unwrap()
            .is_empty()
    );
    lines.pop();
    for (line, change) in lines.iter_mut().zip([1, 2]) {
        let Line::Episode(episode) = line else {
            unreachable!("all are episodes")
        };
        (episode.return_, episode.length) = if change == 1 {
            (1.0 + f64::EPSILON, 10)
        } else {
            (1.0, 11)
        };
    }
    let journals = Journals::of_lines(&lines);
    let again = Merged::new(&plan, &journals).unwrap();
    assert_eq!(
        rerun::differences(&chosen, &again, &plan).unwrap(),
        [
            "a: episode 0 had a different result: return 1.0, then 1.0000000000000002",
            "a: episode 1 had a different result: length 10, then 11",
            "c: episode 19 did not finish when it was run again"
        ]
    );
}
