//! Tests of remote policies: real ZeroMQ and WebSocket servers in Python (`tests/fixtures/remote`),
//! which misbehave on request. They compute a function that is also available as a TorchScript
//! module.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::eval::command::{Eval, wait_until};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

fn python() -> PathBuf {
    root().join(".venv/bin/python")
}

/// A server that ends with the test.
pub struct Server {
    child: Option<Child>,
    pub port: u16,
    dir: TempDir,
}

impl Server {
    /// Starts one of the server programs.
    pub fn start(program: &str, settings: Value) -> Self {
        let mut server = Self::nowhere();
        let mut all = json!({"port": server.port, "log": server.log()});
        all.as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        let path = root().join("tests/fixtures/remote").join(program);
        let mut command = Command::new(python());
        command
            .arg(path)
            .arg(all.to_string())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null());
        server.child = Some(command.spawn().unwrap());
        // A server with a late start counts connections, so none is made here.
        if settings.get("late").is_none() {
            wait_until("the server", || {
                TcpStream::connect(("127.0.0.1", server.port)).is_ok()
            });
        }
        server
    }

    fn gr00t(settings: Value) -> Self {
        Self::start("gr00t_server.py", settings)
    }

    pub fn openpi(settings: Value) -> Self {
        Self::start("openpi_server.py", settings)
    }

    /// Starts `rrun-rank serve` with a checkpoint.
    pub fn ours(checkpoint: &Path, words: &[&str]) -> Self {
        let mut server = Self::nowhere();
        let mut command = Command::new(rig::rrun_rank());
        command
            .args([
                "serve",
                "--host",
                "127.0.0.1",
                "--port",
                &server.port.to_string(),
                "--policy",
            ])
            .arg(checkpoint)
            .args(words);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        server.child = Some(command.spawn().unwrap());
        wait_until("the server", || {
            TcpStream::connect(("127.0.0.1", server.port)).is_ok()
        });
        server
    }

    /// Returns a port on which nothing listens.
    pub fn nowhere() -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        Self {
            child: None,
            port,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Returns its requests, in order.
    pub fn asked(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub fn count(&self, what: &str) -> usize {
        self.asked()
            .iter()
            .filter(|line| line.get(what).is_some())
            .count()
    }

    /// Returns a job whose policy is on this server.
    pub fn job(&self, policy: &str, more: Value) -> Value {
        let mut config =
            json!({"remote_host": "127.0.0.1", "remote_port": self.port, "action_chunk_length": 3});
        if policy == "pi0_remote" {
            config["openpi_embodiment_adapter"] = "custom".into();
            config["observation_mapping"] =
                json!({"observation/image": "top", "observation/state": "position"});
            config["target_image_size"] = json!([24, 24]);
        }
        if policy == "xpolicylab_remote" {
            config["observation_mapping"] =
                json!({"vision/cam_head": "top", "state/arm_joint_state": "position"});
        }
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        toy(policy, config)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

pub fn toy(policy: &str, config: Value) -> Value {
    json!({
        "name": "toy",
        "arena_env_args": {
            "environment": format!("{}:Toy", root().join("tests/fixtures/envs/toy.py").display()),
            "python": python(), "max_episode_steps": 50, "num_envs": 4, "env_kwargs": {"length": 7},
            "mapping": {"video": {"top": "pixels.top"}, "state": {"position": "position"}},
        },
        "policy_type": policy,
        "policy_config_dict": config,
        "num_episodes": 6,
    })
}

/// Returns an evaluation of one job that ends at its first failure; `POLICY_TOKEN` is `s3cret`.
pub fn eval(job: Value) -> Eval {
    let words = ["--no-dataset", "--job-attempts", "1"];
    Eval::new(&[job])
        .nproc(1)
        .words(&words)
        .env("POLICY_TOKEN", "s3cret")
        .env("WRONG_TOKEN", "x")
}

pub type Outcome = (u64, Option<bool>, u64, f64);

pub fn outcomes(eval: &Eval) -> Vec<Outcome> {
    eval.episodes()
        .iter()
        .map(|ended| (ended.episode, ended.success, ended.length, ended.return_))
        .collect()
}

/// Returns the results of the same function as a module in the rank.
pub fn local() -> Vec<Outcome> {
    let dir = tempfile::tempdir().unwrap();
    let module = dir.path().join("function.pt");
    let program = root().join("tests/fixtures/remote/function.py");
    assert!(
        Command::new(python())
            .arg(program)
            .arg(&module)
            .status()
            .unwrap()
            .success()
    );
    let config = json!({"model_path": module, "cameras": ["top"], "state_keys": ["position"], "action_chunk_length": 3});
    let eval = eval(toy("torchscript", config));
    eval.run().succeeds();
    outcomes(&eval)
}

#[test]
fn episodes_are_the_same_whoever_infers() {
    let wanted = local();
    assert!(wanted.len() == 6 && wanted.iter().any(|outcome| outcome.3 != wanted[0].3));
    let gr00t = Server::gr00t(json!({"token": "s3cret"}));
    let job = gr00t.job(
        "gr00t_remote_closedloop",
        json!({"remote_api_token_env": "POLICY_TOKEN", "policy_device": "cuda:0"}),
    );
    let over_zmq = eval(job);
    let said = format!(
        "no effect of policy_device: the policy is at tcp://127.0.0.1:{}",
        gr00t.port
    );
    over_zmq.run().succeeds().stderr_has(&said);
    assert_eq!(outcomes(&over_zmq), wanted);
    assert!(
        gr00t.asked().iter().any(|line| line["rows"] == 2),
        "rows share a request: {:?}",
        gr00t.asked()
    );
    assert!(gr00t.count("reset") > 0);
    let legacy = Server::gr00t(json!({"dialect": "npy"}));
    let dotted =
        "isaaclab_arena_gr00t.policy.gr00t_remote_closedloop_policy.Gr00tRemoteClosedloopPolicy";
    let over_npy = eval(legacy.job(dotted, json!({})));
    over_npy.run().succeeds();
    assert_eq!(outcomes(&over_npy), wanted);
    let openpi = Server::openpi(json!({"token": "s3cret"}));
    let over_websocket = eval(openpi.job(
        "pi0_remote",
        json!({"remote_api_token_env": "POLICY_TOKEN"}),
    ));
    over_websocket.run().succeeds();
    assert_eq!(outcomes(&over_websocket), wanted);
    assert_eq!(openpi.count("connected"), 4, "a connection an environment");
}

#[test]
fn a_checkpoint_behind_our_own_server_does_what_it_does_in_the_rank() {
    let reach = |policy: &str, config: Value| {
        json!({"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 3}, "policy_type": policy,
               "policy_config_dict": config, "num_episodes": 4, "seed": 1})
    };
    let checkpoint = root().join("jobs/suites/demo_policy");
    let local = eval(reach(
        "gr00t",
        json!({"model_path": checkpoint, "action_chunk_length": 4}),
    ));
    local.run().succeeds();
    let server = Server::ours(&checkpoint, &[]);
    let config =
        json!({"remote_host": "127.0.0.1", "remote_port": server.port, "action_chunk_length": 4});
    let remote = eval(reach("gr00t_remote_closedloop", config));
    remote.run().succeeds();
    assert_eq!(outcomes(&remote), outcomes(&local));
}

#[test]
fn a_server_that_comes_late_is_waited_for() {
    let gr00t = Server::gr00t(json!({"late": 3}));
    eval(gr00t.job("gr00t_remote_closedloop", json!({})))
        .run()
        .succeeds()
        .stderr_has("retrying for ");
    let openpi = Server::openpi(json!({"late": 3}));
    eval(openpi.job("pi0_remote", json!({})))
        .run()
        .succeeds()
        .stderr_has(" answers again after ");
}

#[test]
fn a_server_that_dies_and_comes_back_costs_nothing_but_time() {
    let wanted = local();
    let gr00t = Server::gr00t(json!({"die_after": 3}));
    let over_zmq = eval(gr00t.job("gr00t_remote_closedloop", json!({})));
    over_zmq.run().succeeds();
    assert_eq!(
        (gr00t.count("dies"), outcomes(&over_zmq)),
        (1, wanted.clone())
    );
    let openpi = Server::openpi(json!({"die_after": 3}));
    let over_websocket = eval(openpi.job("pi0_remote", json!({})));
    over_websocket.run().succeeds();
    assert_eq!(
        (openpi.count("dies"), outcomes(&over_websocket)),
        (1, wanted)
    );
}

#[test]
fn a_server_that_stays_away_is_named_with_what_was_tried() {
    let nowhere = Server::nowhere();
    let patience = json!({"remote_retry_s": 1});
    let address = format!(
        "policy server tcp://127.0.0.1:{}: it stays unavailable: ",
        nowhere.port
    );
    let ended = eval(nowhere.job("gr00t_remote_closedloop", patience.clone()))
        .run()
        .fails_with(1);
    ended
        .stderr_has(&address)
        .stderr_has(" s, the last one: get_modality_config: connection refused");
    let ended = eval(nowhere.job("pi0_remote", patience))
        .run()
        .fails_with(1);
    ended
        .stderr_has("policy server ws://127.0.0.1:")
        .stderr_has("the last one: connecting: connection refused");
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_its_time() {
    let brief = json!({"remote_timeout_s": 3, "remote_retry_s": 4});
    let gr00t = Server::gr00t(json!({"fault": "silent"}));
    let ended = eval(gr00t.job("gr00t_remote_closedloop", brief.clone()))
        .run()
        .fails_with(1);
    ended
        .stderr_has("it stays unavailable: ")
        .stderr_has("no answer within 3 s");
    let openpi = Server::openpi(json!({"fault": "silent"}));
    let ended = eval(openpi.job("pi0_remote", brief)).run().fails_with(1);
    ended
        .stderr_has("it stays unavailable: ")
        .stderr_has("no answer within 3 s");
}

#[test]
fn what_a_server_says_is_wrong_is_told_in_its_words() {
    let failure = |server: &Server, policy: &str, reason: &str| {
        eval(server.job(policy, json!({"remote_api_token_env": "WRONG_TOKEN"})))
            .run()
            .fails_with(1)
            .stderr_has(reason);
    };
    let gr00t = |settings: Value, reason: &str| {
        failure(&Server::gr00t(settings), "gr00t_remote_closedloop", reason)
    };
    gr00t(
        json!({"fault": "error"}),
        "get_action: it answers with the error `the arm is on fire`",
    );
    gr00t(
        json!({"token": "s3cret"}),
        "get_modality_config: it answers with the error `Unauthorized: Invalid API token`",
    );
    gr00t(
        json!({"fault": "garbage"}),
        "get_modality_config: its answer cannot be read: ",
    );
    gr00t(
        json!({"fault": "short"}),
        "actions x are [1, 2, 1], expected [1, 4 or more, 1 or more]",
    );
    let openpi =
        |settings: Value, reason: &str| failure(&Server::openpi(settings), "pi0_remote", reason);
    openpi(json!({"fault": "error"}), "ValueError: the arm is on fire");
    openpi(
        json!({"token": "s3cret"}),
        "connecting: it answers HTTP 401 Unauthorized",
    );
    openpi(
        json!({"fault": "garbage"}),
        "infer: its answer cannot be read: ",
    );
    openpi(
        json!({"fault": "short"}),
        "infer: its actions are [2, 2], expected [3 or more, 2]",
    );
}

#[test]
fn a_server_that_does_not_fit_is_refused_with_both_sides() {
    let server = Server::gr00t(json!({"state": ["position", "gripper"]}));
    let ended = eval(server.job("gr00t_remote_closedloop", json!({})))
        .run()
        .fails_with(1);
    ended
        .stderr_has("needs state gripper; environment `")
        .stderr_has("has position [3]");
    let server = Server::openpi(json!({}));
    let job = server.job("pi0_remote", json!({"openpi_embodiment_adapter": "droid"}));
    let ended = eval(job).run().fails_with(1);
    ended.stderr_has("needs camera exterior_image_1_left or external_camera_rgb for observation/exterior_image_1_left");
}

/// Starts a web server that answers every request with an error.
fn web_server() -> Server {
    let (mut server, listener) = (Server::nowhere(), TcpListener::bind("127.0.0.1:0").unwrap());
    server.port = listener.local_addr().unwrap().port();
    // The thread ends with the test process.
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 1000]);
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            let _ = connection.read(&mut [0; 1000]);
        }
    });
    server
}

