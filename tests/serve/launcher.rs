//! Tests of `rrun serve`, which starts one server per rank.

use std::net::SocketAddr;

use rig::run::Given;

use crate::serve::client::{Client, file};
use crate::serve::server::{ready, recorded};

#[test]
fn every_rank_has_a_port_of_its_own() {
    let port = rig::net::ports(2);
    let launch = Given::rrun()
        .words(format!("--nproc-per-node 2 serve --host 127.0.0.1 --port {port} --policy").as_str())
        .words([recorded()])
        .start();
    launch.wait_for_count("ready on ", 2);
    let mut found: Vec<_> = ready(&launch.stderr()).collect();
    found.sort_unstable();
    let wanted = [port, port + 1].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(found, wanted);
    for address in found {
        let mut client = Client::connect(address);
        assert_eq!(
            client.ask(&file("kill.request.bin")),
            file("kill.response.bin")
        );
    }
    launch.wait().succeeds();
}

#[test]
fn what_cannot_be_served_is_refused_with_the_reason() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let recorded = recorded();
    let own = r#"{"policy": "nowhere.py:make"}"#;
    let own = ["python", "--environment", "push", "--policy-config", own];
    let on_port = [recorded.to_str().unwrap(), "--port", &port];
    for (words, wanted) in [
        (&["gr00d"][..], "is neither a folder nor a known policy"),
        (&own, "names `nowhere.py`, and there is no such file"),
        (&on_port, ": Address already in use"),
    ] {
        let ended = Given::rrun()
            .words("serve --host 127.0.0.1 --policy")
            .words(words)
            .run();
        assert_ne!(ended.code, 0, "{words:?}");
        assert!(ended.stderr.contains(wanted), "{words:?}: {}", ended.stderr);
    }
}
