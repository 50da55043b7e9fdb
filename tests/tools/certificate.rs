//! Tests of `rrun certify`, of `rrun verify` on certificates, and of `rrun leaderboard`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs::episode::Episode;
use report::certificate::{Certificate, canonical};
use serde_json::{Value, json};

use crate::tools::elsewhere::Elsewhere;
use crate::tools::folder::{Done, Run, job, rrun, rrun_with};

/// Returns a run of two jobs with its certificate, of which no episode was run again.
fn certified() -> (Run, PathBuf) {
    let run = Run::new(&[job("a", 6), job("b", 2)]);
    run.whole();
    rrun(&["certify", run.path(), "--sample", "0"]).succeeds();
    let path = run.folder.certificate();
    (run, path)
}

fn verify(path: &Path, words: &[&str]) -> Done {
    rrun(&[&["verify", path.to_str().unwrap()], words].concat())
}

/// Changes a certificate and computes its hash again, as a liar would.
fn forge(path: &Path, change: impl Fn(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    value["sha256"] = canonical::sha256(&value["contents"]).unwrap().into();
    fs::write(path, value.to_string()).unwrap();
}

/// Creates an SSH key, and returns its path.
fn key(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
        .arg(&path)
        .status();
    assert!(made.expect("ssh-keygen is there").success());
    path
}

/// Writes a file of allowed signers with one name.
fn allowed(folder: &Path, name: &str, key: &Path) -> PathBuf {
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let path = folder.join(format!("signers of {name}"));
    let line = format!("{name} namespaces=\"rrun-certificate\" {public}");
    fs::write(&path, line).unwrap();
    path
}

#[test]
fn a_certificate_holds_and_says_what_came_out_again_and_by_how_many_ranks() {
    let elsewhere = Elsewhere::new(Some);
    let words = ["certify", elsewhere.run.path(), "--sample", "4"];
    elsewhere
        .rrun(&words)
        .succeeds()
        .says("run again: 4 episodes, by 1 rank with 2 environments\n")
        .says("6 of 8 episodes solved")
        .says("sample: 4 of 4 came out the same again");
    let path = elsewhere.run.folder.certificate();
    let certificate = Certificate::read(&path).unwrap();
    let sample = certificate.sample.unwrap();
    assert_eq!(sample.machines[0].host, "node0");
    // Two were asked for, and one has written a journal.
    assert_eq!(sample.ranks, 1);
    verify(&path, &[])
        .succeeds()
        .says("| a   | scripted    | 4 of 6 |")
        .says("| all |             | 6 of 8 |")
        .says("note: its author says that 4 of 4 episodes came out the same")
        .says("note: it is not signed")
        .says("certificate.json` holds");
}

#[test]
fn a_sample_that_came_out_otherwise_is_certified_as_such() {
    let other = |episode: Episode| {
        Some(Episode {
            length: episode.length + 1,
            ..episode
        })
    };
    let elsewhere = Elsewhere::new(other);
    let words = ["certify", elsewhere.run.path(), "--sample", "99"];
    elsewhere
        .rrun(&words)
        .fails_with(1)
        .says("wrong: b: episode 0 came out differently: length 10, then 11")
        .says("sample: 0 of 8 came out the same again");
    verify(&elsewhere.run.folder.certificate(), &[])
        .succeeds()
        .says("its author says that 0 of 8 episodes came out the same");
}

#[test]
fn a_run_that_is_not_whole_is_refused_by_name() {
    let run = Run::new(&[job("a", 6)]);
    run.rank(0, (0..5).map(|number| run.episode(0, number, 0)));
    rrun(&["certify", run.path(), "--sample", "0"])
        .fails_with(1)
        .complains("cannot be certified: a: episode 5 is missing")
        .complains("with --partial");
    assert!(!run.folder.certificate().exists());
    rrun(&["certify", run.path(), "--sample", "0", "--partial"])
        .succeeds()
        .says("incomplete: a: episode 5 is missing")
        .says("sample: no episode was run again (--sample 0)");
    verify(&run.folder.certificate(), &[])
        .succeeds()
        .says("note: it is the certificate of an incomplete run")
        .says("note: finding of its author: a: episode 5 is missing");
}

#[test]
fn a_run_under_way_is_refused_by_name() {
    let run = Run::new(&[job("a", 2)]);
    run.whole();
    let lock = jobs::launch::LaunchLock::take(&run.folder, "launch1", |_| ()).unwrap();
    rrun(&["certify", run.path(), "--sample", "0", "--partial"])
        .fails_with(1)
        .complains("cannot be certified: the run is under way: process ");
    drop(lock);
    rrun(&["certify", run.path(), "--sample", "0"]).succeeds();
}

#[test]
fn a_signature_says_by_whom_and_covers_the_sample() {
    let elsewhere = Elsewhere::new(Some);
    let folder = elsewhere.run.dir.path();
    let (alice, bob) = (key(folder, "alice"), key(folder, "bob"));
    let sign = ["--sample", "2", "--sign", alice.to_str().unwrap()];
    let words = [&["certify", elsewhere.run.path()], &sign[..]].concat();
    elsewhere.rrun(&words).succeeds();
    let path = elsewhere.run.folder.certificate();
    verify(&path, &[])
        .succeeds()
        .says("note: signed by ED25519 key SHA256:")
        .says("; nobody vouches for that key");
    let known = allowed(folder, "alice@lab", &alice);
    let other = allowed(folder, "bob@lab", &bob);
    let by = |file: &Path| verify(&path, &["--allowed-signers", file.to_str().unwrap()]);
    by(&known)
        .succeeds()
        .says("note: signed by alice@lab, ED25519 key");
    by(&other)
        .fails_with(1)
        .says("wrong: the signature is by ED25519 key SHA256:")
        .says("has no line for the namespace rrun-certificate");
    let text = fs::read_to_string(&path).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["sample"]["ranks"] = json!(7);
    fs::write(&path, value.to_string()).unwrap();
    by(&known)
        .fails_with(1)
        .says("wrong: the signature does not hold: ");
    value["signature"]["ssh"] = json!("x".repeat(20_000));
    fs::write(&path, value.to_string()).unwrap();
    verify(&path, &[]).fails_with(1).says("has 20000 bytes");
    value["signature"] = json!(null);
    fs::write(&path, value.to_string()).unwrap();
    by(&known).fails_with(1).says("wrong: it is not signed");
}

#[test]
fn a_key_that_is_not_there_is_told() {
    let (run, _) = certified();
    let words = ["certify", run.path(), "--sample", "0", "--sign", "/none"];
    rrun(&words)
        .fails_with(1)
        .complains("--sign: cannot read the key `/none`: No such file");
}

#[test]
fn contents_that_were_changed_are_found_by_the_hash() {
    let (_run, path) = certified();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"length\": 13", "\"length\": 12")).unwrap();
    verify(&path, &[])
        .fails_with(1)
        .complains("its contents were changed: their SHA-256 is ");
}

