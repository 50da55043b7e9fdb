use jobs::eval_args::EvalArgs;
use jobs::file::JobFile;
use jobs::inputs::InputFile;
use jobs::journal::{JobStart, Line, PolicyFiles, RankStart};
use jobs::layout::RunFolder;
use jobs::plan::{RunPlan, fingerprint};
use jobs::samples;
use serde_json::{Value, json};

use super::*;
use crate::{Journals, Merged};

/// Returns a certificate of two jobs of 40 and 4 episodes.
fn certificate() -> Certificate {
    of(&json!({"jobs": [entry("a", 40), entry("b", 4)]}), |_| true)
}

pub(crate) fn entry(name: &str, episodes: u64) -> Value {
    json!({"name": name, "arena_env_args": {"environment": "reach"}, "policy_type": "torchscript",
           "policy_config_dict": {"model_path": "x.pt"}, "num_episodes": episodes})
}

/// Returns the certificate of a run of these jobs, in which the episodes `has` have ended.
pub(crate) fn of(file: &Value, has: impl Fn(u64) -> bool) -> Certificate {
    try_of(file, has).unwrap()
}

fn try_of(file: &Value, has: impl Fn(u64) -> bool) -> Result<Certificate, Refused> {
    let file = JobFile::new("jobs.json".as_ref(), "5e".repeat(32), file).unwrap();
    let args = EvalArgs::parse_words(&["--jobs".into(), "jobs.json".into()]).unwrap();
    let plan = RunPlan::new(&args, file, 1, "2026-11-21T10:00:00.000Z".to_owned());
    let mut lines = vec![
        Line::Rank(Box::new(RankStart {
            host: "node1".to_owned(),
            cpu: Some("a CPU".to_owned()),
            versions: [("rrun".to_owned(), "0.1.0 (abc)".to_owned())].into(),
            ..RankStart::default()
        })),
        Line::PolicyFiles(PolicyFiles {
            policy_type: "torchscript".to_owned(),
            path: "x.pt".to_owned(),
            sha256: "7f".repeat(32),
            bytes: 3,
            at: String::new(),
        }),
    ];
    for (index, job) in plan.jobs.iter().enumerate() {
        let jobs::job::Length::Episodes(count) = job.length else {
            continue;
        };
        for number in (0..count).filter(|number| has(*number)) {
            let mut episode = samples::episode(index, &job.name, number);
            episode.seed = jobs::seed::episode(plan.seed, job, number);
            lines.push(Line::from(episode));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    std::fs::create_dir(folder.journals()).unwrap();
    std::fs::write(folder.plan(), serde_json::to_vec(&plan).unwrap()).unwrap();
    let text: Vec<_> = lines
        .iter()
        .map(|line| serde_json::to_string(line).unwrap() + "\n")
        .collect();
    std::fs::write(folder.journal(0), text.concat()).unwrap();
    let plan = RunPlan::read(&folder).unwrap();
    let journals = Journals::of(&folder).unwrap();
    make(&folder, &Merged::new(&plan, &journals).unwrap(), Vec::new())
}

/// Returns how a run with this file and these versions differs from a certificate of another one.
fn differences(sum: &str, versions: &Value) -> (Vec<String>, Vec<String>) {
    let mut certificate = certificate();
    let contents = &mut certificate.contents;
    for (path, sha256) in [("sim.py", "11"), ("there.py", "22")] {
        contents.inputs.push(CertifiedInput {
            path: path.to_owned(),
            sha256: sha256.to_owned(),
            bytes: 1,
        });
    }
    let had = json!({"python": "3.12.3", "numpy": "2.1.0", "torch": "2.11"});
    contents.jobs[0]
        .settings
        .insert("env_versions".to_owned(), had);
    let mut plan = plan(&certificate).unwrap();
    let file = |sum: &str| InputFile {
        bytes: 1,
        modified: 0,
        sha256: Some(sum.to_owned()),
    };
    plan.inputs = [
        ("sim.py".to_owned(), file(sum)),
        ("here.py".to_owned(), file("22")),
    ]
    .into();
    let start = Line::JobStart(JobStart {
        settings: [("env_versions".to_owned(), versions.clone())].into(),
        ..JobStart::default()
    });
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    std::fs::create_dir(folder.journals()).unwrap();
    std::fs::write(
        folder.journal(0),
        serde_json::to_string(&start).unwrap() + "\n",
    )
    .unwrap();
    let journals = Journals::of(&folder).unwrap();
    let merged = Merged::new(&plan, &journals).unwrap();
    let found = crate::certificate::differences(&certificate.contents, &merged, |_| None);
    (found.wrong, found.notes)
}

#[test]
fn other_files_and_packages_than_those_of_a_certificate_are_found() {
    let same = json!({"python": "3.12.3", "numpy": "2.1.0", "scipy": "1.0"});
    assert_eq!(differences("11", &same), (Vec::new(), Vec::new()));
    let (wrong, notes) = differences("33", &json!({"python": "3.12.4", "numpy": "2.2.0"}));
    assert_eq!(
        wrong,
        [
            "`sim.py` has the SHA-256 33 here, and 11 in the certificate",
            "a: env_versions.numpy is 2.2.0 here, and 2.1.0 in the certificate"
        ]
    );
    assert_eq!(
        notes,
        ["a: env_versions.python is 3.12.4 here, and 3.12.3 in the certificate"]
    );
}

fn text(certificate: &Certificate) -> Vec<u8> {
    serde_json::to_vec_pretty(certificate).unwrap()
}

/// Returns the certificate with a changed value and a hash of the changed contents, as a liar
/// would write it.
fn forged(pointer: &str, value: Value) -> Certificate {
    let mut forged = serde_json::to_value(certificate()).unwrap();
    *forged.pointer_mut(pointer).expect("the field is there") = value;
    forged["sha256"] = canonical::sha256(&forged["contents"]).unwrap().into();
    Certificate::parse(forged.to_string().as_bytes()).unwrap()
}

#[test]
fn a_certificate_is_the_same_after_it_was_written_and_has_nothing_wrong() {
    let made = certificate();
    let read = Certificate::parse(&text(&made)).unwrap();
    assert_eq!(read, made);
    assert_eq!(read.check(), [""; 0]);
    let contents = &read.contents;
    assert_eq!((contents.complete, contents.rates.episodes), (true, 44));
    assert_eq!(contents.jobs[0].planned.to_string(), "0-39");
    assert_eq!(contents.machines[0].cpu.as_deref(), Some("a CPU"));
    assert_eq!(contents.policies[0].sha256, "7f".repeat(32));
    assert_eq!(contents.versions["rrun"], ["0.1.0 (abc)"]);
    assert_eq!(contents.run.journals[0].name, "journal/journal_rank0.jsonl");
}

#[test]
fn another_order_of_members_and_other_blanks_are_the_same_certificate() {
    let value: Value = serde_json::from_slice(&text(&certificate())).unwrap();
    let mut members: Vec<_> = value.as_object().unwrap().clone().into_iter().collect();
    members.reverse();
    let turned = Value::Object(members.into_iter().collect());
    assert_eq!(
        Certificate::parse(turned.to_string().as_bytes()).unwrap(),
        certificate()
    );
}

#[test]
fn a_plan_from_a_certificate_has_the_jobs_of_the_run() {
    let certificate = certificate();
    let plan = plan(&certificate).unwrap();
    let file = JobFile::new("x".as_ref(), String::new(), &jobs_file(&certificate)).unwrap();
    assert_eq!(plan.jobs, file.jobs);
    assert_eq!(
        (plan.seed, only(&certificate)),
        (certificate.contents.run.seed, None)
    );
    assert_eq!(
        fingerprint(&plan.jobs[0], plan.seed),
        fingerprint(&file.jobs[0], 42)
    );
}

#[test]
fn changed_contents_are_no_certificate() {
    let mut value = serde_json::to_value(certificate()).unwrap();
    value["contents"]["jobs"][0]["episodes"][3]["success"] = json!(true);
    value["contents"]["jobs"][0]["episodes"][3]["seed"] = json!(1);
    let told = Certificate::parse(value.to_string().as_bytes()).unwrap_err();
    assert!(
        told.to_string().starts_with("its contents were changed: "),
        "{told}"
    );
}

#[test]
fn another_kind_of_file_is_told() {
    let told = |text: &str| Certificate::parse(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        told(r#"{"schema": "rrun/report/1"}"#),
        "its schema is `rrun/report/1`, expected `rrun/certificate/1`"
    );
    assert!(told("[]").starts_with("its schema is ``"));
    assert!(told("x").starts_with("it is not JSON: "));
    assert!(told(r#"{"a": 1, "a": 2}"#).contains("`a` occurs twice"));
    assert!(
        told(r#"{"schema": "rrun/certificate/1", "sha256": "", "contents": {}}"#)
            .starts_with("a field is missing or wrong: missing field")
    );
}

#[test]
fn everything_that_follows_from_something_else_is_computed_again() {
    let jobs = "/contents/jobs/0";
    for (pointer, value, wanted) in [
        (
            "/episodes/3/seed",
            json!(1),
            "a: episode 3 is not run from the seed",
        ),
        (
            "/episodes/3/episode",
            json!(2),
            "a: its episodes are not in ascending order",
        ),
        (
            "/episodes/39/episode",
            json!(40),
            "a: episode 40 is not planned",
        ),
        (
            "/episodes/3/success",
            json!(null),
            "a: episode 3 is solved in one field and not",
        ),
        ("/rates/successes", json!(39), "a: its rates do not follow"),
        (
            "/rates/wilson95",
            json!([0.9, 1.0]),
            "a: its rates do not follow",
        ),
        (
            "/planned",
            json!("0-50"),
            "a: episodes 0-50 were planned of a job that has 40",
        ),
        (
            "/planned",
            json!("0-4294967295"),
            "a: episodes 0-4294967295 were planned",
        ),
        ("/planned", json!("0-38"), "a: episode 39 is not planned"),
        (
            "/entry/num_episodes",
            json!(41),
            "a: not every episode was planned, run and scored",
        ),
        ("/entry/num_episodes", json!("x"), "its jobs are refused: "),
        ("/entry/name", json!("../x"), "its jobs are refused: "),
        (
            "/entry/name",
            json!("c"),
            "c: episodes 0-39 are not run from the seed",
        ),
    ] {
        let told = forged(&format!("{jobs}{pointer}"), value.clone()).check();
        assert!(
            told.iter().any(|line| line.contains(wanted)),
            "{pointer} {value}: {told:?}"
        );
    }
    let told = forged("/contents/findings", json!(["x"])).check();
    assert_eq!(told, ["it says that it is complete, and has findings"]);
    let told = forged("/contents/rates/episodes", json!(45)).check();
    assert_eq!(
        told,
        ["the rates of all jobs do not follow from the episodes"]
    );
}

#[test]
fn an_episode_that_is_left_out_is_found() {
    let mut value = serde_json::to_value(certificate()).unwrap();
    let episodes = value.pointer_mut("/contents/jobs/1/episodes").unwrap();
    episodes.as_array_mut().unwrap().remove(2);
    value["sha256"] = canonical::sha256(&value["contents"]).unwrap().into();
    let told = Certificate::parse(value.to_string().as_bytes())
        .unwrap()
        .check();
    assert!(
        told.iter()
            .any(|line| line.starts_with("b: not every episode")),
        "{told:?}"
    );
    assert!(told.contains(&"b: its rates do not follow from its episodes".to_owned()));
}

#[test]
fn a_job_whose_episodes_are_not_counted_is_refused() {
    let mut steps = entry("a", 1);
    steps["num_episodes"] = json!(null);
    steps["num_steps"] = json!(50);
    let told = try_of(&json!({"jobs": [steps]}), |_| true)
        .unwrap_err()
        .to_string();
    assert!(told.starts_with("job `a` has no num_episodes"), "{told}");
    let mut large = entry("a", 1);
    large["seed"] = json!(u64::MAX);
    let told = try_of(&json!({"jobs": [large]}), |_| true)
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("`/jobs/0/entry/seed` is 18446744073709551615"),
        "{told}"
    );
    let mut done = entry("a", 1);
    done["status"] = json!("completed");
    let told = try_of(&json!({"jobs": [done]}), |_| true)
        .unwrap_err()
        .to_string();
    assert_eq!(told, "no job of the plan was to run");
}

#[test]
fn a_job_that_would_not_be_run_again_is_found() {
    let mut certificate = certificate();
    let entry = &mut certificate.contents.jobs[0].entry;
    entry.insert("status".to_owned(), json!("completed"));
    let told = certificate.check();
    let wanted = "its status is not `pending`";
    assert!(told.iter().any(|text| text.contains(wanted)), "{told:?}");
}

#[test]
fn a_certificate_of_a_suite_says_so() {
    let mut job = certificate().contents.jobs.remove(0);
    assert_eq!(job.suite(), None);
    job.entry.insert(
        "suite".to_owned(),
        json!({"name": "libero_10", "protocol": "1"}),
    );
    assert_eq!(job.suite(), Some(("libero_10".to_owned(), "1".to_owned())));
    job.entry.insert("suite".to_owned(), json!(7));
    assert_eq!(job.suite(), None);
}

#[test]
fn the_sample_follows_from_the_seed_alone() {
    let contents = certificate().contents;
    let names = |count, seed: &str| -> Vec<String> {
        let chosen = sample::choose(&contents, count, seed).into_iter();
        chosen
            .map(|one| format!("{} {}", one.job, one.episode))
            .collect()
    };
    // sorted((sha256(f"x\n{job}\n{n}".encode()).digest(), job, n) …) in Python
    assert_eq!(names(3, "x"), SAMPLE_IN_PYTHON);
    assert_eq!(names(5, "x")[..3], names(3, "x"));
    assert_ne!(names(3, "x"), names(3, "y"));
    assert_eq!(names(99, "x").len(), 44);
}

const SAMPLE_IN_PYTHON: [&str; 3] = ["a 23", "a 2", "a 12"];

#[test]
fn a_sample_of_other_episodes_than_the_hash_chooses_is_found() {
    let mut certificate = certificate();
    let all = |count: usize, certificate: &Certificate| {
        let chosen = sample::choose(&certificate.contents, count, &certificate.sha256);
        let again = |one: sample::ChosenEpisode| RepeatedEpisode {
            job: one.job,
            episode: one.episode,
            again: None,
        };
        chosen.into_iter().map(again).collect::<Vec<_>>()
    };
    let episodes = all(4, &certificate);
    certificate.sample = Some(Sample {
        ranks: 1,
        environments: 1,
        machines: Vec::new(),
        episodes,
    });
    assert_eq!(certificate.check(), [""; 0]);
    let sample = certificate.sample.as_mut().unwrap();
    sample.episodes.swap(0, 1);
    assert_eq!(
        certificate.check(),
        ["its sample does not have the episodes that its hash chooses"]
    );
    certificate.sample.as_mut().unwrap().episodes.clear();
    assert_eq!(certificate.check(), ["its sample is empty"]);
    // An episode that has disagreed cannot be left out either.
    let mut short = all(4, &certificate);
    short.remove(1);
    certificate.sample.as_mut().unwrap().episodes = short;
    assert_eq!(certificate.check().len(), 1);
}

/// The claim of `docs/certificates.md`: a certificate with d changed episodes of n is found by k
/// with probability 1 − C(n−d, k) / C(n, k).
#[test]
fn changed_episodes_are_found_as_often_as_the_formula_says() {
    let contents = certificate().contents;
    for (changed, sampled) in [(1, 4), (1, 22), (3, 8), (44, 1)] {
        let rounds = 4000_u64;
        let is_changed =
            |one: &sample::ChosenEpisode| one.job == "a" && one.episode < changed || changed == 44;
        let found = (0..rounds)
            .filter(|round| {
                let seed = format!("round {round}");
                sample::choose(&contents, sampled, &seed)
                    .iter()
                    .any(is_changed)
            })
            .count() as u64;
        let wanted = sample::probability_of_finding(44, changed, sampled as u64);
        // Four standard deviations of a share of 4000.
        let apart = (found as f64 / rounds as f64 - wanted).abs();
        assert!(
            apart <= 4.0 * (wanted * (1.0 - wanted) / rounds as f64).sqrt() + 1e-12,
            "{changed} changed, {sampled} sampled: {found} of {rounds}, expected {wanted}"
        );
    }
}

#[test]
fn the_probability_of_finding_is_that_of_binomial_coefficients() {
    // 1 - math.comb(n-d, k) / math.comb(n, k) in Python
    for (n, d, k, wanted) in [
        (100, 1, 10, 0.1),
        (100, 10, 20, 0.904_883_727_569_211_5),
        (400, 8, 50, 0.659_856_303_623_691),
        (5, 5, 1, 1.0),
        (5, 0, 5, 0.0),
    ] {
        let found = sample::probability_of_finding(n, d, k);
        assert!((found - wanted).abs() < 1e-12, "{n} {d} {k}: {found}");
    }
}

/// The files were written in Python, with the package `rfc8785` 0.1.4 and `hashlib`, and with seeds
/// that were computed there.
#[test]
fn a_certificate_that_another_program_has_written_holds() {
    for text in [
        &include_bytes!("../../../../tests/hostile/corpus/certificate/three_episodes")[..],
        include_bytes!("../../../../tests/hostile/corpus/certificate/with_a_sample"),
    ] {
        let read = Certificate::parse(text).unwrap();
        assert_eq!(read.check(), [""; 0]);
    }
}
