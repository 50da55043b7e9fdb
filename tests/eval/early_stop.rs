//! Tests of runs that end when a sequential test has decided (`--stop-when`).

use std::path::{Path, PathBuf};
use std::process::Command;

use jobs::journal::{Decision, Verdict};
use jobs::plan::RunPlan;
use report::certificate::{self, canonical};
use report::{Journals, Merged};
use serde_json::{Value, json};

use crate::eval::command::{Eval, binaries, job};
use crate::eval::resume::kill_all;

/// Returns `reach` and `push` with this policy.
fn tasks(policy: &str, episodes: u64) -> [Value; 2] {
    ["reach", "push"].map(|name| {
        let mut job = job(name, episodes, 2);
        job["policy_type"] = json!(policy);
        job
    })
}

/// Runs the scripted expert to its end, as a reference.
fn reference(episodes: u64) -> Eval {
    let eval = Eval::new(&tasks("scripted", episodes))
        .nproc(2)
        .words(&["--no-dataset"]);
    eval.run().succeeds();
    eval
}

/// Returns an evaluation on two ranks that is compared with a reference.
fn against(reference: &Eval, jobs: &[Value], words: &[&str]) -> Eval {
    let path = reference.folder().root().display().to_string();
    Eval::new(jobs)
        .nproc(2)
        .words(&["--no-dataset", "--stop-when", "decided", "--against", &path])
        .words(words)
}

fn decision(eval: &Eval) -> Decision {
    eval.report().decision.expect("there is a decision")
}

/// Returns the decision without the time and the launch that made it.
fn result(eval: &Eval) -> Decision {
    Decision {
        at: String::new(),
        launch: None,
        ..decision(eval)
    }
}

#[test]
fn a_policy_that_loses_ends_its_run_after_few_rounds() {
    let expert = reference(120);
    let mut results = Vec::new();
    for words in [&[][..], &["--assign", "dynamic"], &["--shard", "episodes"]] {
        let eval = against(&expert, &tasks("random_action", 120), words);
        eval.run()
            .fails_with(1)
            .stdout_has("regression after ")
            .stderr_has("regression after ");
        let report = eval.report();
        assert_eq!((report.partial, report.missing_count), (false, 0));
        assert_eq!(report.run.stopped, None);
        assert!(report.overall.episodes < 200, "{}", report.overall.episodes);
        assert_eq!(report.overall.expected, Some(240));
        results.push(result(&eval));
    }
    assert_eq!(results[0].verdict, Verdict::Regression);
    assert!(results[0].rounds < 15, "{:?}", results[0]);
    assert!(results[0].only_a >= results[0].rounds, "{:?}", results[0]);
    assert_eq!(results[0], results[1], "the rule does not matter");
    assert_eq!(results[0], results[2], "the rule does not matter");
}

#[test]
fn the_same_policy_passes_before_its_last_episode() {
    let expert = reference(240);
    let eval = against(&expert, &tasks("scripted", 240), &["--assign", "dynamic"]);
    eval.run().succeeds().stdout_has("passed after ");
    let decision = decision(&eval);
    assert_eq!((decision.verdict, decision.only_a), (Verdict::Passed, 0));
    assert!((50..90).contains(&decision.rounds), "{decision:?}");
    let found = eval.report().overall.episodes;
    assert!((2 * decision.rounds..480).contains(&found), "{found}");

    let verify = Command::new(binaries().join("rrun"))
        .arg("verify")
        .arg(eval.folder().root())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&verify.stdout).into_owned();
    assert!(verify.status.success(), "{text}");
    assert!(text.contains("note: passed after "), "{text}");
    assert!(!text.contains("missing"), "{text}");

    let certificate = std::fs::read_to_string(certify(&eval)).unwrap();
    assert!(certificate.contains("\"complete\":false"), "{certificate}");
    assert!(certificate.contains("because the run was stopped early"));

    let path = expert.folder().root().display().to_string();
    let again = Eval::new(&tasks("scripted", 240))
        .nproc(2)
        .words(&["--no-dataset", "--stop-when", "reproduced"])
        .words(&["--against", &path]);
    again.run().succeeds().stdout_has("same after ");
}

#[test]
fn a_run_that_was_killed_comes_to_the_same_decision() {
    let expert = reference(40);
    let whole = against(&expert, &tasks("random_action", 40), &[]);
    whole.run().fails_with(1);

    for assign in ["modulo", "dynamic"] {
        let words = ["--assign", assign];
        let killed = against(&expert, &tasks("random_action", 40), &words);
        let running = killed.start();
        killed.wait_for_episodes(4);
        kill_all(running);
        let before = killed.journaled();
        let resumed = killed.resumed();
        resumed.run().fails_with(1).stdout_has("regression after ");
        assert_eq!(result(&resumed), result(&whole));
        assert!(resumed.journaled() > before);
    }
}

#[test]
fn a_decided_run_is_not_continued_unless_that_is_asked_for() {
    let expert = reference(100);
    let eval = against(&expert, &tasks("random_action", 100), &[]);
    eval.run().fails_with(1);
    let (decided, found) = (result(&eval), eval.journaled());
    assert!(found < 200, "{found}");

    let resumed = eval.resumed();
    resumed.run().fails_with(1);
    assert_eq!((result(&resumed), resumed.journaled()), (decided, found));

    let to_the_end = resumed.words(&["--stop-when", "end"]);
    to_the_end.run().succeeds();
    let report = to_the_end.report();
    assert_eq!((report.overall.episodes, report.decision), (200, None));
}

