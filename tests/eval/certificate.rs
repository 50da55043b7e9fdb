//! A certificate of a real run is checked in another place by running episodes again.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::eval::command::{Eval, job};
use crate::eval::given::{copy, demo_policy, named, root, told, toy};

/// A place that knows nothing of the run: another working directory, home and temporary folder.
struct FreshClone {
    dir: tempfile::TempDir,
}

impl FreshClone {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns whether `rrun` succeeds, and what it says.
    fn rrun(&self, words: &[&str]) -> (bool, String) {
        let (code, text) = told(
            Command::new(rig::rrun())
                .args(words)
                .current_dir(self.dir.path())
                .env("HOME", self.dir.path())
                .env("TMPDIR", self.dir.path())
                .env_remove("XDG_STATE_HOME"),
        );
        (code == Some(0), text)
    }
}

#[test]
fn a_certificate_holds_in_a_fresh_clone_at_another_world_size() {
    let original = FreshClone::new();
    copy(&demo_policy(), &original.path("policy"));
    let mut reach = job("reach", 4, 2);
    reach["policy_type"] = json!("gr00t");
    reach["policy_config_dict"] =
        json!({"model_path": original.path("policy"), "action_chunk_length": 4});
    let eval = Eval::new(&[reach, job("push", 3, 2)])
        .nproc(1)
        .words(&["--export-mode=none", "--seed", "11"])
        .env("HOME", original.path("").to_str().unwrap());
    eval.run().succeeds();
    let folder = eval.folder().root().to_string_lossy().into_owned();
    let certificate = original.path("certificate.json");
    let certificate = certificate.to_str().unwrap();
    let (is_made, told) = original.rrun(&[
        "certify",
        &folder,
        "--rerun",
        "3",
        "--trust-plan",
        "--output",
        certificate,
    ]);
    assert!(
        is_made && told.contains("sample: 3 of 3 came out the same again"),
        "{told}"
    );

    let clone = FreshClone::new();
    copy(Path::new(certificate), &clone.path("c.json"));
    copy(&original.path("policy"), &clone.path("elsewhere"));
    drop((eval, original));
    let (holds, told) = clone.rrun(&["verify", "c.json"]);
    assert!(holds && told.contains("`c.json` holds"), "{told}");
    let again = ["verify", "c.json", "--rerun", "7"];
    let (holds, told) = clone.rrun(&again);
    assert!(!holds && told.contains("is not on this machine"), "{told}");
    let here = [&again[..], &["--path", "elsewhere"]].concat();
    let (holds, told) = clone.rrun(&here);
    assert!(
        !holds && told.contains("use --trust-plan to run what it names"),
        "{told}"
    );
    let words = [
        "--trust-plan",
        "--",
        "--nproc-per-node",
        "3",
        "eval",
        "--num-envs",
        "3",
    ];
    let (holds, told) = clone.rrun(&[&here[..], &words].concat());
    assert!(
        holds
            && told.contains("run again: 7 episodes")
            && told.contains("by 3 ranks with 3 environments"),
        "{told}"
    );
    assert!(!told.contains("different"), "{told}");
}

#[test]
fn a_simulator_and_a_python_policy_are_run_again_from_where_they_lie_here() {
    let (there, clone) = (FreshClone::new(), FreshClone::new());
    copy(&rig::fixture("envs/toy.py"), &there.path("envs.py"));
    copy(&rig::fixture("policies/toy.py"), &there.path("policy.py"));
    let args = json!({"environment": there.path("envs.py:Toy"), "num_envs": 1});
    let entry = named("toy", 2, toy(args));
    let mut reach = job("reach", 2, 1);
    reach["policy_type"] = json!("python");
    reach["policy_config_dict"] = json!({
        "policy": there.path("policy.py:Toy"), "python": root().join(".venv"),
    });
    let eval = Eval::new(&[entry, reach]).nproc(1).finished();
    let folder = eval.folder().root().to_string_lossy().into_owned();
    let (is_made, told) = there.rrun(&["certify", &folder, "--rerun", "0"]);
    assert!(is_made, "{told}");
    let text = std::fs::read(eval.folder().certificate()).unwrap();
    let certificate: Value = serde_json::from_slice(&text).unwrap();
    let versions = &certificate["contents"]["jobs"][0]["settings"]["env_versions"];
    for package in ["python", "numpy", "gymnasium"] {
        assert!(versions[package].is_string(), "{package}: {versions}");
    }

    copy(&eval.folder().certificate(), &clone.path("c.json"));
    for name in ["envs.py", "policy.py"] {
        copy(&there.path(name), &clone.path(name));
    }
    let of = |name: &str| {
        let (there, here) = (there.path(name), clone.path(name));
        format!("{}={}", there.display(), here.display())
    };
    let (simulator, policy) = (of("envs.py"), of("policy.py"));
    drop(there);
    let again = ["verify", "c.json", "--rerun", "4", "--trust-plan"];
    for (missing, words) in [
        ("envs.py", &["--path", &policy][..]),
        ("policy.py", &["--path", &simulator]),
    ] {
        let (holds, told) = clone.rrun(&[&again[..], words].concat());
        assert!(!holds && told.contains(missing), "{told}");
    }
    let words = ["--path", &simulator, "--path", &policy];
    let (holds, told) = clone.rrun(&[&again[..], &words].concat());
    assert!(holds && told.contains("run again: 4 episodes"), "{told}");
    let unknown = ["--path", "/nowhere=/here"];
    let (holds, told) = clone.rrun(&[&again[..], &unknown].concat());
    assert!(
        !holds && told.contains("--path: `/nowhere` is in no job"),
        "{told}"
    );
}
