//! Tests of the files in `deploy/`, as far as possible without Docker and without a cluster.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs::eval_args::EvalArgs;
use jobs::setup::Setup;
use serde_json::Value;

use crate::launch::command::Rrun;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(name: &str) -> String {
    fs::read_to_string(root().join("deploy").join(name)).unwrap()
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&text(name)).unwrap()
}

/// Expands a word as compose does if the shell sets no variable: `${NAME:-default}`; `${NAME:?why}`
/// is required and gets a value here.
fn filled(word: &str) -> String {
    let Some((before, rest)) = word.split_once("${") else {
        return word.to_owned();
    };
    let (inner, after) = rest.split_once('}').expect("a brace is closed");
    let value = inner
        .split_once(":-")
        .map(|(_, default)| default)
        .or(inner.contains(":?").then_some("given"));
    format!(
        "{before}{}{}",
        value.unwrap_or_else(|| panic!("{word} has no default")),
        filled(after)
    )
}

fn words(service: &str) -> Vec<String> {
    let compose = yaml("compose.yaml");
    let words = compose["services"][service]["command"]
        .as_array()
        .expect("a list of words")
        .clone();
    words
        .iter()
        .map(|word| filled(word.as_str().expect("a word")))
        .collect()
}

#[test]
fn workers_can_be_many() {
    let compose = yaml("compose.yaml");
    let worker = compose["services"]["worker"]
        .as_object()
        .expect("a service");
    // Each of these settings would allow only one worker.
    assert!(
        ["container_name", "hostname", "ports", "mac_address"]
            .iter()
            .all(|name| !worker.contains_key(*name))
    );
    assert_eq!(
        worker["depends_on"]["server"]["condition"],
        "service_healthy"
    );
    assert!(compose["services"]["server"]["healthcheck"]["test"].is_array());
    let names: Vec<&String> = compose["services"]
        .as_object()
        .expect("services")
        .keys()
        .collect();
    assert_eq!(names, ["server", "worker"]);
    assert!(
        yaml("compose.gpu.yaml")["services"]
            .as_object()
            .expect("services")
            .keys()
            .all(|name| names.contains(&name))
    );
}

#[test]
fn the_words_of_a_worker_are_a_launch_that_meets_by_a_file() {
    let mut words = words("worker");
    for word in &mut words {
        *word = word.replace("/runs", "runs").replace(
            "/jobs/eval.yaml",
            &root().join("deploy/eval.yaml").to_string_lossy(),
        );
    }
    let eval = words
        .iter()
        .position(|word| word == "eval")
        .expect("an evaluation");
    let rrun = Rrun::new()
        .executable("bin/rrun-rank", "#!/bin/sh\n")
        .options(&["--dry-run=json"]);
    let options: Vec<&str> = words[..eval].iter().map(String::as_str).collect();
    let program: Vec<&str> = words[eval..].iter().map(String::as_str).collect();
    let rrun = rrun.options(&options).program(&program);
    let ended = rrun
        .start_below("cp \"$1\" bin/rrun && shift && exec bin/rrun \"$@\"")
        .wait()
        .succeeds();
    let plan: Value = serde_json::from_str(&ended.stdout).expect("a plan is JSON");
    assert_eq!(
        (&plan["nnodes"], &plan["run_id"]),
        (&64.into(), &"compose".into())
    );
    assert_eq!(
        plan["rendezvous"]["file"], "runs/.meeting",
        "{}",
        plan["rendezvous"]
    );
}

#[test]
fn the_jobs_ask_the_server_that_is_named() {
    let host = |variable: Option<&str>| {
        let config = root().join("deploy/eval.yaml").into_os_string();
        let args = EvalArgs::parse_words(&[OsString::from("--config"), config]).unwrap();
        let setup = Setup::read(&args, &|name| {
            variable
                .filter(|_| name == "SERVER_HOST")
                .map(str::to_owned)
        })
        .unwrap();
        assert!(setup.notes.is_empty(), "{:?}", setup.notes);
        let config = |job: &jobs::job::Job| {
            job.policy_config["remote_host"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        setup
            .file
            .jobs
            .iter()
            .map(config)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (host(None), host(Some("node1"))),
        (vec!["localhost".to_owned()], vec!["node1".to_owned()])
    );
    assert!(
        yaml("compose.yaml")["services"]["worker"]["environment"]
            .as_array()
            .unwrap()
            .contains(&"SERVER_HOST=server".into())
    );
}

/// Returns the instructions, each with its continuation lines.
fn instructions(dockerfile: &str) -> Vec<String> {
    let lines = dockerfile
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
    let text = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_image_is_made_of_what_is_there() {
    const KNOWN: [&str; 8] = [
        "FROM",
        "WORKDIR",
        "RUN",
        "ARG",
        "COPY",
        "ENV",
        "ENTRYPOINT",
        "CMD",
    ];
    let instructions = instructions(&text("Dockerfile"));
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(
        instructions
            .iter()
            .all(|line| KNOWN.contains(&words(line)[0].as_str())),
        "{instructions:?}"
    );
    let from: Vec<_> = instructions
        .iter()
        .filter(|line| line.starts_with("FROM "))
        .map(|line| words(line))
        .collect();
    assert_eq!(
        (from.len(), from[0][3].as_str()),
        (2, "build"),
        "it is built in one stage and runs in another"
    );
    assert!(
        from.iter().all(|words| words[1].contains("bookworm")),
        "Python and HDF5 are those of one Debian"
    );
    for line in instructions.iter().filter(|line| line.starts_with("COPY ")) {
        let words = words(line);
        let is_of_stage = words[1].starts_with("--");
        assert!(!is_of_stage || words[1] == "--from=build", "{line}");
        // The files that a stage has built (.venv, .deps, target) are not in the repository.
        for source in words[1 + usize::from(is_of_stage)..words.len() - 1]
            .iter()
            .map(|word| word.trim_start_matches("/rrun/"))
        {
            let is_made = [".venv", ".deps", "target/"]
                .iter()
                .any(|made| source.starts_with(made));
            assert!(is_made || root().join(source).exists(), "{line}: {source}");
        }
    }
    assert!(
        instructions
            .iter()
            .any(|line| line.contains("./setup.sh run")),
        "it is set up as the README says"
    );
}

#[test]
fn the_script_for_slurm_is_a_script_with_options() {
    let path = root().join("deploy/server.sbatch");
    let checked = Command::new("bash").arg("-n").arg(&path).output().unwrap();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    let text = text("server.sbatch");
    let commands = text
        .lines()
        .skip_while(|line| line.starts_with('#') || line.is_empty());
    assert!(text.contains("\n#SBATCH --nodes=2\n"));
    assert!(
        commands
            .into_iter()
            .all(|line| !line.starts_with("#SBATCH")),
        "sbatch looks no further than the first command"
    );
}
