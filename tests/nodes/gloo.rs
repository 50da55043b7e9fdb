//! Tests of ranks with a real torch: one all-reduce over two nodes of two ranks each.

use std::env;
use std::path::PathBuf;

use crate::nodes::cluster::Cluster;

/// Prints each line with one write: with `PYTHONUNBUFFERED`, each argument of `print` is a separate
/// write, and the ranks share a file.
const ALL_REDUCE: &str = r"
import os, torch, torch.distributed as dist
dist.init_process_group('gloo')
total = torch.tensor([float(os.environ['RANK'])])
dist.all_reduce(total)
print(f'SUM {int(total.item())} OF {dist.get_world_size()}', flush=True)
dist.destroy_process_group()
";

/// Returns `RRUN_TEST_PYTHON` or the project's Python, if it can import torch: the minimal install
/// has libtorch, but not the NVIDIA libraries that Python needs for that.
pub fn python() -> Option<String> {
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/bin/python"));
    let python = env::var("RRUN_TEST_PYTHON").unwrap_or_else(|_| own.display().to_string());
    let imported = std::process::Command::new(&python)
        .args(["-c", "import torch"])
        .output();
    imported
        .is_ok_and(|output| output.status.success())
        .then_some(python)
}

fn sums(cluster: &Cluster) -> usize {
    [0, 1]
        .map(|node| cluster.stdout(node).matches("SUM 6 OF 4").count())
        .iter()
        .sum()
}

#[test]
fn four_ranks_on_two_static_nodes_reduce_a_sum() {
    let Some(python) = python() else {
        return eprintln!("skipped: no Python torch");
    };
    let mut cluster = Cluster::new();
    let program = ["--no-python", &python, "-c", ALL_REDUCE];
    let nodes = [0, 1].map(|rank| cluster.fixed(2, rank, &["--nproc-per-node", "2"], &program));
    cluster.all_succeed(&nodes);
    assert_eq!(sums(&cluster), 4);
}

#[test]
fn four_ranks_on_two_elastic_nodes_reduce_a_sum() {
    let Some(python) = python() else {
        return eprintln!("skipped: no Python torch");
    };
    let mut cluster = Cluster::new();
    let program = ["--no-python", &python, "-c", ALL_REDUCE];
    let nodes = [0, 1].map(|_| cluster.elastic("2", &["--nproc-per-node", "2"], &program));
    cluster.all_succeed(&nodes);
    assert_eq!(sums(&cluster), 4);
}
