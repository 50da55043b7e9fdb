//! Tests of remote policies: real servers of each protocol in Python (`tests/fixtures/remote`),
//! which misbehave on request, and our own. They compute a function that is also a TorchScript
//! module. `runtime` tests what each protocol makes of wrong answers and of servers that are away.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use jobs::episode::EpisodeOutcome;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::eval::command::{Eval, Signal, until};
use crate::eval::given::{demo_policy, merged, named, python, told, toy};

const GR00T: &str = "gr00t_remote_closedloop";
const OPENPI: &str = "pi0_remote";
const XPOLICYLAB: &str = "xpolicylab_remote";
const VLA_EVAL: &str = "vla_eval_remote";

/// A server that ends with the test.
struct Server {
    child: Option<Child>,
    port: u16,
    dir: TempDir,
}

impl Server {
    /// Starts the server program of a policy.
    fn start(policy: &str, settings: Value) -> Self {
        let mut server = Self::nowhere();
        let program = match policy {
            GR00T => "gr00t_server.py",
            OPENPI => "openpi_server.py",
            XPOLICYLAB => "xpolicylab_server.py",
            _ => "vla_eval_server.py",
        };
        let own = json!({"port": server.port, "log": server.log()});
        // A server with a late start counts connections, so none is made here.
        let is_late = settings.get("late").is_some();
        let mut command = Command::new(python());
        command
            .arg(rig::fixture("remote").join(program))
            .arg(merged(own, settings).to_string())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        server.run(command, is_late);
        server
    }

    /// Starts `rrun-rank serve` with the demo's checkpoint.
    fn ours() -> Self {
        let mut server = Self::nowhere();
        let mut command = Command::new(rig::rrun_rank());
        command
            .args([
                "serve",
                "--host",
                "127.0.0.1",
                "--chunk-size",
                "4",
                "--port",
            ])
            .arg(server.port.to_string())
            .arg("--policy")
            .arg(demo_policy());
        server.run(command, false);
        server
    }

    fn run(&mut self, mut command: Command, is_late: bool) {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        if !is_late {
            until("the server", || {
                TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            });
        }
    }

