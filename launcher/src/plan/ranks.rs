//! The plan of each rank: its number, streams, variables and CPUs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::ValueEnum as _;
use jobs::say::{FORMAT_VARIABLE, QUIET_VARIABLE};

use crate::cli::int;
use crate::cli::{Cli, Environment};
use crate::cluster::slurm;
use crate::node::Node;
use crate::numa::{Machine, Mode, bind, no_gpu};
use crate::plan::eval::{EvalPlan, GPUS_VARIABLE};
use crate::plan::launch::Inputs;
use crate::plan::program::Program;
use crate::plan::{RankPlan, Streams};
use crate::say::Note;

/// The kernel's own limit on process ids (`PID_MAX_LIMIT`); a larger number is a typing error.
const MOST: usize = 4_194_304;

/// torchrun's note about OMP_NUM_THREADS (torch/distributed/run.py, torch 2.11). Tools look for
/// this text.
const OMP_NOTE: &str = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid \
    your system being overloaded, please further tune the variable for optimal performance in your application as needed.";

/// Returns the number of ranks that `--nproc-per-node` asks for on a node with `cpus` CPUs and
/// `gpus` visible GPUs.
///
/// # Errors
/// Returns an error if `given` is neither a positive number nor a kind of device that this node
/// has.
pub(super) fn nproc(given: &str, cpus: usize, gpus: usize) -> anyhow::Result<usize> {
    if let Some(found) = int(given) {
        let count = usize::try_from(found).ok();
        let count = count.filter(|count| (1..=MOST).contains(count));
        return count
            .with_context(|| format!("nproc_per_node must be between 1 and {MOST}, got {found}"));
    }
    match given {
        "gpu" | "auto" if gpus > 0 => Ok(gpus),
        "cpu" | "auto" => Ok(cpus),
        "gpu" => bail!("Cuda is not available."),
        "xpu" => bail!("Xpu is not available."),
        _ => bail!("Unsupported nproc_per_node value: {given}"),
    }
}

/// The options that differ by rank.
#[derive(Clone, Debug)]
pub(super) struct RankOptions {
    /// Ranks on the console; `None` for all.
    shown: Option<Vec<i64>>,
    redirects: StreamMap,
    tee: StreamMap,
}

impl RankOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// Returns an error for an invalid list or map.
    pub(super) fn new(cli: &Cli) -> anyhow::Result<RankOptions> {
        let filter = cli.local_ranks_filter.as_str();
        let shown: Option<Vec<i64>> = filter.split(',').map(int).collect();
        let shown = match (filter, shown) {
            ("", _) => None,
            (_, Some(ranks)) => Some(ranks),
            (_, None) => bail!(
                "--local_ranks_filter must be a comma-separated list of integers e.g. \
                 --local_ranks_filter=0,1,2"
            ),
        };
        Ok(RankOptions {
            shown,
            redirects: StreamMap::parse(&cli.redirects)?,
            tee: StreamMap::parse(&cli.tee)?,
        })
    }

    /// Returns whether a stream of any rank is to go to a file.
    pub(super) fn want_files(&self) -> bool {
        !(self.redirects.is_none() && self.tee.is_none())
    }

    /// Returns the plans of `nproc` ranks. With `without_files` no stream goes to a file.
    ///
    /// # Errors
    /// Returns an error for a virtual rank without a GPU, and if ranks cannot be bound to CPUs.
    pub(super) fn plan(
        &self,
        inputs: Inputs<'_>,
        nproc: usize,
        program: &Program,
        without_files: bool,
    ) -> anyhow::Result<Vec<RankPlan>> {
        let Inputs {
            cli, env, found, ..
        } = inputs;
        let task = found.task.as_ref();
        // Such a task sees only its GPUs, of which the first is device 0 already.
        let has_own_devices = task.is_some_and(|task| task.has_own_devices);
        let is_virtual = cli.virtual_local_rank && !has_own_devices;
        let first = task.map_or(0, |task| task.local_id);
        let mut ranks = Vec::new();
        for local_rank in first..first + nproc {
            let (redirect, tee) = match without_files {
                true => <(Streams, Streams)>::default(),
                false => (self.redirects.of(local_rank), self.tee.of(local_rank)),
            };
            let mut variables = of_rank(env, local_rank, is_virtual)?;
            if let Some(task) = task {
                variables.extend(slurm::variables(task, env));
            }
            let is_it = |rank: &i64| usize::try_from(*rank) == Ok(local_rank);
            ranks.push(RankPlan {
                local_rank,
                argv: program.argv(local_rank),
                env: variables,
                // Teed streams also go to a file.
                redirect: redirect.or(tee),
                tee,
                cpus: None,
                shown: self
                    .shown
                    .as_ref()
                    .is_none_or(|ranks| ranks.iter().any(is_it)),
            });
        }
        if let Some(mode) = cli.numa_binding {
            let name = mode.to_possible_value();
            let name = name.as_ref().map_or("", |name| name.get_name());
            let bound = bind_all(mode, env, inputs.node, &mut ranks);
            bound.map_err(|err| anyhow!("--numa-binding {name}: {err:#}"))?;
        }
        Ok(ranks)
    }
}

/// The output streams that `-r` or `-t` selects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StreamMap {
    /// Those of ranks that are not listed.
    others: Streams,
    /// Those of listed ranks. If a rank is repeated, the last entry counts.
    by_rank: Vec<(usize, Streams)>,
}

