//! Applies `--numa-binding`: chooses the CPUs of each rank.

use std::path::Path;

use anyhow::anyhow;

use crate::cli::{Cli, Environment};
use crate::node::Node;
use crate::numa::error::NumaError;
use crate::numa::{Machine, Mode, bind};
use crate::plan::RankPlan;

/// Binds `ranks` if that is asked for. The GPU of a rank is the visible GPU at its local rank, or
/// the only GPU that a task of SLURM sees.
///
/// # Errors
/// Returns an error if the node lacks the GPUs or has too few CPUs.
pub fn place(
    cli: &Cli,
    env: &Environment,
    node: &Node,
    ranks: &mut [RankPlan],
) -> anyhow::Result<()> {
    let Some(name) = &cli.numa_binding else {
        return Ok(());
    };
    let refused = |err| anyhow!("--numa-binding {name}: {err}");
    let Some(mode) = Mode::parse(name) else {
        return Ok(());
    };
    let machine = machine(env, node).map_err(refused)?;
    let is_alone = ranks.len() == 1 && machine.gpus.len() == 1;
    for rank in ranks {
        let gpu = if is_alone { 0 } else { rank.local_rank };
        rank.cpus = Some(bind(mode, &machine, gpu).map_err(refused)?);
    }
    Ok(())
}

fn machine(env: &Environment, node: &Node) -> Result<Machine, NumaError> {
    let visible_devices = env
        .get("CUDA_VISIBLE_DEVICES")
        .map(|list| list.to_string_lossy());
    let gpus = node.whole_gpus(visible_devices.as_deref());
    if gpus.is_empty() {
        return Err(NumaError::NoGpu {
            local_rank: 0,
            visible: 0,
        });
    }
    let address = |&gpu: &usize| match node.gpus[gpu].address.as_str() {
        "" => Err(NumaError::NoAddress(gpu)),
        address => Ok(address),
    };
    let addresses = gpus.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    Machine::read(Path::new("/sys"), &addresses, Machine::allowed())
}
