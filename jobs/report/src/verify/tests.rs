use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use jobs::journal::{JobStart, Line};
use jobs::samples;

use crate::Journals;
use crate::tests::lines::{self, at};

fn plan() -> RunPlan {
    lines::plan([lines::job("a", 4)])
}

fn episode(number: u64) -> Episode {
    Episode {
        seed: seed::episode(42, &plan().jobs[0], number),
        return_: 1.0,
        ended: at(number),
        dataset: lines::demo("a/a.hdf5", &format!("demo_{number}")),
        video: lines::video("a/a.mp4", number * 10),
        ..samples::episode(0, "a", number)
    }
}

fn audit(lines: &[Line]) -> (Findings, JobAudit) {
    let (plan, journals) = (plan(), Journals::of_lines(lines));
    let merged = Merged::new(plan.clone(), journals).unwrap();
    (run(&merged), job(&merged, &plan.jobs[0]).unwrap())
}

fn lines(episodes: impl IntoIterator<Item = Episode>) -> Vec<Line> {
    episodes.into_iter().map(Line::from).collect()
}

#[test]
fn a_whole_run_has_no_findings_and_names_its_files() {
    let (run, job) = audit(&lines((0..4).map(episode)));
    let none = Findings::default();
    assert_eq!((&run, &job.findings), (&none, &none));
    assert_eq!((job.expected, job.episodes, job.errors), (Some(4), 4, 0));
    let last = job.datasets["a/a.hdf5"].last().unwrap();
    assert_eq!(last.name, "demo_3");
    let second = EpisodeFrames {
        episode: 1,
        first: 10,
        frames: 10,
    };
    assert_eq!(job.videos["a/a.mp4"][1], second);
}

/// Returns the findings of a run of four episodes with changes: `1/seed = 7`. A line of `again`
/// is about a second line of episode 0, one of `late` about episode 9, which is not planned.
fn found(given: &str) -> String {
    let mut all: BTreeMap<_, _> = (0..4)
        .map(|number| (number.to_string(), episode(number)))
        .collect();
    let others = [("again", 0), ("late", 9)];
    for (name, number) in others.into_iter().filter(|(name, _)| given.contains(name)) {
        all.insert(name.to_owned(), episode(number));
    }
    let changed = rig::cases::changed(&json!(all), given);
    let all: BTreeMap<String, Episode> = serde_json::from_value(changed).unwrap();
    let (run, job) = audit(&lines(all.into_values()));
    let mut said = Vec::new();
    for (kind, texts) in [
        ("unfinished", &job.unfinished),
        ("wrong", &job.findings.wrong),
        ("note", &job.findings.notes),
        ("wrong in the run", &run.wrong),
        ("note on the run", &run.notes),
    ] {
        said.extend(texts.iter().map(|text| format!("{kind}: {text}")));
    }
    said.join("\n")
}

#[test]
fn what_is_missing_broken_twice_unplanned_or_unrecorded_is_found() {
    rig::cases::check("src/verify/findings.txt", found);
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
        run(&Merged::new(plan.clone(), journals).unwrap())
    };
    let is_told = |findings: &[String], others: &[String]| {
        let is_damage = |text: &String| text.contains("1 damaged line (1)");
        assert!(findings.iter().any(is_damage), "{findings:?}");
        assert!(others.is_empty(), "{others:?}");
    };
    let missing = of(&whole[..3]);
    is_told(&missing.wrong, &missing.notes);
    let again = of(&whole);
    is_told(&again.notes, &again.wrong);
}

#[test]
fn a_dataset_contradicts_the_journal_in_what_it_holds() {
    let (_, job) = audit(&lines((0..4).map(episode)));
    let demo = &job.datasets["a/a.hdf5"][1];
    let held = HeldDemo {
        episode: Some(1.0),
        seed: Some(demo.outcome.seed as f64),
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
fn what_changed_between_starts_is_found() {
    let start = |dtype: &str, device: &str| {
        let settings = BTreeMap::from([
            ("dtype".to_owned(), json!(dtype)),
            ("device".to_owned(), json!(device)),
            // Each start has imported a package that the other one has not.
            (
                "env_versions".to_owned(),
                json!({"numpy": dtype, "torch": "2.11", device: "1.0"}),
            ),
        ]);
        Line::JobStart(JobStart {
            job: "a".to_owned(),
            settings,
            started: dtype.to_owned(),
            ..JobStart::default()
        })
    };
    let files = |sha256: &str| lines::policy_files("model", &sha256.repeat(8), sha256);
    let mut all = lines((0..4).map(episode));
    all.extend([start("bfloat16", "cuda:0"), start("float32", "cuda:1")]);
    all.extend([files("1a2b3c4d"), files("5e6f7a8b")]);
    let (run, job) = audit(&all);
    let wanted = [
        "a: dtype was \"bfloat16\", then \"float32\"",
        "a: env_versions.numpy was bfloat16, then float32",
    ];
    assert_eq!(job.findings.wrong, wanted);
    let told = "policy `model` was changed during the run: its SHA-256 was 1a2b3c4d1a2b, then 5e6f7a8b5e6f";
    assert_eq!(run.wrong, [told]);
}

#[test]
fn one_episode_is_and_several_are() {
    assert_eq!(episodes([3]), "episode 3 is");
    assert_eq!(episodes([2, 1, 0, 5, 7, 8]), "episodes 0-2, 5, 7-8 are");
}