#[test]
fn a_changed_episode_with_a_new_hash_is_found_by_running_it_again() {
    let elsewhere = Elsewhere::new(Some);
    elsewhere
        .rrun(&["certify", elsewhere.run.path(), "--sample", "0"])
        .succeeds();
    let path = elsewhere.run.folder.certificate();
    // Episode 2 was not solved.
    forge(&path, |value| {
        let episode = &mut value["contents"]["jobs"][0]["episodes"][2];
        episode["success"] = json!(true);
        episode["end"] = json!("success");
        for rates in ["/contents/jobs/0/rates", "/contents/rates"] {
            let rates = value.pointer_mut(rates).unwrap();
            let solved = rates["successes"].as_u64().unwrap() + 1;
            let all = rates["episodes"].as_u64().unwrap();
            rates["successes"] = json!(solved);
            rates["success_rate"] = json!(solved as f64 / all as f64);
            rates["wilson95"] = json!(report::stats::wilson95(solved, all));
        }
    });
    verify(&path, &[]).succeeds();
    let again =
        |words: &[&str]| elsewhere.rrun(&[&["verify", path.to_str().unwrap()], words].concat());
    again(&["--rerun", "8"])
        .fails_with(1)
        .says("| a   | 2       | different |")
        .says("| a   | 3       | the same  |")
        .says("wrong: a: episode 2 had a different result: success true, then false; end Success, then TimeLimit")
        .says("would have found it with a probability of 100.0 %");
    // The one that this seed chooses is not the changed one.
    again(&["--rerun", "1", "--rerun-seed", "y"])
        .succeeds()
        .says("run again: 1 episode, chosen by `y`, by 1 rank with 2 environments")
        .says("with a probability of 12.5 %");
}

