//! Tests of `rrun serve`, which starts one server per rank.

use std::path::Path;
use std::process::{Child, Command};

use crate::serve::client::{Client, file};
use crate::serve::server::{DEADLINE, recorded, spawn, wait};

/// A launcher that is stopped with its ranks on drop.
pub struct Launch(pub Child);

impl Drop for Launch {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

pub fn rrun() -> Command {
    Command::new(Path::new(rig::rrun_rank()).with_file_name("rrun"))
}

/// Returns a free port whose successor is free as well.
fn two_ports() -> u16 {
    (20_000..30_000)
        .step_by(7)
        .map(|port| port + (std::process::id() % 5000) as u16)
        .find(|port| {
            [*port, port + 1]
                .iter()
                .all(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        })
        .unwrap()
}

#[test]
fn every_rank_has_a_port_of_its_own() {
    let port = two_ports();
    let mut command = rrun();
    command.args([
        "--nproc-per-node",
        "2",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--policy",
    ]);
    command.arg(recorded());
    let (child, lines) = spawn(command);
    let mut launch = Launch(child);
    let mut ready = Vec::new();
    while ready.len() < 2 {
        let line = lines.recv_timeout(DEADLINE).expect("both are ready");
        ready.extend(
            line.split_once("ready on ")
                .map(|(_, rest)| rest.split(',').next().unwrap().to_owned()),
        );
    }
    ready.sort();
    assert_eq!(
        ready,
        [
            format!("127.0.0.1:{port}"),
            format!("127.0.0.1:{}", port + 1)
        ]
    );
    for address in &ready {
        let mut client = Client::connect(address.parse().unwrap());
        assert_eq!(
            client.ask(&file("kill.request.bin")),
            file("kill.response.bin")
        );
    }
    assert!(wait(&mut launch.0).success());
}

#[test]
fn what_cannot_be_served_is_refused_with_the_reason() {
    let refusal = |words: &[&str]| {
        let output = rrun().arg("serve").args(words).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(
        refusal(&["--policy", "gr00d"])
            .contains("--policy `gr00d` is neither a folder nor a known policy")
    );
    assert!(
        refusal(&["--policy", "replay_action", "--port", "0"])
            .contains("`policy_type` is `replay_action`, which cannot be served: it replays")
    );
    let text = refusal(&["--policy", "scripted", "--port", "0"]);
    assert!(
        ["--environment NAME", "--jobs FILE", "--interface FILE"]
            .iter()
            .all(|way| text.contains(way)),
        "{text}"
    );
    let python = [
        "--policy",
        "python",
        "--environment",
        "push",
        "--policy-config",
    ];
    assert!(
        refusal(&[&python[..], &[r#"{"policy": "nowhere.py:make"}"#]].concat())
            .contains("names `nowhere.py`, and there is no such file")
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let words = [
        "--policy",
        recorded().to_str().unwrap(),
        "--host",
        "127.0.0.1",
        "--port",
        &port,
    ]
    .map(str::to_owned);
    let text = refusal(&words.each_ref().map(String::as_str));
    assert!(
        text.contains(&format!(
            "cannot listen on 127.0.0.1:{port}: Address already in use"
        )),
        "{text}"
    );
}
