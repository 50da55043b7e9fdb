//! Tests of the files in `deploy/`, as far as possible without Docker and without a cluster.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;

use jobs::eval_args::EvalArgs;
use jobs::setup::Setup;
use rig::run::Given;
use serde_json::Value;

use crate::launch::eval;

fn text(name: &str) -> String {
    fs::read_to_string(rig::root().join("deploy").join(name)).unwrap()
}

fn service(name: &str) -> Value {
    let mut compose: Value = serde_saphyr::from_str(&text("compose.yaml")).unwrap();
    compose["services"][name].take()
}

/// Expands a word as compose does if the shell sets no variable: `${NAME:-default}`.
fn filled(word: &str) -> String {
    let Some((before, rest)) = word.split_once("${") else {
        return word.to_owned();
    };
    let (inner, after) = rest.split_once('}').expect("a brace is closed");
    let (_, default) = inner.split_once(":-").expect("there is a default");
    format!("{before}{default}{}", filled(after))
}

#[test]
fn workers_can_be_many() {
    let worker = service("worker");
    for of_one in ["container_name", "hostname", "ports", "mac_address"] {
        assert!(worker.get(of_one).is_none(), "{of_one}");
    }
}

#[test]
fn the_words_of_a_worker_are_a_launch_that_meets_by_a_file() {
    let words = service("worker")["command"].take();
    let words = words.as_array().expect("a list of words").iter();
    let yaml = rig::root().join("deploy/eval.yaml").display().to_string();
    let words: Vec<String> = words
        .map(|word| filled(word.as_str().expect("a word")))
        .map(|word| {
            word.replace("/runs", "runs")
                .replace("/jobs/eval.yaml", &yaml)
        })
        .collect();
    let rrun: Given = eval("", None).words("--dry-run=json").program(&words);
    let plan: Value = serde_json::from_str(&rrun.succeeds().stdout).expect("a plan is JSON");
    assert_eq!(plan["nnodes"], 64);
    assert_eq!(plan["run_id"], "compose");
    assert_eq!(
        plan["rendezvous"]["file"], "runs/.meeting",
        "{}",
        plan["rendezvous"]
    );
}

#[test]
fn the_jobs_ask_the_server_that_is_named() {
    let hosts = |variable: Option<&str>| -> BTreeSet<String> {
        let config = rig::root().join("deploy/eval.yaml").into_os_string();
        let args = EvalArgs::parse_words(&[OsString::from("--config"), config]).unwrap();
        let variable = |name: &str| {
            variable
                .filter(|_| name == "SERVER_HOST")
                .map(str::to_owned)
        };
        let setup = Setup::read(&args, &variable).unwrap();
        assert!(setup.notes.is_empty(), "{:?}", setup.notes);
        let host = |job: &jobs::job::Job| {
            job.policy_config["remote_host"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        setup.file.jobs.iter().map(host).collect()
    };
    assert_eq!(hosts(None), ["localhost".to_owned()].into());
    assert_eq!(hosts(Some("node1")), ["node1".to_owned()].into());
    let given = service("worker")["environment"].take();
    assert!(
        given
            .as_array()
            .unwrap()
            .contains(&"SERVER_HOST=server".into())
    );
}

#[test]
fn what_the_image_copies_is_there_or_made_by_its_own_build() {
    let dockerfile = text("Dockerfile").replace("\\\n", " ");
    let copies = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "));
    let mut count = 0;
    for copy in copies {
        let mut words: Vec<&str> = copy.split_whitespace().collect();
        words.pop().expect("a destination");
        for source in words.into_iter().filter(|word| *word != "--from=build") {
            let source = source.trim_start_matches("/rrun/");
            let is_made = [".venv", ".deps", "target/"]
                .iter()
                .any(|made| source.starts_with(made));
            assert!(
                is_made || rig::root().join(source).exists(),
                "COPY {copy}: {source}"
            );
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

#[test]
fn the_script_for_slurm_has_its_options_before_its_first_command() {
    let script = rig::root().join("deploy/server.sbatch");
    Given::new("bash").words("-n").program([script]).succeeds();
    let text = text("server.sbatch");
    assert!(text.contains("\n#SBATCH --nodes=2\n"));
    let mut commands = text
        .lines()
        .skip_while(|line| line.starts_with('#') || line.is_empty());
    assert!(
        commands.all(|line| !line.starts_with("#SBATCH")),
        "sbatch looks no further"
    );
}
