//! A rendezvous that torchrun keeps, and one that torchrun would like to take part in.

use std::time::Duration;

use launcher::store::{Client, Server};
use tokio::runtime::Runtime;

use crate::cluster::{Cluster, RECORD, free_port, sh};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A store on a thread of its own, until the tests end.
pub fn serve() -> u16 {
    let port = free_port();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let _server = Server::bind("127.0.0.1", Some(port)).unwrap().spawn();
            ready.send(()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    is_ready.recv().unwrap();
    port
}

/// A runtime and, on it, a client of the store.
fn client(port: u16) -> (Runtime, Client) {
    let runtime = runtime();
    let client = runtime.block_on(Client::connect("127.0.0.1", port, Duration::from_secs(20))).unwrap();
    (runtime, client)
}

#[test]
fn rrun_says_that_it_cannot_join_torchrun() {
    let port = serve();
    let (runtime, mut client) = client(port);
    // Torch's "no state yet", which every torchrun agent begins with.
    runtime.block_on(client.set("torch.rendezvous.none", b"Y2FuaW1hZGFt")).unwrap();
    let mut cluster = Cluster::at(port);
    let node = cluster.elastic("2", &[], &sh(RECORD));
    assert_eq!(cluster.end(node), 1);
    assert!(cluster.stderr(node).contains("torchrun keeps the rendezvous"), "{}", cluster.stderr(node));
}

#[test]
fn torchrun_reads_why_it_cannot_join_rrun() {
    let port = serve();
    let (runtime, mut client) = client(port);
    let mut cluster = Cluster::at(port);
    let node = cluster.elastic("1", &["--rdzv-conf", "is_host=0"], &sh(RECORD));
    cluster.wait_for(1, 1, 0);
    let state = runtime.block_on(client.get("torch.rendezvous.none")).unwrap();
    // As torch does: pickle.loads(base64.b64decode(state)).
    let script = "import base64, pickle, sys; pickle.loads(base64.b64decode(sys.argv[1], validate=True))";
    let state = String::from_utf8(state).unwrap();
    let python = std::process::Command::new("python3").args(["-c", script, &state]).output();
    cluster.go();
    cluster.all_succeed(&[node]);
    let Ok(python) = python else { return eprintln!("skipped: no python3") };
    let said = String::from_utf8_lossy(&python.stderr).into_owned();
    assert!(!python.status.success() && said.contains("start this node with rrun too"), "{said}");
}
