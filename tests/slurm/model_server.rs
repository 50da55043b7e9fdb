//! Tests of the model server in a jobs file, on nodes whose ranks are tasks.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::slurm::job::{Job, has_slurm};

/// Replaces the rank program, which would need libtorch: prints that it has reached the server of
/// its node.
const RANK: &str =
    "#!/bin/sh\n(exec 3<>/dev/tcp/127.0.0.1/1843$SLURM_NODEID) && echo rank $RANK met a server\n";

/// A server that records the node on which it started. Its port depends on the node, because in a
/// test several nodes may be one machine.
const SERVER: &str = "echo started >> starts.$SLURM_NODEID; sleep 1; exec python3 -m http.server 1843$SLURM_NODEID --bind 127.0.0.1";

fn write(folder: &Path) {
    let job = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 1});
    fs::write(folder.join("jobs.json"), json!({"jobs": [job]}).to_string()).expect("written");
    let url = "http://127.0.0.1:1843${oc.env:SLURM_NODEID}/";
    let config = json!({"model_server": {"command": SERVER, "health_url": url}}).to_string();
    fs::write(folder.join("server.yaml"), config).expect("written");
    let bin = folder.join("bin");
    fs::create_dir(&bin).expect("made");
    fs::copy(rig::rrun(), bin.join("rrun")).expect("copied");
    fs::write(bin.join("rrun-rank"), RANK.replace("/bin/sh", "/bin/bash")).expect("written");
    fs::set_permissions(bin.join("rrun-rank"), fs::Permissions::from_mode(0o755)).expect("ours");
}

#[track_caller]
fn one_server_a_node(tasks_a_node: usize, options: &str) {
    let launch =
        format!("srun bin/rrun {options} eval --jobs jobs.json --config server.yaml --output run");
    let tasks = format!("--ntasks-per-node={tasks_a_node}");
    let job = Job::submit(&["-N2", &tasks, "--hold"], &launch);
    write(job.folder());
    job.control(&["release"]);
    assert_eq!(job.lines("rank ").len(), 4, "{}", job.output());
    let starts = |node: usize| {
        fs::read_to_string(job.folder().join(format!("starts.{node}"))).unwrap_or_default()
    };
    assert_eq!(
        [starts(0), starts(1)],
        ["started\n", "started\n"],
        "{}",
        job.output()
    );
}

#[test]
#[ignore = "needs SLURM"]
fn a_launcher_a_node_starts_a_server_a_node() {
    if has_slurm() {
        one_server_a_node(1, "--nproc-per-node 2");
    }
}

#[test]
#[ignore = "needs SLURM"]
fn tasks_of_a_node_share_a_server() {
    if has_slurm() {
        one_server_a_node(2, "");
    }
}
