//! Tests of planners with a chat server: `tests/fixtures/chat_server.py`, which sees the images,
//! and misbehaves on request.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use jobs::episode::{End, Episode};
use serde_json::{Value, json};

use crate::eval::command::Eval;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

fn python() -> PathBuf {
    root().join(".venv/bin/python")
}

/// A chat server of the test, killed on drop.
struct ChatServer {
    child: Child,
    port: String,
    folder: tempfile::TempDir,
}

impl ChatServer {
    fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(python());
        command
            .arg(root().join("tests/fixtures/chat_server.py"))
            .args(options);
        command
            .arg("--log")
            .arg(folder.path().join("log"))
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        Self {
            child,
            port: port.trim().to_owned(),
            folder,
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Returns its requests, in the order of their answers.
    fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for ChatServer {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a job of the suite or of the corridor whose planner is at `url`.
fn job(environment: &str, url: &str, more: Value) -> Value {
    let mut policy = json!({"model_url": url, "model": "tiny-vlm", "retry_wait_s": 0.01});
    policy
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let mut args = json!({"environment": environment, "num_envs": 2});
    if environment.contains(".py:") {
        args["python"] = json!(python());
        args["max_episode_steps"] = json!(30);
    }
    json!({"name": "plan", "arena_env_args": args, "policy_type": "openai_agent", "policy_config_dict": policy,
           "num_episodes": 4})
}

fn corridor(server: &ChatServer, more: Value) -> Value {
    job(&corridor_name("Corridor"), &server.url(), more)
}

fn corridor_name(factory: &str) -> String {
    format!(
        "{}:{factory}",
        root().join("tests/fixtures/envs/corridor.py").display()
    )
}

fn metric(episode: &Episode, name: &str) -> f64 {
    *episode
        .metrics
        .get(name)
        .unwrap_or_else(|| panic!("no {name} in {:?}", episode.metrics))
}

fn lines(path: &Path) -> Vec<Value> {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns a file below `folder` that contains `text`, if there is one.
fn some_file_has(folder: &Path, text: &str) -> Option<PathBuf> {
    let has = |path: &Path| {
        std::fs::read(path)
            .unwrap()
            .windows(text.len())
            .any(|bytes| bytes == text.as_bytes())
    };
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find_map(|path| {
            if path.is_dir() {
                some_file_has(&path, text)
            } else {
                has(&path).then_some(path)
            }
        })
}

#[test]
fn a_planner_solves_a_task_by_skills_and_plans_again_after_a_failure() {
    let push = "push the puck to the green target";
    let server = ChatServer::start(&[
        "--mistake",
        push,
        "--plan",
        &format!("move behind the puck;{push};raise the hand"),
    ]);
    let mut job = job("push", &server.url(), json!({}));
    job["num_episodes"] = json!(2);
    let eval = Eval::new(&[job]);
    eval.run().succeeds();
    let episodes = eval.episodes();
    assert!(
        episodes.iter().all(|episode| episode.success == Some(true)),
        "{episodes:?}"
    );
    for episode in &episodes {
        assert_eq!(
            (
                metric(episode, "planner_steps"),
                metric(episode, "num_invalid_actions")
            ),
            (2.0, 1.0)
        );
        assert_eq!(
            (
                metric(episode, "prompt_tokens"),
                metric(episode, "completion_tokens")
            ),
            (200.0, 20.0)
        );
        assert!(metric(episode, "num_steps") >= 3.0 && metric(episode, "planner_latency_s") > 0.0);
    }
    let log = server.log();
    assert_eq!(log.len(), 4);
    assert!(
        log.iter()
            .all(|line| line["sizes"] == json!([[224, 224], [224, 224]]) && line["schema"] == true),
        "{log:?}"
    );
    let failed = json!([[
        "1",
        push,
        "failed",
        "The hand is not behind the puck, at its height."
    ]]);
    assert_eq!(
        log.iter().filter(|line| line["history"] == failed).count(),
        2,
        "{log:?}"
    );

    let folder = eval.folder().planner("plan");
    let result = std::fs::read(folder.join("results/episode_0_final_res.json")).unwrap();
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(
        (&result["task_success"], &result["planner_steps"]),
        (&json!(1.0), &json!(2))
    );
    let steps = result["num_steps"].as_u64().unwrap();
    let actions = lines(&folder.join(format!("episode_0_step_{steps}.json")));
    assert_eq!(actions.len() as u64, steps);
    assert_eq!(
        (
            &actions[0]["action_description"],
            &actions[0]["last_action_success"]
        ),
        (&json!(push), &json!(0.0))
    );
    assert_eq!(actions.last().unwrap()["task_success"], 1.0);
    let requests = lines(&folder.join("requests/episode_0.jsonl"));
    assert_eq!(
        requests[1]["images"][0],
        "images/episode_0/episode_0_step_1_front.png"
    );
    assert!(
        folder
            .join("images/episode_0/episode_0_step_1_front.png")
            .is_file()
    );
}

#[test]
fn discrete_actions_are_planned_from_pictures_for_several_environments_at_once() {
    let server = ChatServer::start(&["--together", "2", "--key", "sk-unmistakable"]);
    let more = json!({"api_key_env": "PLANNER_KEY", "chat_history": true});
    let eval = Eval::new(&[corridor(&server, more)]).env("PLANNER_KEY", "sk-unmistakable");
    eval.run().succeeds();
    let episodes = eval.episodes();
    assert!(
        episodes.iter().all(|episode| episode.success == Some(true)),
        "{episodes:?}"
    );
    // The planner saw its position: it went straight to the door.
    assert!(
        episodes
            .iter()
            .all(|episode| metric(episode, "planner_steps") == 1.0 && episode.length <= 5)
    );
    assert!(
        episodes
            .iter()
            .all(|episode| metric(episode, "num_steps") == episode.length as f64)
    );
    let log = server.log();
    assert!(
        log.iter()
            .all(|line| line["sizes"] == json!([[20, 20]]) && line["model"] == "tiny-vlm"),
        "{log:?}"
    );
    assert!(log.iter().all(|line| line["in_flight"] == 2), "{log:?}");
    assert_eq!(some_file_has(eval.folder().root(), "sk-unmistakable"), None);
}

#[test]
fn a_server_that_is_busy_for_a_moment_costs_nothing() {
    let server = ChatServer::start(&["--faults", "429,500,half,503,slow"]);
    let more = json!({"max_concurrent_requests": 1, "request_timeout_s": 2.0});
    let eval = Eval::new(&[corridor(&server, more)]);
    let place = format!("the model server at {}/chat/completions", server.url());
    let ended = eval
        .run()
        .succeeds()
        .stderr_has(&format!("{place} answered with status 429"));
    assert_eq!(
        ended.stderr.matches("; retrying").count(),
        1,
        "once within half a minute: {}",
        ended.stderr
    );
    let episodes = eval.episodes();
    assert!(
        episodes.iter().all(|episode| episode.success == Some(true)),
        "{episodes:?}"
    );
    assert_eq!(
        episodes
            .iter()
            .map(|episode| metric(episode, "planner_retries"))
            .sum::<f64>(),
        5.0
    );
}

/// Runs a job that must fail; returns its error in the report.
fn failure(eval: &Eval, text: &str) -> String {
    eval.run().fails_with(1).stderr_has(text);
    eval.report().per_job[0]
        .error
        .clone()
        .expect("the job has failed")
}

#[test]
fn a_server_that_stays_broken_is_named_in_the_report() {
    let server = ChatServer::start(&["--faults", "500*"]);
    let eval = Eval::new(&[corridor(&server, json!({"max_retries": 2}))]);
    let place = format!("the model server at {}/chat/completions", server.url());
    let error = failure(&eval, &place);
    assert!(
        error.contains(&format!(
            "{place} answered with status 500: this is fault 500, 3 requests in "
        )),
        "{error}"
    );

    let slow = ChatServer::start(&["--faults", "slow*"]);
    let eval = Eval::new(&[corridor(
        &slow,
        json!({"max_retries": 1, "request_timeout_s": 0.5}),
    )]);
    let error = failure(&eval, "did not answer within 0.5 s");
    assert!(error.contains(&slow.url()), "{error}");

    let gone = ChatServer::start(&[]);
    let url = gone.url();
    let job = corridor(&gone, json!({"max_retries": 1}));
    drop(gone);
    let error = failure(&Eval::new(&[job]), "cannot be reached");
    assert!(
        error.contains(&format!(
            "the model server at {url}/chat/completions cannot be reached: "
        )),
        "{error}"
    );
}

#[test]
fn a_server_with_https_is_asked_if_somebody_vouches_for_it() {
    // A self-signed certificate for 127.0.0.1. Its key is beside it, because it is only for tests.
    let tls = root().join("tests/fixtures/tls");
    let server = ChatServer::start(&["--tls", &tls.display().to_string()]);
    let url = server.url().replace("http://", "https://");
    let with = |more: Value| job(&corridor_name("Corridor"), &url, more);
    let eval = Eval::new(&[with(json!({"ca_file": tls.join("cert.pem")}))]);
    eval.run().succeeds();
    assert!(
        eval.episodes()
            .iter()
            .all(|episode| episode.success == Some(true))
    );
    let error = failure(
        &Eval::new(&[with(json!({"max_retries": 0}))]),
        "cannot be reached",
    );
    assert!(
        error.contains(&url) && error.contains("certificate"),
        "{error}"
    );
}

#[test]
fn a_refused_key_is_not_repeated() {
    let server = ChatServer::start(&["--key", "sk-another"]);
    let job = corridor(&server, json!({"api_key_env": "PLANNER_KEY"}));
    let eval = Eval::new(&[job]).env("PLANNER_KEY", "sk-unmistakable");
    let error = failure(&eval, "answered with status 401");
    assert!(
        error.contains("Incorrect API key provided: ***."),
        "{error}"
    );
    assert_eq!(some_file_has(eval.folder().root(), "sk-unmistakable"), None);
}

#[test]
fn useless_answers_end_their_episodes_and_are_counted() {
    let counts = |answer: &str, name: &str| {
        let server = ChatServer::start(&["--answer", answer]);
        let eval = Eval::new(&[corridor(&server, json!({"max_invalid_actions": 3}))]);
        eval.run().succeeds();
        let episodes = eval.episodes();
        assert_eq!(episodes.len(), 4);
        assert!(
            episodes
                .iter()
                .all(|e| e.end == End::Terminated && e.success == Some(false) && e.length == 0)
        );
        let ids: Vec<_> = lines(&eval.folder().planner("plan").join("episode_2_step_0.json"))
            .iter()
            .map(|line| line["action_id"].as_i64().unwrap())
            .collect();
        (
            metric(&episodes[2], name),
            metric(&episodes[2], "num_invalid_actions"),
            ids,
        )
    };
    assert_eq!(
        counts("garbage", "planner_output_error"),
        (3.0, 3.0, vec![-1, -1, -1])
    );
    assert_eq!(
        counts("id", "planner_output_error"),
        (0.0, 3.0, vec![-1, -1, -1])
    );
    assert_eq!(counts("empty", "empty_plan"), (1.0, 0.0, vec![-2]));
}

#[test]
fn actions_that_fail_are_told_and_end_the_episode_when_they_are_too_many() {
    let server = ChatServer::start(&[
        "--plan",
        "move left;move left;move left;move left;move left;move right",
    ]);
    let eval = Eval::new(&[corridor(&server, json!({"max_invalid_actions": 2}))]);
    eval.run().succeeds();
    let episodes = eval.episodes();
    assert!(
        episodes
            .iter()
            .all(|e| e.end == End::Terminated && metric(e, "num_invalid_actions") == 2.0),
        "{episodes:?}"
    );
    let walls = |line: &Value| {
        line["history"]
            .to_string()
            .contains("\"failed\",\"There is a wall.\"")
    };
    assert_eq!(
        server.log().iter().filter(|line| walls(line)).count(),
        4,
        "each episode is asked again once"
    );
}

#[test]
fn a_server_without_schemas_is_asked_in_words_and_that_is_said_once() {
    let server = ChatServer::start(&["--no-schema"]);
    let eval = Eval::new(&[corridor(&server, json!({}))]);
    let ended = eval.run().succeeds();
    assert_eq!(
        ended
            .stderr
            .matches("does not accept `response_format`")
            .count(),
        1,
        "{}",
        ended.stderr
    );
    assert!(
        eval.episodes()
            .iter()
            .all(|episode| episode.success == Some(true))
    );
}

#[test]
fn a_job_that_cannot_be_planned_is_refused_before_its_first_episode() {
    let server = ChatServer::start(&[]);
    let refused =
        |job: Value, text: &str| drop(Eval::new(&[job]).run().fails_with(1).stderr_has(text));
    refused(
        corridor(&server, json!({"cameras": ["wrist"]})),
        "needs camera `wrist`; environment `",
    );
    refused(
        corridor(&server, json!({"actions": ["a", "b", "c", "d"]})),
        "`policy_config_dict.actions` is a list of 4, but",
    );
    let nameless = corridor_name("Nameless");
    refused(
        job(&nameless, &server.url(), json!({})),
        "`policy_config_dict.actions` is missing, expected a list of names",
    );
    let toy = format!(
        "{}:Toy",
        root().join("tests/fixtures/envs/toy.py").display()
    );
    refused(
        job(&toy, &server.url(), json!({})),
        "one with a Discrete action space",
    );
    assert!(server.log().is_empty());
}
