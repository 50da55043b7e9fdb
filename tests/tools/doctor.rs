//! Tests of `rrun doctor`, with a rank binary and interpreters that are shell scripts.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

/// A rank binary that answers every question at once.
const RANK: &str = r#"
case "$2" in
    libraries) echo '{"Ok":{"rrun":"VERSION","libtorch":"2.11.0+cpu","libtorch_folder":"/torch",
"has_cuda_half":false,"mujoco":"3.17.0"}}' | tr -d '\n' ;;
    gloo|nccl) echo '{"Ok":{"processes":2,"bytes":1048576,"all_reduce_s":0.002,"meeting_s":0.5}}' ;;
    cuda) echo '{"Ok":{"runtime":"13.0","nccl":"2.28.9","gpus":[]}}' ;;
    egl) echo '{"Err":"cannot render without a display: no libEGL; install the packages x"}'; exit 1 ;;
esac
"#;

/// An installed `rrun`, with a folder for output.
struct Installed {
    dir: TempDir,
}

impl Installed {
    /// Installs `rrun` without a rank binary.
    fn alone() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::copy(rig::rrun(), bin.join("rrun")).unwrap();
        Self { dir }
    }

    /// Installs `rrun` with a rank binary that is this shell script.
    fn with_rank(script: &str) -> Self {
        let installed = Self::alone();
        let script = script.replace("VERSION", env!("CARGO_PKG_VERSION"));
        write_script(&installed.path("bin/rrun-rank"), &script);
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `rrun doctor` in the folder, without the variables of a cluster or of this checkout.
    fn doctor(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.path("bin/rrun"));
        command
            .arg("doctor")
            .args(words)
            .current_dir(self.dir.path());
        for (name, _) in std::env::vars() {
            if name.starts_with("SLURM_") || name.starts_with("RRUN_") {
                command.env_remove(name);
            }
        }
        command
            .env("RRUN_SIMULATORS", self.path("simulators"))
            .env("RRUN_POLICIES", self.path("policies"));
        output_of_copy(&mut command)
    }

    fn checked(&self, words: &[&str]) -> Checked {
        let words = [&["--json"], words].concat();
        Checked::new(&self.doctor(&words))
    }
}

/// The output of `rrun doctor --json`.
struct Checked(Vec<Value>);

impl Checked {
    /// Reads it, and checks that its parts agree.
    #[track_caller]
    fn new(output: &Output) -> Self {
        let mut json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["schema"], "rrun/doctor/1");
        let checks: Vec<Value> = serde_json::from_value(json["checks"].take()).unwrap();
        let has_failed = checks.iter().any(|check| check["outcome"] == "failed");
        assert_eq!(json["is_healthy"], !has_failed);
        assert_eq!(output.status.code(), Some(i32::from(has_failed)));
        let needs_help =
            |check: &&Value| check["outcome"] == "failed" || check["outcome"] == "warning";
        let helped = |check: &Value| check["do"].is_string();
        assert!(checks.iter().filter(needs_help).all(helped), "{checks:?}");
        Self(checks)
    }

    fn names(&self) -> Vec<&str> {
        self.0
            .iter()
            .filter_map(|check| check["name"].as_str())
            .collect()
    }

    /// Returns outcome, what was found, and what to do.
    #[track_caller]
    fn of(&self, name: &str) -> (&str, &str, &str) {
        let check = self.0.iter().find(|check| check["name"] == name);
        let check = check.unwrap_or_else(|| panic!("no {name} in {:?}", self.names()));
        let text = |field: &str| check[field].as_str().unwrap_or_default();
        (text("outcome"), text("found"), text("do"))
    }
}

fn write_script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A file that a forked process has open for writing cannot be executed.
    let made = Command::new("/bin/sh")
        .args([
            "-c",
            "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\"; chmod 755 \"$0\"",
        ])
        .args([path.as_os_str(), text.as_ref()])
        .status();
    assert!(made.unwrap().success());
}

/// Runs a program that was just copied. Another test may have started a process while the copy was
/// open for writing; until that process runs its own program, this one is busy.
fn output_of_copy(command: &mut Command) -> Output {
    let deadline = SystemTime::now() + Duration::from_secs(20);
    loop {
        match command.output() {
            Err(err) if err.kind() == ErrorKind::ExecutableFileBusy => {
                assert!(SystemTime::now() < deadline, "the program stays busy");
                std::thread::yield_now();
            }
            done => return done.expect("rrun starts"),
        }
    }
}

#[test]
fn a_folder_and_a_rank_that_work_are_ok_and_the_folder_stays_empty() {
    let installed = Installed::with_rank(RANK);
    std::fs::create_dir(installed.path("out")).unwrap();
    let checked = installed.checked(&["--output", "out"]);
    for name in ["file locks", "rrun-rank", "libtorch", "MuJoCo", "Gloo"] {
        assert_eq!(checked.of(name).0, "ok", "{name}: {:?}", checked.of(name));
    }
    for name in [
        "system",
        "CPU",
        "memory",
        "open files",
        "processes",
        "shared memory",
        "clock",
    ] {
        assert!(!checked.of(name).1.is_empty());
    }
    assert_ne!(checked.of("output folder").0, "failed");
    assert_eq!(checked.of("SLURM").1, "not in a job");
    assert_eq!(std::fs::read_dir(installed.path("out")).unwrap().count(), 0);
}

#[test]
fn without_egl_that_check_fails_with_the_packages_to_install() {
    let installed = Installed::with_rank(RANK);
    let checked = installed.checked(&["--output", "not/yet/there"]);
    let (outcome, found, to_do) = checked.of("EGL");
    assert_eq!(outcome, "failed");
    assert_eq!(found, "cannot render without a display: no libEGL");
    assert!(to_do.contains("libegl1"), "{to_do}");
    assert!(checked.of("output folder").1.contains("does not exist yet"));
    assert!(!installed.path("not").exists());
}

