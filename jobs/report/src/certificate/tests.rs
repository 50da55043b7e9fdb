use jobs::episode::Episode;
use jobs::file::JobFile;
use jobs::inputs::InputFile;
use jobs::job::JobIndex;
use jobs::journal::{JobStart, Line, RankStart};
use jobs::layout::RunFolder;
use jobs::plan::{RunPlan, fingerprint};
use jobs::refusal::Refusal;
use jobs::samples;
use serde_json::{Value, json};

use super::*;
use crate::tests::lines;
use crate::{EpisodeId, Journals, Merged};

/// Returns a certificate of two jobs of 40 and 4 episodes.
fn certificate() -> Certificate {
    of(&json!({"jobs": [entry("a", 40), entry("b", 4)]}), |_| true)
}

pub(crate) fn entry(name: &str, episodes: u64) -> Value {
    samples::entry(
        json!({"name": name, "num_episodes": episodes, "policy_type": "torchscript",
                          "policy_config_dict": {"model_path": "x.pt"}}),
    )
}

/// Returns the certificate of a run of these jobs, in which the episodes `has` have ended.
pub(crate) fn of(file: &Value, has: impl Fn(u64) -> bool) -> Certificate {
    try_of(file, has).unwrap()
}

fn try_of(file: &Value, has: impl Fn(u64) -> bool) -> Result<Certificate, Refusal> {
    let file = JobFile::new("jobs.json".as_ref(), "5e".repeat(32), file).unwrap();
    let plan = RunPlan::new(&samples::eval_args(&[]), file, 1, lines::at(0));
    let mut lines = vec![
        Line::Rank(Box::new(RankStart {
            host: "node1".to_owned(),
            cpu: Some("a CPU".to_owned()),
            versions: [("rrun".to_owned(), "0.1.0 (abc)".to_owned())].into(),
            ..RankStart::default()
        })),
        lines::policy_files("x.pt", &"7f".repeat(32), ""),
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
    let text = lines.iter().map(|line| format!("{}\n", json!(line)));
    std::fs::write(folder.journal(0), text.collect::<String>()).unwrap();
    make(
        &folder,
        &Merged::open(&folder).unwrap(),
        |_| true,
        Vec::new(),
    )
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
    let settings = &mut contents.jobs[0].settings;
    settings.insert("env_versions".to_owned(), had);
    let mut plan = plan(&certificate).unwrap();
    let file = |sum: &str| InputFile {
        bytes: 1,
        modified: 0,
        sha256: Some(sum.to_owned()),
    };
    let inputs = [("sim.py", sum), ("here.py", "22")];
    plan.inputs = inputs
        .map(|(path, sum)| (path.to_owned(), file(sum)))
        .into();
    let start = Line::JobStart(JobStart {
        job: plan.jobs[0].name.clone(),
        settings: [("env_versions".to_owned(), versions.clone())].into(),
        ..JobStart::default()
    });
    let files = lines::policy_files("x.pt", &"7f".repeat(32), "");
    let merged = Merged::new(plan, Journals::of_lines(&[start, files])).unwrap();
    let found = crate::certificate::differences(&certificate.contents, &merged, |_| None);
    (found.wrong, found.notes)
}

#[test]
fn other_files_and_packages_than_those_of_a_certificate_are_found() {
    let same = json!({"python": "3.12.3", "numpy": "2.1.0", "scipy": "1.0"});
    assert_eq!(differences("11", &same), (Vec::new(), Vec::new()));
    let (wrong, notes) = differences("33", &json!({"python": "3.12.4", "numpy": "2.2.0"}));
    let sum = "`sim.py` has the SHA-256 33 here, and had 11";
    let version = "a: env_versions.numpy is 2.2.0 here, and was 2.1.0";
    assert_eq!(wrong, [sum, version]);
    let wanted = ["a: env_versions.python is 3.12.4 here, and was 3.12.3"];
    assert_eq!(notes, wanted);
}

#[test]
fn files_of_a_policy_are_expected_of_jobs_that_were_run_again_and_of_no_others() {
    let certificate = certificate();
    let differences = |policy_type: &str, files: &[Line]| {
        let mut again = plan(&certificate).unwrap();
        for job in &mut again.jobs {
            policy_type.clone_into(&mut job.policy_type);
        }
        let again = Merged::new(again, Journals::of_lines(files)).unwrap();
        crate::certificate::differences(&certificate.contents, &again, |_| None).wrong
    };
    let unhashed = "the files of the policies could not be hashed here";
    assert_eq!(differences("torchscript", &[]), [unhashed]);
    assert_eq!(differences("scripted", &[]), [""; 0]);
    let other = lines::policy_files("x.pt", "11", "");
    let told = "policy `x.pt` has the SHA-256 11 here, which no policy had";
    assert_eq!(differences("torchscript", &[other]), [told]);
}

fn text(certificate: &Certificate) -> Vec<u8> {
    serde_json::to_vec_pretty(certificate).unwrap()
}

/// Reads the certificate with changes of its contents and their hash, as a liar would write it.
fn forged(changes: &str) -> Certificate {
    let mut forged = serde_json::to_value(certificate()).unwrap();
    forged["contents"] = rig::cases::changed(&forged["contents"], changes);
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
    let read = Certificate::parse(turned.to_string().as_bytes()).unwrap();
    assert_eq!(read, certificate());
}

#[test]
fn a_plan_from_a_certificate_has_the_jobs_of_the_run() {
    let certificate = certificate();
    let plan = plan(&certificate).unwrap();
    let file = JobFile::new("x".as_ref(), String::new(), &jobs_file(&certificate)).unwrap();
    assert_eq!(plan.jobs, file.jobs);
    assert_eq!(plan.seed, certificate.contents.run.seed);
    assert_eq!(only(&certificate), None);
    let own = fingerprint(&file.jobs[0], 42);
    assert_eq!(fingerprint(&plan.jobs[0], plan.seed), own);
}

#[test]
fn changed_contents_are_no_certificate() {
    let mut value = serde_json::to_value(certificate()).unwrap();
    value["contents"]["jobs"][0]["episodes"][3]["success"] = json!(true);
    value["contents"]["jobs"][0]["episodes"][3]["seed"] = json!(1);
    let told = Certificate::parse(value.to_string().as_bytes()).unwrap_err();
    let wanted = "its contents were changed: ";
    assert!(told.to_string().starts_with(wanted), "{told}");
}

#[test]
fn another_kind_of_file_is_told() {
    let told = |text: &str| Certificate::parse(text.as_bytes()).unwrap_err().to_string();
    let wanted = "its schema is `rrun/report/1`, expected `rrun/certificate/1`";
    assert_eq!(told(r#"{"schema": "rrun/report/1"}"#), wanted);
    assert!(told("[]").starts_with("its schema is ``"));
    assert!(told("x").starts_with("it is not JSON: "));
    assert!(told(r#"{"a": 1, "a": 2}"#).contains("a name occurs twice"));
    let empty = told(r#"{"schema": "rrun/certificate/1", "sha256": "", "contents": {}}"#);
    assert!(empty.starts_with("a field is missing or wrong: missing field"));
}

#[test]
fn everything_that_follows_from_something_else_is_computed_again() {
    rig::cases::check("src/certificate/forged.txt", |changes| {
        forged(changes).check().join("\n")
    });
}

#[test]
fn a_job_whose_episodes_are_not_counted_is_refused() {
    let refusal = |changes: &str| {
        let entry = rig::cases::changed(&entry("a", 1), changes);
        let refused = try_of(&json!({"jobs": [entry]}), |_| true).unwrap_err();
        refused.to_string()
    };
    let steps = refusal("- num_episodes\nnum_steps = 50");
    assert!(steps.starts_with("job `a` has no num_episodes"), "{steps}");
    let large = refusal("seed = 18446744073709551615");
    let told = "`/jobs/0/entry/seed` is 18446744073709551615";
    assert!(large.contains(told), "{large}");
    let done = refusal("status = \"completed\"");
    assert_eq!(done, "no job of the plan was to run");
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

#[test]
fn the_plan_of_a_sample_has_its_episodes_and_no_others() {
    let certificate = certificate();
    let whole = plan(&certificate).unwrap();
    let of = |count: usize| {
        let chosen = sample::choose(&certificate.contents, count, "x");
        sample::plan(&whole, &chosen).unwrap()
    };
    let again = of(40);
    let planned: u64 = again.jobs.iter().map(|job| job.selected(40)).sum();
    assert_eq!(planned, 40);
    assert!(again.options.contains_key("only"));
    // All of them are of the first job.
    assert_eq!(of(3).jobs.len(), 1);
    assert_eq!(of(3).jobs[0].index, JobIndex(0));
}

#[test]
fn what_comes_out_otherwise_is_told_to_the_last_bit() {
    let certificate = certificate();
    let chosen = sample::choose(&certificate.contents, 3, "x");
    let differences = |change: fn(&mut Episode)| -> Vec<String> {
        let plan = plan(&certificate).unwrap();
        let lines: Vec<_> = (0..40)
            .filter(|number| *number != 2)
            .map(|number| {
                let mut episode = samples::episode(0, "a", number);
                episode.seed = jobs::seed::episode(plan.seed, &plan.jobs[0], number);
                change(&mut episode);
                Line::from(episode)
            })
            .collect();
        let again = Merged::new(plan, Journals::of_lines(&lines)).unwrap();
        let again = sample::repeated(&chosen, &again).unwrap();
        let told = again.iter().filter_map(|one| certificate.difference(one));
        told.collect()
    };
    let unfinished = "a: episode 2 did not finish when it was run again";
    assert_eq!(differences(|_| {}), [unfinished]);
    let of_return = differences(|one| one.return_ += 2.0 * f64::EPSILON);
    assert_eq!(
        of_return,
        [
            "a: episode 23 had a different result: return 2.0, then 2.0000000000000004",
            unfinished,
            "a: episode 12 had a different result: return 2.0, then 2.0000000000000004"
        ]
    );
    let of_length = differences(|one| one.length += 1);
    assert!(
        of_length[0].ends_with("result: length 10, then 11"),
        "{of_length:?}"
    );
}

const SAMPLE_IN_PYTHON: [&str; 3] = ["a 23", "a 2", "a 12"];

#[test]
fn a_sample_of_other_episodes_than_the_hash_chooses_is_found() {
    let mut certificate = certificate();
    let all = |count: usize, certificate: &Certificate| {
        let chosen = sample::choose(&certificate.contents, count, &certificate.sha256);
        let again = |id: EpisodeId| RepeatedEpisode { id, again: None };
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
    let others = "its sample does not have the episodes that its hash chooses";
    assert_eq!(certificate.check(), [others]);
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
        let is_changed = |one: &EpisodeId| one.job == "a" && one.episode < changed || changed == 44;
        let is_found = |round: &u64| {
            let chosen = sample::choose(&contents, sampled, &format!("round {round}"));
            chosen.iter().any(is_changed)
        };
        let found = (0..rounds).filter(is_found).count() as u64;
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