#[test]
fn a_server_of_another_protocol_is_told_at_once() {
    let server = web_server();
    let ended = eval(server.job("gr00t_remote_closedloop", json!({})))
        .run()
        .fails_with(1);
    ended.stderr_has(
        "get_modality_config: it does not speak ZeroMQ for policies: no ZMTP \
        greeting",
    );
    let ended = eval(server.job("pi0_remote", json!({})))
        .run()
        .fails_with(1);
    ended.stderr_has("connecting: it answers HTTP 400 Bad Request");
}

#[test]
fn a_server_is_shown_the_steps_that_it_looks_back() {
    let server = Server::gr00t(json!({"state_steps": [-2, -1, 0]}));
    eval(server.job("gr00t_remote_closedloop", json!({})))
        .run()
        .succeeds();
    assert!(
        server
            .asked()
            .iter()
            .filter(|line| line.get("rows").is_some())
            .all(|line| line["steps"] == 3)
    );
    let seeds = |line: &Value| line["seeds"].as_array().map_or(0, Vec::len) as u64;
    assert!(
        server
            .asked()
            .iter()
            .filter(|line| line.get("rows").is_some())
            .all(|line| line["rows"] == seeds(line))
    );
}

#[test]
fn an_evaluation_that_is_stopped_does_not_wait_for_a_server() {
    let nowhere = Server::nowhere();
    let eval = eval(nowhere.job("gr00t_remote_closedloop", json!({"remote_retry_s": 3600})));
    let running = eval.start();
    wait_until("a rank", || eval.folder().journal(0).exists());
    running.signal("TERM");
    let ended = running.wait();
    assert!(
        !ended.status.success() && !ended.stderr.contains("SIGKILL"),
        "{}",
        ended.stderr
    );
}