#[test]
fn a_folder_in_which_nothing_can_be_written_fails() {
    let installed = Installed::with_rank(RANK);
    let checked = installed.checked(&["--output", "/proc/rrun/outputs"]);
    let (outcome, found, to_do) = checked.of("output folder");
    assert_eq!(outcome, "failed");
    assert!(found.contains("`/proc` cannot be written"), "{found}");
    assert!(to_do.contains("--output"), "{to_do}");
    assert!(!checked.names().contains(&"write speed"));
}

#[test]
fn a_rank_binary_that_is_missing_is_named_and_the_other_checks_go_on() {
    let checked = Installed::alone().checked(&[]);
    let (outcome, found, _) = checked.of("rrun-rank");
    assert_eq!(outcome, "failed");
    assert!(found.ends_with("bin/rrun-rank` does not exist"), "{found}");
    assert!(!checked.names().contains(&"Gloo"));
    assert_eq!(checked.of("Python").0, "note");
}

#[test]
fn a_missing_libtorch_is_named_with_what_to_install() {
    let loader = "echo \"$0: error while loading shared libraries: libtorch_cpu.so: cannot open \
                  shared object file: No such file or directory\" >&2; exit 127";
    let checked = Installed::with_rank(loader).checked(&[]);
    let (outcome, found, to_do) = checked.of("rrun-rank");
    assert_eq!(outcome, "failed");
    assert!(
        found.ends_with("does not start: `libtorch_cpu.so` is missing"),
        "{found}"
    );
    assert!(to_do.contains("torch>=2.11,<2.13"), "{to_do}");
}

#[test]
fn what_hangs_is_named_after_the_time_limit_and_the_rest_is_checked() {
    let hangs = RANK.replace("gloo|nccl)", "gloo) sleep 600 ;;\n    nccl)");
    let installed = Installed::with_rank(&hangs);
    write_script(&installed.path("simulators/stuck/bin/python"), "sleep 600");
    let imports =
        r#"echo 'rrun-doctor {"python":"3.12.1","imported":{"gymnasium":"1.2"},"failed":{}}'"#;
    write_script(&installed.path("simulators/works/bin/python"), imports);
    let checked = installed.checked(&["--timeout", "2"]);
    for name in ["Gloo", "simulator stuck"] {
        let (outcome, found, _) = checked.of(name);
        assert_eq!(outcome, "failed");
        assert!(found.contains("did not end within 2 s"), "{name}: {found}");
    }
    let (outcome, found, _) = checked.of("simulator works");
    assert_eq!(outcome, "ok");
    assert!(found.ends_with("(3.12.1) imports gymnasium 1.2"), "{found}");
    assert_eq!(checked.of("MuJoCo"), ("ok", "3.17.0", ""));
}

#[test]
fn the_python_of_a_job_imports_what_its_worker_needs() {
    let installed = Installed::with_rank(RANK);
    let python = installed.path("venv/bin/python");
    let answer = r#"echo "rrun-doctor {\"python\":\"3.12.1\",\"imported\":{\"numpy\":\"2.3\"},\"failed\":{\"gymnasium\":\"ModuleNotFoundError: $RRUN_TEST $#\"}}""#;
    write_script(&python, answer);
    let jobs = serde_json::json!({"jobs": [{
        "name": "a", "policy_type": "zero_action", "num_episodes": 1, "policy_config_dict": {},
        "arena_env_args": {"environment": "gym:a", "python": python, "env": {"RRUN_TEST": "seen"}},
    }]});
    std::fs::write(installed.path("jobs.json"), jobs.to_string()).unwrap();
    let checked = installed.checked(&["--jobs", "jobs.json"]);
    assert_eq!(checked.of("jobs").0, "ok");
    let (outcome, found, to_do) = checked.of("Python python");
    assert_eq!(outcome, "failed");
    // `-c`, the script and two modules.
    let expected = "for environment `gym:a` does not import gymnasium: ModuleNotFoundError: seen 4";
    assert!(found.ends_with(expected), "{found}");
    assert!(to_do.contains("-m pip install"), "{to_do}");
}

#[test]
fn a_jobs_file_that_a_launch_would_refuse_fails() {
    let installed = Installed::with_rank(RANK);
    let checked = installed.checked(&["--jobs", "jobs.json"]);
    let (outcome, found, _) = checked.of("jobs");
    assert_eq!(outcome, "failed");
    assert!(found.contains("jobs.json"), "{found}");

    let misspelt = r#"{"jobs": [{"name": "a", "policy_type": "scirpted", "num_episodes": 1,
                       "arena_env_args": {"environment": "reach"}}]}"#;
    std::fs::write(installed.path("jobs.json"), misspelt).unwrap();
    let checked = installed.checked(&["--jobs", "jobs.json"]);
    let (outcome, found, _) = checked.of("jobs");
    assert_eq!(outcome, "failed");
    assert!(found.contains("scirpted"), "{found}");
}

#[test]
fn there_is_one_line_for_each_check_and_one_for_the_sum() {
    let installed = Installed::with_rank(RANK);
    let count = installed.checked(&[]).names().len();
    let output = installed.doctor(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), count + 2, "{text}");
    assert!(lines[count].is_empty());
    assert!(
        lines[count + 1].starts_with(&format!("{count} checks: ")),
        "{text}"
    );
    let failed = lines
        .iter()
        .find(|line| line.starts_with("failed   EGL "))
        .unwrap();
    assert!(failed.contains("; do: install libegl1"), "{failed}");
    assert!(output.stderr.is_empty());
}