#[test]
fn a_policy_is_run_again_only_if_its_files_are_the_same() {
    let (run, path) = certified();
    let folder = run.dir.path();
    let (same, other) = (folder.join("same.pt"), folder.join("other.pt"));
    fs::write(&same, "weights").unwrap();
    fs::write(&other, "others").unwrap();
    let old = folder.join("old.pt").display().to_string();
    forge(&path, |value| {
        let contents = &mut value["contents"];
        contents["policies"] = json!([{"type": "torchscript", "path": old, "bytes": 7,
                                       "sha256": jobs::sha256::of("weights")}]);
        let entry = &mut contents["jobs"][0]["entry"];
        entry["policy_type"] = json!("torchscript");
        entry["policy_config_dict"] = json!({"model_path": old});
    });
    let rerun = |words: &[&str]| {
        let home = folder.to_str().unwrap();
        let variables = [("HOME", home), ("XDG_STATE_HOME", home), ("TMPDIR", home)];
        let words = [&["verify", path.to_str().unwrap(), "--rerun", "1"], words].concat();
        rrun_with(&variables, &words)
    };
    rerun(&[])
        .fails_with(1)
        .complains("old.pt` is not on this machine; use --policy PATH");
    rerun(&["--policy", other.to_str().unwrap()])
        .fails_with(1)
        .complains("other.pt` is not the one of the certificate: its SHA-256 is ");
    // The same files are not enough: what runs them has to be wanted.
    for given in [
        same.display().to_string(),
        format!("{old}={}", same.display()),
    ] {
        rerun(&["--policy", &given, "--rerun-seed", "3"])
            .fails_with(1)
            .complains("names programs or servers that you have not started a run with here")
            .complains("use --trust-plan beside --rerun");
    }
}

#[test]
fn options_for_the_other_kind_are_refused() {
    let (run, path) = certified();
    verify(&path, &["--determinism", "2"])
        .fails_with(1)
        .complains("--determinism is for run folders");
    rrun(&["verify", run.path(), "--rerun", "2"])
        .fails_with(1)
        .complains("--rerun is for certificates");
    verify(&run.folder.plan(), &[])
        .fails_with(1)
        .complains("its schema is `rrun/plan/1`, expected `rrun/certificate/1`");
}

#[test]
fn a_leaderboard_has_what_holds_and_lists_what_does_not() {
    let (first, path) = certified();
    let (second, wrong) = certified();
    let (_third, broken) = certified();
    forge(&wrong, |value| {
        value["contents"]["jobs"][0]["planned"] = json!("0-4")
    });
    fs::write(&broken, "{\"schema\": \"rrun/certificate/1\"").unwrap();
    let folder = first.dir.path();
    let all = folder.join("certificates");
    fs::create_dir(&all).unwrap();
    for (name, file) in [("good", &path), ("wrong", &wrong), ("broken", &broken)] {
        fs::copy(file, all.join(format!("{name}.json"))).unwrap();
    }
    fs::write(all.join("other.json"), "{}").unwrap();
    let output = folder.join("board");
    let words = [
        "leaderboard",
        all.to_str().unwrap(),
        "--output",
        output.to_str().unwrap(),
    ];
    rrun(&words)
        .succeeds()
        .says("1 result in 1 task set")
        .says("not ranked: `../certificates/broken.json`: it is not JSON: ")
        .says("not ranked: `../certificates/wrong.json`: a: episode 5 is not planned");
    let page = fs::read_to_string(output.join("leaderboard.html")).unwrap();
    assert!(page.contains("href=\"./../certificates/good.json\""));
    let board: Value =
        serde_json::from_slice(&fs::read(output.join("leaderboard.json")).unwrap()).unwrap();
    assert_eq!(board["groups"][0]["rows"][0]["successes"], 6);
    assert_eq!(board["refused"].as_array().unwrap().len(), 2);
    let broken = ["leaderboard", broken.to_str().unwrap()];
    rrun(&[&broken[..], &words[2..]].concat())
        .fails_with(1)
        .says("0 results in 0 task sets");
    rrun(&[&words[..], &["--allowed-signers", "/nowhere"]].concat())
        .fails_with(1)
        .complains("--allowed-signers: cannot read `/nowhere`");
    rrun(&["leaderboard", second.folder.journals().to_str().unwrap()])
        .fails_with(1)
        .complains("there is no certificate in ");
}