impl StreamMap {
    /// Parses a digit from `0` to `3`, or a map such as `0:3,1:2`. As in torchrun, a rank in a map
    /// has a single digit.
    fn parse(given: &str) -> anyhow::Result<StreamMap> {
        // Torchrun's pattern ends in `$`, which accepts a trailing line break.
        let text = given.strip_suffix('\n').unwrap_or(given);
        let digit = |text: &str, most: u8| match text.as_bytes() {
            [digit @ b'0'..=b'9'] => Some(digit - b'0').filter(|digit| *digit <= most),
            _ => None,
        };
        let streams = |text: &str| {
            let bits = digit(text, 3)?;
            Some(Streams {
                stdout: bits & 1 != 0,
                stderr: bits & 2 != 0,
            })
        };
        if let Some(others) = streams(text) {
            let by_rank = Vec::new();
            return Ok(StreamMap { others, by_rank });
        }
        let entry = |part: &str| {
            let (rank, bits) = part.split_once(':')?;
            Some((digit(rank, 9)?.into(), streams(bits)?))
        };
        let by_rank: Option<Vec<_>> = text.split(',').map(entry).collect();
        Ok(StreamMap {
            others: Streams::default(),
            by_rank: by_rank.with_context(|| {
                format!(r"{given} does not match: <^[0123]$> or <^(\d:[0123],)*(\d:[0123])$>")
            })?,
        })
    }

    fn of(&self, local_rank: usize) -> Streams {
        let entry = self.by_rank.iter().rfind(|(rank, _)| *rank == local_rank);
        entry.map_or(self.others, |(_, streams)| *streams)
    }

    /// Returns whether no stream of any rank is selected.
    fn is_none(&self) -> bool {
        let none = Streams::default();
        self.others == none && self.by_rank.iter().all(|(_, streams)| *streams == none)
    }
}

/// Returns the variables of one rank. With `is_virtual` each rank sees only its own GPU, as device
/// 0.
fn of_rank(
    env: &Environment,
    local_rank: usize,
    is_virtual: bool,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::from([("LOCAL_RANK".to_owned(), local_rank.to_string())]);
    if is_virtual {
        let device = match env.visible_devices() {
            None => local_rank.to_string(),
            Some(list) => match list.split(',').nth(local_rank) {
                Some(item) => item.trim().to_owned(),
                None => bail!(
                    "local_rank {local_rank} exceeds available GPUs in CUDA_VISIBLE_DEVICES={list}"
                ),
            },
        };
        variables.insert("LOCAL_RANK".to_owned(), "0".to_owned());
        variables.insert("CUDA_VISIBLE_DEVICES".to_owned(), device);
    }
    Ok(variables)
}

/// Returns the variables of all ranks that are known before the start, and a note if torchrun's
/// thread rule took effect.
pub(super) fn shared_variables(
    inputs: Inputs<'_>,
    nproc: usize,
    eval: Option<&EvalPlan>,
) -> (BTreeMap<String, String>, Option<Note>) {
    let Inputs { cli, env, .. } = inputs;
    let mut variables = BTreeMap::new();
    let mut set =
        |name: &str, value: &str| drop(variables.insert(name.to_owned(), value.to_owned()));
    let has_one_thread = nproc > 1 && !env.has("OMP_NUM_THREADS");
    if has_one_thread {
        set("OMP_NUM_THREADS", "1");
    }
    if !env.has("TORCH_NCCL_ASYNC_ERROR_HANDLING") {
        set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    }
    let Some(eval) = eval else {
        return (variables, has_one_thread.then(|| Note::info(OMP_NOTE)));
    };
    set(GPUS_VARIABLE, &eval.gpus.to_string());
    if let Some(format) = &cli.log_format {
        set(FORMAT_VARIABLE, format);
    }
    if cli.quiet {
        set(QUIET_VARIABLE, "1");
    }
    // Lets libtorch's threads sleep while they wait. GNU's threads spin by default and take cores
    // from the simulators, which made one rank with two threads eleven times slower than with one.
    if !env.has("OMP_WAIT_POLICY") && !env.has("GOMP_SPINCOUNT") {
        set("OMP_WAIT_POLICY", "passive");
    }
    // The default of threads is right for the built-in program, so there is nothing to tune.
    (variables, None)
}

/// Chooses the CPUs of each rank. The GPU of a rank is the visible GPU at its local rank, or the
/// only GPU that a task of SLURM sees.
fn bind_all(
    mode: Mode,
    env: &Environment,
    node: &Node,
    ranks: &mut [RankPlan],
) -> anyhow::Result<()> {
    let gpus = node.whole_gpus(env.visible_devices().as_deref());
    ensure!(!gpus.is_empty(), no_gpu(0, 0));
    let address = |&gpu: &usize| match node.gpus[gpu].address.as_str() {
        "" => Err(anyhow!("the bus address of GPU {gpu} is not known")),
        address => Ok(address),
    };
    let addresses = gpus.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    let machine = Machine::read(Path::new("/sys"), &addresses, Machine::allowed())?;
    let is_alone = ranks.len() == 1 && machine.gpus.len() == 1;
    for rank in ranks {
        let gpu = if is_alone { 0 } else { rank.local_rank };
        rank.cpus = Some(bind(mode, &machine, gpu)?);
    }
    Ok(())
}
