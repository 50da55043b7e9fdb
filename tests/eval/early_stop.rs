//! Tests of runs that end when a sequential test has decided (`--stop-when`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use jobs::journal::{Decision, Verdict};
use report::Merged;
use report::certificate::{self, canonical};
use serde_json::{Value, json};

use crate::eval::command::{Eval, job};
use crate::eval::given::{Gate, merged, named, rrun, told, toy};
use crate::eval::resume::kill_all;

/// Number of episodes of each job of the reference.
const EPISODES: u64 = 240;

/// Returns `reach` and `push` with this policy.
fn tasks(policy: &str, episodes: u64) -> [Value; 2] {
    ["reach", "push"].map(|name| {
        let policy = json!({"policy_type": policy});
        merged(job(name, episodes, 2), policy)
    })
}

/// Returns a run of the scripted expert.
fn expert() -> &'static Eval {
    static EXPERT: OnceLock<Eval> = OnceLock::new();
    EXPERT.get_or_init(|| {
        let eval = Eval::new(&tasks("scripted", EPISODES)).nproc(2);
        eval.words(&["--export-mode=none"]).finished()
    })
}

/// Returns an evaluation on two ranks that is compared with a reference.
fn against(reference: &Eval, jobs: &[Value], words: &[&str]) -> Eval {
    let path = reference.folder().root().display().to_string();
    let until = match words.contains(&"--stop-when") {
        true => &[][..],
        false => &["--stop-when", "decided"],
    };
    let eval = Eval::new(jobs).nproc(2).words(words).words(until);
    eval.words(&["--export-mode=none", "--against", &path])
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
fn a_policy_that_loses_ends_its_run_after_few_rounds_by_any_rule_and_stays_decided() {
    let mut results = Vec::new();
    let mut last = None;
    for words in [&["--assign", "dynamic"][..], &["--shard", "episodes"]] {
        let eval = against(expert(), &tasks("random_action", 100), words);
        eval.run()
            .fails_with(1)
            .stdout_has("regression after ")
            .stderr_has("regression after ");
        let report = eval.report();
        assert_eq!((report.partial, report.missing_count), (false, 0));
        assert_eq!(report.run.stopped, None);
        assert!(report.overall.episodes < 200, "{}", report.overall.episodes);
        assert_eq!(report.overall.expected, Some(200));
        results.push(result(&eval));
        last = Some(eval);
    }
    assert_eq!(results[0].verdict, Verdict::Regression);
    assert!(results[0].rounds < 15, "{:?}", results[0]);
    assert!(results[0].only_a >= results[0].rounds, "{:?}", results[0]);
    assert_eq!(results[0], results[1], "the rule does not matter");

    let resumed = last.unwrap().resumed();
    let found = resumed.journaled();
    resumed.run().fails_with(1);
    assert_eq!(
        (&result(&resumed), resumed.journaled()),
        (&results[1], found)
    );
    let to_the_end = resumed.words(&["--stop-when", "end"]).finished();
    let report = to_the_end.report();
    assert_eq!((report.overall.episodes, report.decision), (200, None));
}

#[test]
fn the_same_policy_passes_before_its_last_episode() {
    let eval = against(
        expert(),
        &tasks("scripted", EPISODES),
        &["--assign", "dynamic"],
    );
    eval.run().succeeds().stdout_has("passed after ");
    let decision = decision(&eval);
    assert_eq!((decision.verdict, decision.only_a), (Verdict::Passed, 0));
    assert!((50..90).contains(&decision.rounds), "{decision:?}");
    let found = eval.report().overall.episodes;
    assert!(
        (2 * decision.rounds..2 * EPISODES).contains(&found),
        "{found}"
    );

    let text = rrun(&["verify", &eval.folder().root().to_string_lossy()]);
    assert!(text.contains("note: passed after "), "{text}");
    assert!(!text.contains("missing"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let certificate = std::fs::read_to_string(certify(&eval, folder.path())).unwrap();
    assert!(certificate.contains("\"complete\":false"), "{certificate}");
    assert!(certificate.contains("because the run was stopped early"));

    let again = ["--stop-when", "reproduced"];
    let again = against(expert(), &tasks("scripted", EPISODES), &again);
    again.run().succeeds().stdout_has("same after ");
}

#[test]
fn a_run_that_was_killed_comes_to_the_same_decision() {
    let jobs = |gate: &Gate, policy: &str| {
        let [reach, push] = tasks(policy, 40);
        // Less than two rounds can be compared before it is open.
        let gated = named("gated", 40, toy(json!({"num_envs": 1})));
        [reach, push, gate.before(1..40, gated)]
    };
    let (open, closed) = (Gate::new(), Gate::new());
    open.open();
    let expert = Eval::new(&jobs(&open, "scripted")).nproc(2);
    let expert = expert.words(&["--export-mode=none"]).finished();
    let whole = against(&expert, &jobs(&open, "random_action"), &[]);
    whole.run().fails_with(1);

    let words = ["--assign", "dynamic"];
    let killed = against(&expert, &jobs(&closed, "random_action"), &words);
    let running = killed.start();
    closed.reached();
    kill_all(running);
    closed.open();
    let before = killed.journaled();
    let resumed = killed.resumed();
    resumed.run().fails_with(1).stdout_has("regression after ");
    assert_eq!(result(&resumed), result(&whole));
    assert!(resumed.journaled() > before);
}

#[test]
fn too_few_episodes_are_undecided() {
    let few = Eval::new(&tasks("scripted", 4)).nproc(2);
    let few = few.words(&["--export-mode=none"]).finished();
    let eval = against(&few, &tasks("scripted", 6), &[]);
    eval.run()
        .fails_with(3)
        .stderr_has("the test can compare 4 episodes of 6 in each job")
        .stdout_has("undecided after 4 rounds, 8 pairs");
    let report = eval.report();
    assert_eq!((report.partial, report.overall.episodes), (false, 12));
}

#[test]
fn a_reference_of_other_jobs_or_seeds_is_refused_before_anything_starts() {
    let refused = |jobs: &[Value], words: &[&str], text: &str| {
        let eval = against(expert(), jobs, words);
        eval.run().fails_with(2).stderr_has(text);
        assert!(!eval.folder().root().exists());
    };
    let jobs = tasks("scripted", 2);
    refused(&jobs, &["--seed", "7"], "job `reach` has other seeds in `");
    let other = [job("pick_and_place", 2, 1)];
    refused(&other, &[], "has no job `pick_and_place`");
}

/// Writes the certificate of a run as `mine.json`.
fn certify(eval: &Eval, to: &Path) -> PathBuf {
    let folder = eval.folder();
    let merged = Merged::open(&folder).unwrap();
    let certificate = certificate::make(&folder, &merged, |_| true, Vec::new()).unwrap();
    let path = to.join("mine.json");
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
                "--export-mode=none",
                "--stop-when",
                "reproduced",
                "--margin",
                "10",
            ])
            .words(&["--against", claim]);
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
    told(
        Command::new(rig::rrun())
            .args(["reproduce", "mine.json"])
            .args(words)
            .args([
                "--",
                "--nproc-per-node",
                "2",
                "eval",
                "--no-video",
                "--export-mode=none",
            ])
            .current_dir(folder)
            .env("XDG_STATE_HOME", folder.join("state"))
            .env_remove("OMP_NUM_THREADS"),
    )
}

#[test]
fn a_certificate_is_reproduced_until_it_is_decided() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = certify(expert(), folder.path());
    let (code, text) = reproduce(&certificate, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("same after "), "{text}");
    assert!(text.contains("| Job   | Reference "), "{text}");
    let contents = std::fs::read(&certificate).unwrap();
    let hash = serde_json::from_slice::<Value>(&contents).unwrap()["sha256"].clone();
    let name = format!("reproduce_mine_{}", &hash.as_str().unwrap()[..8]);
    let folder = certificate.with_file_name("outputs").join(name);
    let episodes = std::fs::read_to_string(folder.join("episodes.jsonl")).unwrap();
    assert!(episodes.lines().count() < 2 * EPISODES as usize, "{text}");
}

/// The certificate of a policy that is a file of another machine.
#[test]
fn a_certificate_of_other_paths_and_programs_needs_them_named_and_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let path = certify(expert(), folder.path());
    let mut certificate: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let contents = &mut certificate["contents"];
    contents["jobs"][0]["entry"]["arena_env_args"] =
        json!({"environment": "/there/envs.py:make", "num_envs": 1});
    certificate["sha256"] = canonical::sha256(&certificate["contents"]).unwrap().into();
    std::fs::write(&path, certificate.to_string()).unwrap();
    let refused = |words: &[&str], wanted: &str| {
        let (code, text) = reproduce(&path, words);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(wanted), "{text}");
    };
    refused(&[], "the environment `/there/envs.py:make`");
    refused(&[], "use --trust-plan");
    refused(
        &["--path", "/nowhere=/here"],
        "--path: `/nowhere` is in no job",
    );
    refused(&["--path", "/there=/here"], "`/here/envs.py:make`");
    refused(&["--path", "/here"], "the jobs name 0 paths of policies");

    certificate["contents"]["rates"]["successes"] = json!(1);
    std::fs::write(&path, certificate.to_string()).unwrap();
    refused(&[], "its contents were changed");
}
