//! Tests of ranks with a real torch: one all-reduce over two nodes of two ranks each.

use rig::need::{Need, need};

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

/// Two nodes of a kind reduce a sum.
#[track_caller]
fn reduce_a_sum(is_static: bool) {
    if !need(Need::Torch) {
        return;
    }
    let mut cluster = Cluster::new();
    for rank in [0, 1] {
        let node = match is_static {
            true => cluster.fixed_node(rank, "2 --nproc-per-node 2"),
            false => cluster.elastic_node("2 --nproc-per-node 2"),
        };
        cluster.start(node.python(ALL_REDUCE));
    }
    cluster.all_end_with(0, &[0, 1]);
    let said = cluster.stdout(0) + &cluster.stdout(1);
    assert_eq!(said.matches("SUM 6 OF 4").count(), 4, "{said}");
}

#[test]
fn four_ranks_on_two_static_nodes_reduce_a_sum() {
    reduce_a_sum(true);
}

#[test]
fn four_ranks_on_two_elastic_nodes_reduce_a_sum() {
    reduce_a_sum(false);
}