    /// Returns a port on which nothing listens.
    fn nowhere() -> Self {
        Self {
            child: None,
            port: rig::net::port(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Returns its requests, in order.
    fn asked(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn count(&self, what: &str) -> usize {
        self.asked_for(what).len()
    }

    /// Returns the requests with this field.
    fn asked_for(&self, what: &str) -> Vec<Value> {
        let mut asked = self.asked();
        asked.retain(|line| line.get(what).is_some());
        asked
    }

    /// Returns a job whose policy is on this server.
    fn job(&self, policy: &str, more: Value) -> Value {
        let place = json!({"remote_host": "127.0.0.1", "remote_port": self.port});
        let own = match policy {
            OPENPI => json!({
                "openpi_embodiment_adapter": "custom", "target_image_size": [24, 24],
                "observation_mapping": {
                    "observation/image": "top", "observation/state": "position",
                },
                "action_chunk_length": 3,
            }),
            XPOLICYLAB => json!({
                "observation_mapping": {
                    "vision/cam_head": "top", "state/arm_joint_state": "position",
                },
                "action_chunk_length": 3,
            }),
            // Its server keeps the rest of a chunk.
            VLA_EVAL => json!({}),
            _ => json!({"action_chunk_length": 3}),
        };
        function(policy, merged(merged(place, own), more))
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

/// Returns a job of six episodes of seven steps with this policy.
fn function(policy: &str, config: Value) -> Value {
    let args = json!({
        "env_kwargs": {"length": 7},
        "mapping": {"video": {"top": "pixels.top"}, "state": {"position": "position"}},
    });
    let policy = json!({"policy_type": policy, "policy_config_dict": config});
    merged(named("toy", 6, toy(args)), policy)
}

/// Returns an evaluation of one job that ends at its first failure; `POLICY_TOKEN` is `s3cret`.
fn eval(job: Value) -> Eval {
    let words = ["--export-mode=none", "--job-attempts", "1"];
    Eval::new(&[job])
        .nproc(1)
        .words(&words)
        .env("POLICY_TOKEN", "s3cret")
        .env("WRONG_TOKEN", "x")
}

/// Returns the results of the same function as a module in the rank.
fn local() -> &'static [EpisodeOutcome] {
    static LOCAL: OnceLock<Vec<EpisodeOutcome>> = OnceLock::new();
    LOCAL.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let module = dir.path().join("function.pt");
        let mut write = Command::new(python());
        write.arg(rig::fixture("remote/function.py")).arg(&module);
        let (code, text) = told(&mut write);
        assert_eq!(code, Some(0), "{text}");
        let config = json!({
            "model_path": module, "cameras": ["top"], "state_keys": ["position"],
            "action_chunk_length": 3,
        });
        let outcomes = eval(function("torchscript", config)).finished().outcomes();
        assert!(outcomes.iter().any(|outcome| outcome.length == 7) && outcomes.len() == 6);
        outcomes
    })
}

/// Runs the job on a server, with the results of the module.
#[track_caller]
fn same_as_local(server: &Server, policy: &str, more: Value) -> String {
    let eval = eval(server.job(policy, more));
    let ended = eval.run().succeeds();
    assert_eq!(eval.outcomes(), local(), "{policy}");
    ended.stderr
}

fn with_token() -> Value {
    json!({"remote_api_token_env": "POLICY_TOKEN"})
}

#[test]
fn a_server_of_gr00t_in_either_dialect_gets_rows_together_and_the_steps_that_it_looks_back() {
    let server = Server::start(
        GR00T,
        json!({"token": "s3cret", "state_steps": [-2, -1, 0]}),
    );
    let config = merged(with_token(), json!({"policy_device": "cuda:0"}));
    let said = same_as_local(&server, GR00T, config);
    let port = server.port;
    let note = format!("no effect of policy_device: the policy is at tcp://127.0.0.1:{port}");
    assert!(said.contains(&note), "{said}");
    assert!(server.count("reset") > 0);
    let asked = server.asked_for("rows");
    assert!(asked.iter().any(|line| line["rows"] == 2), "{asked:?}");
    let seeds = |line: &Value| line["seeds"].as_array().map_or(0, Vec::len);
    assert!(
        asked
            .iter()
            .all(|line| line["rows"] == seeds(line) && line["steps"] == 3)
    );

    let legacy = Server::start(GR00T, json!({"dialect": "npy"}));
    let dotted =
        "isaaclab_arena_gr00t.policy.gr00t_remote_closedloop_policy.Gr00tRemoteClosedloopPolicy";
    same_as_local(&legacy, dotted, json!({}));
}

/// The certificates are in `tests/fixtures/tls`, and their key is beside them, because they are
/// only for tests.
fn over_tls(certificate: &str) -> (Value, Value) {
    let file = |name: &str| rig::fixture("tls").join(name);
    let server = json!({"tls": [file(certificate), file("key.pem")], "token": "s3cret"});
    let client = json!({"remote_host": "wss://127.0.0.1", "remote_ca_file": file(certificate)});
    (server, merged(client, with_token()))
}

#[test]
fn a_server_of_openpi_behind_tls_has_a_connection_for_each_environment() {
    let (settings, config) = over_tls("cert.pem");
    let server = Server::start(OPENPI, settings);
    same_as_local(&server, OPENPI, config);
    assert_eq!(server.count("connected"), 4);
}

#[test]
fn a_server_of_xpolicylab_is_told_of_every_episode_and_its_actions_are_executed() {
    let server = Server::start(XPOLICYLAB, json!({"token": "s3cret"}));
    same_as_local(&server, XPOLICYLAB, with_token());
    assert_eq!(server.count("hello"), 1, "a connection a rank");
    let episodes: Vec<Value> = (0..6)
        .map(|episode| json!(format!("episode-{episode}")))
        .collect();
    for kind in ["reset", "trial_end"] {
        let asked = server.asked_for(kind).into_iter();
        let mut trials: Vec<Value> = asked.map(|mut line| line["trial"].take()).collect();
        trials.sort_by_key(Value::to_string);
        assert_eq!(trials, episodes, "{kind}");
    }
    let inferences = server.asked_for("infer");
    // Seven steps with chunks of three actions are three inferences.
    assert_eq!(inferences.len(), 18);
    let mut first = inferences.clone();
    first.retain(|line| line["trial"] == "episode-0");
    let steps: Vec<_> = first.iter().map(|line| line["step"].clone()).collect();
    assert_eq!(steps, [0, 1, 2]);
    assert!(inferences.iter().any(|line| line["env"] == 3));
}

#[test]
fn a_model_server_of_vla_eval_has_a_session_for_each_environment() {
    let server = Server::start(VLA_EVAL, json!({"chunk_size": 3}));
    same_as_local(&server, VLA_EVAL, json!({"task": {"suite": "toys"}}));
    let mut starts = server.asked_for("start");
    starts.retain(|line| line["start"].is_object());
    let sessions: BTreeSet<_> = starts.iter().map(|line| line["session"].as_str()).collect();
    assert_eq!((starts.len(), sessions.len()), (6, 4));
    let episodes = starts
        .iter()
        .map(|line| line["start"]["episode_idx"].as_u64());
    let episodes: BTreeSet<_> = episodes.collect();
    assert_eq!(episodes, (0..6).map(Some).collect());
    assert!(
        starts
            .iter()
            .all(|line| line["start"]["suite"] == "toys" && line["start"]["seed"].is_u64())
    );
    // The last episode of a session ends with its connection, without a result.
    let ends = server
        .asked()
        .into_iter()
        .filter(|line| line["end"]["steps"] == 7);
    assert_eq!(ends.count(), 2);

    let chunks = Server::start(VLA_EVAL, json!({"chunk_size": null}));
    same_as_local(&chunks, VLA_EVAL, json!({"action_chunk_length": 3}));
}

#[test]
fn a_checkpoint_behind_our_own_server_does_what_it_does_in_the_rank() {
    let reach = |policy: &str, config: Value| {
        let job = json!({
            "name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 3},
            "policy_type": policy, "policy_config_dict": config, "num_episodes": 4, "seed": 1,
        });
        eval(job).finished().outcomes()
    };
    let here = json!({"model_path": demo_policy(), "action_chunk_length": 4});
    let here = reach("gr00t", here);
    let server = Server::ours();
    let place = json!({"remote_host": "127.0.0.1", "remote_port": server.port});
    let there = merged(place.clone(), json!({"action_chunk_length": 4}));
    assert_eq!(reach(GR00T, there), here);
    let mapping = json!({"observation_mapping": {
        "images/front": "front", "images/wrist": "wrist",
        "states": ["eef_position", "eef_quaternion", "gripper_position"],
    }});
    assert_eq!(reach(VLA_EVAL, merged(place, mapping)), here);
}

#[test]
fn a_server_that_comes_late_is_waited_for() {
    let openpi = Server::start(OPENPI, json!({"late": 3}));
    eval(openpi.job(OPENPI, json!({})))
        .run()
        .succeeds()
        .stderr_has("retrying for ")
        .stderr_has(" answers again after ");
}

#[test]
fn a_server_that_dies_and_comes_back_costs_nothing_but_time() {
    for policy in [GR00T, OPENPI] {
        let server = Server::start(policy, json!({"die_after": 3}));
        same_as_local(&server, policy, json!({}));
        assert_eq!(server.count("dies"), 1, "{policy}");
    }
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

/// Checks that a job on a server fails with this reason.
#[track_caller]
fn fails(server: &Server, policy: &str, more: Value, reason: &str) {
    let eval = eval(server.job(policy, more));
    eval.run().fails_with(1).stderr_has(reason);
}

#[test]
fn a_server_that_stays_away_is_silent_or_speaks_another_protocol_is_named_with_the_reason() {
    let nowhere = Server::nowhere();
    let port = nowhere.port;
    let address = format!("policy server tcp://127.0.0.1:{port}: it stays unavailable: ");
    fails(&nowhere, GR00T, json!({"remote_retry_s": 1}), &address);
    let silent = Server::start(OPENPI, json!({"fault": "silent"}));
    let brief = json!({"remote_timeout_s": 1, "remote_retry_s": 1});
    fails(&silent, OPENPI, brief, "no answer within 1 s");
    let web = web_server();
    let reason = "it does not speak ZeroMQ for policies: no ZMTP greeting";
    fails(&web, GR00T, json!({}), reason);
    fails(
        &web,
        OPENPI,
        json!({}),
        "connecting: it answers HTTP 400 Bad Request",
    );
}

#[test]
fn what_a_server_says_is_wrong_is_told_in_its_words() {
    let fire = |policy: &str| Server::start(policy, json!({"fault": "error"}));
    let locked = |policy: &str| Server::start(policy, json!({"token": "s3cret"}));
    let wrong = || json!({"remote_api_token_env": "WRONG_TOKEN"});
    let reason = "get_action: it answers with the error `the arm is on fire`";
    fails(&fire(GR00T), GR00T, json!({}), reason);
    let reason = "get_modality_config: it answers with the error `Unauthorized: Invalid API token`";
    fails(&locked(GR00T), GR00T, wrong(), reason);
    fails(
        &fire(OPENPI),
        OPENPI,
        json!({}),
        "ValueError: the arm is on fire",
    );
    let server = locked(XPOLICYLAB);
    let reason = "HTTP 401 Unauthorized; remote_api_token_env names the variable with its token";
    fails(&server, XPOLICYLAB, json!({}), reason);
    let reason = "HTTP 401 Unauthorized; it does not accept the token of remote_api_token_env";
    fails(&server, XPOLICYLAB, wrong(), reason);
    let server = Server::start(GR00T, json!({"state": ["position", "gripper"]}));
    fails(
        &server,
        GR00T,
        json!({}),
        "needs state gripper; environment `",
    );
}

#[test]
fn a_server_whose_certificate_proves_nothing_gets_no_token_and_says_why() {
    let (settings, config) = over_tls("cert.pem");
    let server = Server::start(OPENPI, settings);
    let unknown = merged(config.clone(), json!({"remote_ca_file": null}));
    let reason = "its certificate is not signed by a trusted authority; remote_ca_file names";
    fails(&server, OPENPI, unknown, reason);
    assert_eq!(server.count("connected"), 0);
    let reason = "; a server with TLS needs wss:// in remote_host";
    fails(&server, OPENPI, json!({"remote_retry_s": 1}), reason);
    let plain = Server::start(OPENPI, json!({}));
    let impatient = merged(config, json!({"remote_retry_s": 1}));
    let reason = "; a server without TLS needs ws:// in remote_host";
    fails(&plain, OPENPI, impatient, reason);
}

#[test]
fn an_evaluation_that_is_stopped_does_not_wait_for_a_server() {
    let nowhere = Server::nowhere();
    let eval = eval(nowhere.job(GR00T, json!({"remote_retry_s": 3600})));
    let running = eval.start();
    until("a rank", || eval.folder().journal(0).exists());
    running.signal(Signal::TERM);
    let ended = running.wait().stderr_lacks("SIGKILL");
    assert_ne!(ended.code, 0);
}
