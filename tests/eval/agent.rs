//! Tests of planners with a chat server: `tests/fixtures/chat_server.py`, which sees the images,
//! and misbehaves on request.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use jobs::episode::Episode;
use serde_json::{Value, json};

use crate::eval::command::Eval;
use crate::eval::given::{merged, python, told};

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
        command.arg(rig::fixture("chat_server.py")).args(options);
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

/// Returns a job in this environment whose planner is at `url`.
fn job(args: Value, url: &str, more: Value) -> Value {
    let policy = json!({"model_url": url, "model": "tiny-vlm", "retry_wait_s": 0.01});
    json!({
        "name": "plan", "arena_env_args": args, "policy_type": "openai_agent",
        "policy_config_dict": merged(policy, more), "num_episodes": 4,
    })
}

/// Returns a job in the corridor, whose door the planner has to find in pictures.
fn corridor(url: &str, more: Value) -> Value {
    let file = rig::fixture("envs/corridor.py");
    let args = json!({
        "environment": format!("{}:Corridor", file.display()), "python": python(),
        "num_envs": 2, "max_episode_steps": 30,
    });
    job(args, url, more)
}

/// Checks that all episodes were solved, and returns them.
#[track_caller]
fn solved(eval: &Eval) -> Vec<Episode> {
    let episodes = eval.episodes();
    let is_solved = |episode: &Episode| episode.success == Some(true);
    assert!(episodes.iter().all(is_solved), "{episodes:?}");
    episodes
}

fn metric(episode: &Episode, name: &str) -> f64 {
    *episode
        .metrics
        .get(name)
        .unwrap_or_else(|| panic!("no {name} in {:?}", episode.metrics))
}

/// Returns the files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> String {
    let (_, files) = told(Command::new("grep").arg("-rl").arg(text).arg(folder));
    files
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
    let args = json!({"environment": "push", "num_envs": 2});
    let job = job(args, &server.url(), json!({}));
    let eval = Eval::new(&[merged(job, json!({"num_episodes": 2}))]).finished();
    let episodes = solved(&eval);
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
    for file in [
        "results/episode_0_final_res.json",
        "requests/episode_0.jsonl",
        "images/episode_0/episode_0_step_1_front.png",
    ] {
        assert!(folder.join(file).is_file(), "{file}");
    }
}

/// The server has a self-signed certificate for 127.0.0.1.
#[test]
fn discrete_actions_are_planned_from_pictures_for_several_environments_at_once_over_https() {
    let tls = rig::fixture("tls");
    let key = "sk-unmistakable";
    let folder = tls.display().to_string();
    let server = ChatServer::start(&["--together", "2", "--key", key, "--tls", &folder]);
    let url = server.url().replace("http://", "https://");
    let more = json!({"api_key_env": "PLANNER_KEY", "chat_history": true, "max_retries": 0});
    let trusting = merged(more.clone(), json!({"ca_file": tls.join("cert.pem")}));
    let eval = Eval::new(&[corridor(&url, trusting)])
        .env("PLANNER_KEY", key)
        .finished();
    // The planner saw its position: it went straight to the door.
    for episode in solved(&eval) {
        assert!(metric(&episode, "planner_steps") == 1.0 && episode.length <= 5);
        assert_eq!(metric(&episode, "num_steps"), episode.length as f64);
    }
    let log = server.log();
    assert!(
        log.iter()
            .all(|line| line["sizes"] == json!([[20, 20]]) && line["model"] == "tiny-vlm"),
        "{log:?}"
    );
    assert!(log.iter().all(|line| line["in_flight"] == 2), "{log:?}");
    assert_eq!(files_with(eval.folder().root(), key), "");

    let eval = Eval::new(&[corridor(&url, more)]).env("PLANNER_KEY", key);
    let error = failure(&eval, "cannot be reached");
    assert!(
        error.contains(&url) && error.contains("certificate"),
        "{error}"
    );
}

#[test]
fn a_server_that_is_busy_for_a_moment_costs_nothing() {
    let server = ChatServer::start(&["--faults", "429,500,half,503,slow"]);
    let more = json!({"max_concurrent_requests": 1, "request_timeout_s": 2.0});
    let eval = Eval::new(&[corridor(&server.url(), more)]);
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
    let episodes = solved(&eval).into_iter();
    let retries: f64 = episodes
        .map(|episode| metric(&episode, "planner_retries"))
        .sum();
    assert_eq!(retries, 5.0);
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
fn a_server_that_stays_broken_or_refuses_the_key_is_named_in_the_report() {
    let server = ChatServer::start(&["--faults", "500*"]);
    let eval = Eval::new(&[corridor(&server.url(), json!({"max_retries": 2}))]);
    let place = format!("the model server at {}/chat/completions", server.url());
    let error = failure(&eval, &place);
    let reason = format!("{place} answered with status 500: this is fault 500, 3 requests in ");
    assert!(error.contains(&reason), "{error}");

    let slow = ChatServer::start(&["--faults", "slow*"]);
    let brief = json!({"max_retries": 1, "request_timeout_s": 0.5});
    let eval = Eval::new(&[corridor(&slow.url(), brief)]);
    let error = failure(&eval, "did not answer within 0.5 s");
    assert!(error.contains(&slow.url()), "{error}");

    let server = ChatServer::start(&["--key", "sk-another"]);
    let job = corridor(&server.url(), json!({"api_key_env": "PLANNER_KEY"}));
    let eval = Eval::new(&[job]).env("PLANNER_KEY", "sk-unmistakable");
    let error = failure(&eval, "answered with status 401");
    assert!(
        error.contains("Incorrect API key provided: ***."),
        "{error}"
    );
    assert_eq!(files_with(eval.folder().root(), "sk-unmistakable"), "");
}

#[test]
fn a_server_without_schemas_is_asked_in_words_and_that_is_said_once() {
    let server = ChatServer::start(&["--no-schema"]);
    let eval = Eval::new(&[corridor(&server.url(), json!({}))]);
    let ended = eval.run().succeeds();
    let count = ended
        .stderr
        .matches("does not accept `response_format`")
        .count();
    assert_eq!(count, 1, "{}", ended.stderr);
    solved(&eval);
}
