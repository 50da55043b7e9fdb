//! The placement seen by this rank: its jobs, its devices, and the places of its environments.

use jobs::assign::{self, Assignment, Work};
use jobs::bytes::ByteSize;
use jobs::eval_args::EvalArgs;
use jobs::job::Job;
use jobs::placement::{Placement, Resources};
use jobs::rank_env::RankEnv;
use jobs::refusal::Refusal;
use jobs::setup::Setup;
use tch::Device;

use crate::device::{self, Decision, DeviceRequest, Placed, VisibleDevices, gpu};
use crate::env::Gpu;
use torchlib::{TorchError, cuda};

/// The placement of the ranks, and this rank's work.
#[derive(Clone, Debug, PartialEq)]
pub struct RankPlacement {
    /// Device of each rank and of its environments; one GPU for each rank if nothing is placed.
    placement: Placement,
    resources: Resources,
    is_placed: bool,
    assignment: Assignment,
    /// The jobs, or parts of jobs, that this rank runs.
    pub work: Vec<Work>,
}

impl RankPlacement {
    /// Computes the placement as the launcher does, or from the GPUs that CUDA shows under another
    /// launcher.
    ///
    /// # Errors
    /// Returns an error if the placement is for another number of ranks, and the errors of
    /// [`Setup::placement`] and [`Setup::check`].
    pub fn new(setup: &Setup, env: &RankEnv, visible: &VisibleDevices) -> Result<Self, Refusal> {
        let seen = visible.as_ref().unwrap_or(&0);
        let gpus_per_node = env.gpus_per_node.unwrap_or(*seen);
        let resources = Resources::new(gpus_per_node, env.group_world_size);
        let placed = setup.placement(resources)?;
        let is_placed = placed.is_some();
        let placement = placed.unwrap_or_else(|| Placement::of_ranks(vec![0; env.world_size]));
        if placement.world_size() != env.world_size {
            return Err(Refusal::new(format_args!(
                "the placement has {} rollout worker(s), each of which is a rank, but WORLD_SIZE \
                 is {}",
                placement.world_size(),
                env.world_size
            )));
        }
        setup.check(&placement)?;
        let assignment = setup.assignment;
        let work = assign::work(&setup.file.jobs, &placement, assignment, env.rank);
        Ok(Self {
            placement,
            resources,
            is_placed,
            assignment,
            work,
        })
    }

    /// Returns the GPU that the placement or `--workers-per-gpu` assigns to this rank.
    pub fn placed(&self, args: &EvalArgs, env: &RankEnv) -> Option<Placed> {
        if self.is_placed {
            let gpu = self.placement.rollout.get(env.rank)?.gpu();
            let reason = format!("rollout worker {} is placed on GPU {gpu}", env.rank);
            return Some(Placed {
                device: self.resources.device(gpu)?,
                reason,
            });
        }
        let (per_gpu, local_rank) = (args.workers_per_gpu? as usize, env.local_rank?);
        let reason = format!("LOCAL_RANK={local_rank}, {per_gpu} ranks share a GPU");
        Some(Placed {
            device: local_rank / per_gpu,
            reason,
        })
    }

    /// Returns the number of ranks that compute on this rank's GPU, including itself. If a rank
    /// sees a single GPU, that may be a different one for each rank, so it counts as its own.
    pub fn ranks_on_gpu(&self, args: &EvalArgs, env: &RankEnv, visible: &VisibleDevices) -> usize {
        if let Some(own) = self.placement.rollout.get(env.rank)
            && self.is_placed
        {
            let rollout = self.placement.rollout.iter();
            return rollout.filter(|other| other.gpu() == own.gpu()).count();
        }
        match (args.workers_per_gpu, visible) {
            (Some(per_gpu), _) => per_gpu as usize,
            (None, Ok(count)) if *count > 1 => env.local_world_size.div_ceil(*count),
            _ => 1,
        }
    }

    /// Sets this rank's work from the jobs of the settled plan, after its device is known.
    pub fn settle(&mut self, jobs: &[Job], env: &RankEnv, device: Device) {
        if !self.is_placed {
            self.placement = Placement::of_ranks(vec![gpu::number(device); env.world_size]);
        }
        self.work = assign::work(jobs, &self.placement, self.assignment, env.rank);
    }