#[test]
fn too_few_episodes_are_undecided() {
    let expert = reference(4);
    let eval = against(&expert, &tasks("scripted", 6), &[]);
    eval.run()
        .fails_with(3)
        .stderr_has("the test can compare 4 episodes of 6 in each job")
        .stdout_has("undecided after 4 rounds, 8 pairs");
    let report = eval.report();
    assert_eq!((report.partial, report.overall.episodes), (false, 12));
}

#[test]
fn a_reference_of_other_jobs_or_seeds_is_refused_before_anything_starts() {
    let expert = reference(2);
    let refused = |jobs: &[Value], words: &[&str], text: &str| {
        let eval = against(&expert, jobs, words);
        eval.run().fails_with(2).stderr_has(text);
        assert!(!eval.folder().root().exists());
    };
    let jobs = tasks("scripted", 2);
    refused(&jobs, &["--seed", "7"], "job `reach` has other seeds in `");
    let other = [job("pick_and_place", 2, 1)];
    refused(&other, &[], "has no job `pick_and_place`");
    let nowhere = PathBuf::from("/nowhere/base");
    let eval = Eval::new(&jobs).words(&["--stop-when", "decided", "--against"]);
    let eval = eval.words(&[nowhere.to_str().unwrap()]);
    eval.run()
        .fails_with(2)
        .stderr_has("--against: `/nowhere/base` is neither a run folder");
}

/// Writes the certificate of a run beside its folder.
fn certify(eval: &Eval) -> PathBuf {
    let folder = eval.folder();
    let plan = RunPlan::read(&folder).unwrap();
    let journals = Journals::of(&folder).unwrap();
    let merged = Merged::new(&plan, &journals).unwrap();
    let certificate = certificate::make(&folder, &merged, Vec::new()).unwrap();
    let path = folder.root().with_file_name("mine.json");
    std::fs::write(&path, serde_json::to_vec(&certificate).unwrap()).unwrap();
    path
}

#[test]
fn a_published_rate_is_compared_without_a_reference_run() {
    for (claim, verdict, code) in [
        ("0/500", Verdict::Same, 0),
        ("450/500", Verdict::Different, 1),
    ] {
        let eval = Eval::new(&tasks("random_action", 120))
            .nproc(2)
            .words(&[
                "--no-dataset",
                "--stop-when",
                "reproduced",
                "--margin",
                "10",
            ])
            .words(&["--claim", claim]);
        let run = eval.run();
        let run = match code {
            0 => run.succeeds(),
            code => run.fails_with(code),
        };
        run.stdout_has("from the claimed ")
            .stderr_has("all of its episodes exclude a difference");
        let decision = decision(&eval);
        assert_eq!(decision.verdict, verdict);
        assert!(
            decision.rounds < 120 && decision.claim.is_some(),
            "{decision:?}"
        );
    }
}

/// Runs `rrun reproduce` in the folder of a certificate.
fn reproduce(certificate: &Path, words: &[&str]) -> (Option<i32>, String) {
    let folder = certificate.parent().unwrap();
    let done = Command::new(binaries().join("rrun"))
        .args(["reproduce", "mine.json", "--nproc-per-node", "2"])
        .args(words)
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder.join("state"))
        .env_remove("OMP_NUM_THREADS")
        .output()
        .unwrap();
    let text = [done.stdout, done.stderr].concat();
    (
        done.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_certificate_is_reproduced_until_it_is_decided() {
    let expert = reference(200);
    let certificate = certify(&expert);
    let no_files = ["--", "--no-video", "--no-dataset"];
    let (code, text) = reproduce(&certificate, &no_files);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("same after "), "{text}");
    assert!(text.contains("| Job   | Reference "), "{text}");
    let contents = std::fs::read(&certificate).unwrap();
    let hash = serde_json::from_slice::<Value>(&contents).unwrap()["sha256"].clone();
    let name = format!("reproduce_mine_{}", &hash.as_str().unwrap()[..8]);
    let folder = certificate.with_file_name("outputs").join(name);
    let episodes = std::fs::read_to_string(folder.join("episodes.jsonl")).unwrap();
    assert!(episodes.lines().count() < 400, "{text}");
}

/// The certificate of a policy that is a file of another machine.
#[test]
fn a_certificate_of_other_paths_and_programs_needs_them_named_and_trusted() {
    let expert = reference(2);
    let path = certify(&expert);
    let mut certificate: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let contents = &mut certificate["contents"];
    contents["jobs"][0]["entry"]["arena_env_args"] =
        json!({"environment": "/there/envs.py:make", "num_envs": 1});
    certificate["sha256"] = canonical::sha256(&certificate["contents"]).unwrap().into();
    std::fs::write(&path, certificate.to_string()).unwrap();

    let (code, text) = reproduce(&path, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("the environment `/there/envs.py:make`")
            && text.contains("use --trust-certificate"),
        "{text}"
    );
    let (code, text) = reproduce(&path, &["--claim", "1/2"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("has its own results; --claim is"), "{text}");
    let (code, text) = reproduce(&path, &["--path", "/nowhere=/here"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--path: `/nowhere` is in no job"), "{text}");
    let (_, text) = reproduce(&path, &["--path", "/there=/here"]);
    assert!(text.contains("`/here/envs.py:make`"), "{text}");
    let (code, text) = reproduce(&path, &["--checkpoint", "/here"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("names 0 paths of policies"), "{text}");

    certificate["contents"]["rates"]["successes"] = json!(1);
    std::fs::write(&path, certificate.to_string()).unwrap();
    let (code, text) = reproduce(&path, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("its contents were changed"), "{text}");
}
