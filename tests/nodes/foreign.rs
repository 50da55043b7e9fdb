//! Tests of a rendezvous of torchrun, and of a torchrun that tries to join one of `rrun`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use launcher::store::{StoreClient, StoreServer};
use tokio::runtime::Runtime;

use crate::nodes::cluster::{Cluster, RECORD, free_port, sh};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Starts a store in a separate thread, which runs until the tests end.
pub fn serve() -> u16 {
    let port = free_port();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let _server = StoreServer::bind("127.0.0.1", Some(port)).unwrap().spawn();
            ready.send(()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    is_ready.recv().unwrap();
    port
}

/// Returns a runtime and a client of the store on it.
fn client(port: u16) -> (Runtime, StoreClient) {
    client_of(port, Duration::from_secs(20))
}

/// Works like [`client`], with a timeout.
fn client_of(port: u16, patience: Duration) -> (Runtime, StoreClient) {
    let runtime = runtime();
    let client = runtime
        .block_on(StoreClient::connect("127.0.0.1", port, patience))
        .unwrap();
    (runtime, client)
}

#[test]
fn rrun_says_that_it_cannot_join_torchrun() {
    let port = serve();
    let (runtime, mut client) = client(port);
    // Torch's value for "no state yet", with which every torchrun agent begins.
    runtime
        .block_on(client.set("torch.rendezvous.none", b"Y2FuaW1hZGFt"))
        .unwrap();
    let mut cluster = Cluster::at(port);
    let node = cluster.elastic("2", &[], &sh(RECORD));
    assert_eq!(cluster.end(node), 1);
    assert!(
        cluster
            .stderr(node)
            .contains("torchrun keeps the rendezvous"),
        "{}",
        cluster.stderr(node)
    );
}

#[test]
fn torchrun_reads_why_it_cannot_join_rrun() {
    let port = serve();
    let (runtime, mut client) = client(port);
    let mut cluster = Cluster::at(port);
    let node = cluster.elastic("1", &["--rdzv-conf", "is_host=0"], &sh(RECORD));
    cluster.wait_for(1, 1, 0);
    let state = runtime
        .block_on(client.get("torch.rendezvous.none"))
        .unwrap();
    // The same as in torch: pickle.loads(base64.b64decode(state)).
    let script =
        "import base64, pickle, sys; pickle.loads(base64.b64decode(sys.argv[1], validate=True))";
    let state = String::from_utf8(state).unwrap();
    let python = std::process::Command::new("python3")
        .args(["-c", script, &state])
        .output();
    cluster.go();
    cluster.all_succeed(&[node]);
    let Ok(python) = python else {
        return eprintln!("skipped: no python3");
    };
    let said = String::from_utf8_lossy(&python.stderr).into_owned();
    assert!(
        !python.status.success() && said.contains("start this node with rrun too"),
        "{said}"
    );
}

/// A real torchrun, if the test environment has it; killed on drop.
struct Torchrun(Child);

impl Torchrun {
    /// Starts an agent with its rendezvous at this port; its output goes to a file in the folder.
    fn start(port: u16, nnodes: &str, folder: &Path) -> Option<Torchrun> {
        let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/bin/python");
        let imports = Command::new(python)
            .args(["-c", "import torch"])
            .stderr(Stdio::null())
            .status();
        if !imports.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no Python torch in .venv");
            return None;
        }
        let file = std::fs::File::create(folder.join("torchrun")).unwrap();
        let mut command = Command::new(python);
        command.args([
            "-m",
            "torch.distributed.run",
            "--rdzv-backend",
            "c10d",
            "--nnodes",
            nnodes,
        ]);
        command.args([
            "--rdzv-endpoint",
            &format!("127.0.0.1:{port}"),
            "--rdzv-conf",
            "read_timeout=20",
        ]);
        command
            .args(["--no-python", "/bin/sh", "-c", "exit 0"])
            .current_dir(folder)
            .stdin(Stdio::null());
        Some(Torchrun(
            command.stdout(Stdio::null()).stderr(file).spawn().unwrap(),
        ))
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Torchrun {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "starts a real torchrun: 10 s"]
fn a_torchrun_that_joins_rrun_says_why_it_cannot_and_does_no_harm() {
    let mut cluster = Cluster::new();
    let node = cluster.elastic("1:2", &[], &sh(RECORD));
    cluster.wait_for(1, 1, 0);
    let Some(mut torchrun) = Torchrun::start(cluster.port(), "1:2", cluster.folder()) else {
        return;
    };
    cluster.wait_until("the end of torchrun", |_| torchrun.has_ended());
    assert!(!torchrun.0.wait().unwrap().success());
    let said = std::fs::read_to_string(cluster.folder().join("torchrun")).unwrap();
    assert!(
        said.contains("torchrun cannot take part in it: start this node with rrun too"),
        "{said}"
    );
    cluster.go();
    cluster.all_succeed(&[node]);
    assert_eq!(cluster.records().len(), 1);
}

#[test]
#[ignore = "starts a real torchrun: 10 s"]
fn rrun_that_joins_a_torchrun_says_why_it_cannot_and_does_no_harm() {
    let mut cluster = Cluster::new();
    let Some(mut torchrun) = Torchrun::start(cluster.port(), "2", cluster.folder()) else {
        return;
    };
    let (runtime, mut client) = client_of(cluster.port(), Duration::from_secs(60));
    runtime
        .block_on(client.get("torch.rendezvous.none"))
        .unwrap();
    let node = cluster.elastic("2", &[], &sh(RECORD));
    assert_eq!(cluster.end(node), 1);
    let said = cluster.stderr(node);
    assert!(
        said.contains("torchrun keeps the rendezvous") && said.contains("another --rdzv-id"),
        "{said}"
    );
    assert!(
        !torchrun.has_ended(),
        "it still waits for a second torchrun"
    );
}