    /// Returns the GPUs on which the environments of `work` run: each on that of its worker, or on
    /// the policy's `device` if nothing is placed.
    pub fn env_gpus(&self, work: &Work, device: Device) -> Vec<Option<Gpu>> {
        let own = |gpu: usize| match (self.is_placed, self.resources.device(gpu)) {
            (true, Some(index)) => Device::Cuda(index),
            (true, None) => Device::Cpu,
            (false, _) => device,
        };
        let seats = work.seats.iter();
        seats.map(|seat| gpu::of_machine(own(seat.gpu))).collect()
    }
}

/// Selects the device of a rank with this `work` and makes it current, before anything else uses
/// CUDA. `placed` is the GPU that the placement assigns to it.
///
/// # Errors
/// Returns an error if the requested device does not exist.
pub fn decide(
    args: &EvalArgs,
    env: &RankEnv,
    work: &[Work],
    placed: Option<Placed>,
) -> Result<Decision, Refusal> {
    let request = DeviceRequest {
        local_rank: env.local_rank,
        local_world_size: env.local_world_size,
        policy_device_id: args.policy_device_id,
        policy_device: args.policy_device.clone(),
        config_device: work
            .iter()
            .find_map(|work| device::of_config(&work.job.policy_config)),
        placed,
    };
    gpu::decide(&request)
}

/// Limits libtorch to `bytes` of GPU memory, divided among the `ranks` on that GPU, and returns a
/// line that says so. Call it before a policy is loaded, because the limit does not release memory
/// that is already allocated. Returns `None` on a CPU, where nothing is limited.
///
/// # Errors
/// Returns an error if the driver does not answer.
pub fn limit(device: Device, bytes: ByteSize, ranks: usize) -> Result<Option<String>, TorchError> {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return Ok(None);
    };
    let own = part(bytes, ranks);
    cuda.limit(index, own.0)?;
    let shared = if ranks > 1 {
        format!(", one part in {ranks} of --gpu-memory")
    } else {
        String::new()
    };
    Ok(Some(format!(
        "libtorch uses at most {own} of {}{shared}",
        gpu::name(device)
    )))
}

