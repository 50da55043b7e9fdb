//! Tests of `rrun serve`, which starts one server per rank.

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
    let mut command = Command::new(rig::rrun());
    command.args(["--nproc-per-node", "2", "serve", "--host", "127.0.0.1"]);
    command.args(["--port", &port.to_string(), "--policy"]);
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
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (recorded, model) = (recorded(), "--policy");
    let own = r#"{"policy": "nowhere.py:make"}"#;
    let refusals: [(Vec<&str>, &[&str]); 5] = [
        (
            vec![model, "gr00d"],
            &["--policy `gr00d` is neither a folder nor a known policy"],
        ),
        (
            vec![model, "replay_action", "--port", "0"],
            &["`policy_type` is `replay_action`, which cannot be served: it replays"],
        ),
        (
            vec![model, "scripted", "--port", "0"],
            &["--environment NAME", "--jobs FILE", "--interface FILE"],
        ),
        (
            vec![
                model,
                "python",
                "--environment",
                "push",
                "--policy-config",
                own,
            ],
            &["names `nowhere.py`, and there is no such file"],
        ),
        (
            vec![model, recorded.to_str().unwrap(), "--port", &port],
            &["cannot listen on 127.0.0.1:", ": Address already in use"],
        ),
    ];
    for (words, wanted) in refusals {
        let mut command = Command::new(rig::rrun());
        let output = command
            .args(["serve", "--host", "127.0.0.1"])
            .args(&words)
            .output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{words:?}");
        assert!(
            wanted.iter().all(|part| text.contains(part)),
            "{words:?}: {text}"
        );
    }
}