fn part(bytes: ByteSize, ranks: usize) -> ByteSize {
    ByteSize(bytes.0 / (ranks as u64).max(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn placed_rank(words: &[&str], env: &RankEnv, gpus: usize) -> Result<RankPlacement, Refusal> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("behavior.yaml");
        std::fs::write(&path, "env: {eval: {environment: reach, total_num_envs: 4}}\nrollout: {policy_type: scripted}")
            .unwrap();
        let words = ["--config", path.to_str().unwrap()]
            .into_iter()
            .chain(words.iter().copied());
        let args = EvalArgs::parse_words(&words.map(Into::into).collect::<Vec<_>>()).unwrap();
        RankPlacement::new(&Setup::read(&args, &|_| None).unwrap(), env, &Ok(gpus))
    }

    fn rank_env(rank: usize, world_size: usize) -> RankEnv {
        let env = RankEnv::read(|name| match name {
            "RANK" | "LOCAL_RANK" => Some(rank.to_string()),
            "WORLD_SIZE" | "LOCAL_WORLD_SIZE" => Some(world_size.to_string()),
            "MASTER_ADDR" => Some("::1".to_owned()),
            "MASTER_PORT" => Some("1".to_owned()),
            _ => None,
        });
        env.unwrap()
    }

    fn args(words: &[&str]) -> EvalArgs {
        let words = [&["--jobs", "x"], words].concat();
        let words: Vec<_> = words.iter().map(Into::into).collect();
        EvalArgs::parse_words(&words).unwrap()
    }

    fn seats(placement: &RankPlacement) -> Vec<(usize, usize, usize)> {
        let seats = placement.work[0].seats.iter();
        seats
            .map(|seat| (seat.worker, seat.gpu, seat.env))
            .collect()
    }

    #[test]
    fn a_placed_rank_is_on_the_gpu_of_its_rollout_worker_and_its_environments_on_theirs() {
        let placement = placed_rank(
            &["--placement", "env: 0-1, rollout: 2-3"],
            &rank_env(1, 2),
            4,
        )
        .unwrap();
        let placed = placement.placed(&args(&[]), &rank_env(1, 2)).unwrap();
        assert_eq!(
            (placed.device, placed.reason.as_str()),
            (3, "rollout worker 1 is placed on GPU 3")
        );
        assert_eq!(seats(&placement), [(1, 1, 0), (1, 1, 1)]);
    }

    #[test]
    fn the_ranks_of_uneven_nodes_agree_on_their_placement() {
        // srun -N2 -n4, with three ranks on the first node and one on the second.
        let words = ["--placement", "env: all, rollout: 0:0-2,1:3"];
        let of = |rank, local_world_size| {
            let env = RankEnv {
                local_world_size,
                group_world_size: 2,
                ..rank_env(rank, 4)
            };
            placed_rank(&words, &env, 1).unwrap().placement
        };
        assert_eq!(of(0, 3).env.len(), 2);
        assert_eq!(of(3, 1), of(0, 3));
    }

    #[test]
    fn ranks_share_a_gpu_in_blocks() {
        let placement = placed_rank(&[], &rank_env(3, 4), 2).unwrap();
        assert_eq!(placement.placed(&args(&[]), &rank_env(3, 4)), None);
        let placed = placement
            .placed(&args(&["--workers-per-gpu", "2"]), &rank_env(3, 4))
            .unwrap();
        assert_eq!(placed.device, 1);
        for (words, count, ranks) in [
            (&["--workers-per-gpu", "2"][..], 8, 2),
            (&[], 8, 1),
            (&[], 2, 2),
            (&[], 1, 1),
        ] {
            let visible = Ok(count);
            let found = placement.ranks_on_gpu(&args(words), &rank_env(3, 4), &visible);
            assert_eq!(found, ranks, "{words:?} of {count}");
        }
    }

    #[test]
    fn policies_that_are_placed_on_one_gpu_share_it() {
        for (placement, ranks) in [
            ("env: 0-1, rollout: 2:0-1", 2),
            ("env: 0-1, rollout: 2-3", 1),
        ] {
            let placement = placed_rank(&["--placement", placement], &rank_env(1, 2), 4).unwrap();
            let visible = Ok(4);
            let found = placement.ranks_on_gpu(&args(&[]), &rank_env(1, 2), &visible);
            assert_eq!(found, ranks);
        }
    }

    #[test]
    fn without_a_placement_a_worker_is_a_rank_on_the_device_it_got() {
        let mut placement = placed_rank(&[], &rank_env(1, 2), 4).unwrap();
        let jobs: Vec<_> = placement.work.iter().map(|work| work.job.clone()).collect();
        placement.settle(&jobs, &rank_env(1, 2), Device::Cuda(1));
        assert_eq!(seats(&placement), [(1, 1, 0), (1, 1, 1)]);
    }

    #[test]
    fn another_number_of_ranks_than_the_placement_has_is_refused() {
        let err = placed_rank(
            &["--placement", "env: 0-1, rollout: 2-3"],
            &rank_env(0, 4),
            4,
        )
        .unwrap_err()
        .to_string();
        assert!(
            err.starts_with("the placement has 2 rollout worker(s)")
                && err.ends_with("but WORLD_SIZE is 4"),
            "{err}"
        );
    }

    #[test]
    fn ranks_on_one_gpu_divide_its_memory_and_a_cpu_has_none_to_limit() {
        let gib = |count: u64| ByteSize(count << 30);
        assert_eq!(
            [part(gib(12), 3), part(gib(12), 1), part(gib(12), 0)],
            [gib(4), gib(12), gib(12)]
        );
        assert_eq!(limit(Device::Cpu, gib(12), 1).unwrap(), None);
    }

    #[test]
    fn a_jobs_device_id_comes_before_its_device() {
        let job = |config| {
            let jobs = crate::eval::tests::jobs([json!({"policy_config_dict": config})]);
            device::of_config(&jobs[0].policy_config)
        };
        assert_eq!(
            job(json!({"policy_device": "cuda:2", "policy_device_id": 1})).as_deref(),
            Some("cuda:1")
        );
        assert_eq!(
            job(json!({"policy_device": "cuda:2"})).as_deref(),
            Some("cuda:2")
        );
        assert_eq!(job(json!({})), None);
    }
}
