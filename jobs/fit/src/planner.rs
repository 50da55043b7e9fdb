//! Computes what each GPU will hold when jobs run on a placement, with their own numbers of
//! environments or with others.

use std::collections::{BTreeMap, BTreeSet};

use jobs::assign::{self, Assignment};
use jobs::job::{Job, JobIndex};
use jobs::placement::Placement;
use jobs::policies::{DECLARED_MEMORY, MemoryRule, PolicyType};
use jobs::table::Table;

use crate::amount::{GpuBudget, MemoryAmount, Need};
use crate::measured::{EnvironmentMemory, Measured};
use crate::policy::PolicyMemory;

/// Memory of a CUDA context in each process, with the kernels of libtorch, cuBLAS and NCCL that it
/// loads. This is an assumption: contexts of PyTorch take between 0.3 and 0.6 GiB depending on GPU
/// and CUDA version, and none was measured here.
const CONTEXT: u64 = 512 << 20;

/// The settings of the command line that affect memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryOptions {
    /// `--max-batch`: maximum rows of one inference; `None` means all rows of a group.
    pub max_batch: Option<usize>,
    /// `--pipeline-stages`, for jobs that do not set it.
    pub pipeline_stages: usize,
    /// `--policy-device cpu`.
    pub are_policies_on_cpu: bool,
    /// What an earlier run has measured.
    pub measured: Measured,
}

/// The jobs with their ranks, and what is known about their memory.
#[derive(Debug)]
pub struct MemoryPlanner<'a> {
    pub(super) jobs: &'a [Job],
    pub(super) placement: &'a Placement,
    terms: MemoryOptions,
    /// Memory of the GPUs by number, if it is known.
    pub(super) budgets: BTreeMap<usize, GpuBudget>,
    /// The ranks that run each job, by the job's position.
    pub(super) ranks: Vec<Vec<usize>>,
    pub(super) policies: Vec<PolicyMemory>,
    pub(super) environments: Vec<EnvironmentMemory>,
}

/// The memory of one job: a need for each rank and GPU.
pub(super) type Takes = Vec<(usize, Need)>;

impl<'a> MemoryPlanner<'a> {
    /// Creates a planner; reads the checkpoints of all jobs that are to run.
    pub fn new(
        jobs: &'a [Job],
        (placement, assignment): (&'a Placement, Assignment),
        terms: MemoryOptions,
        budgets: BTreeMap<usize, GpuBudget>,
    ) -> Self {
        let positions = jobs.iter().enumerate();
        let positions: BTreeMap<JobIndex, usize> =
            positions.map(|(nth, job)| (job.index, nth)).collect();
        let mut ranks = vec![Vec::new(); jobs.len()];
        for rank in 0..placement.world_size() {
            for work in assign::work(jobs, placement, assignment, rank) {
                if let Some(position) = positions.get(&work.job.index) {
                    ranks[*position].push(rank);
                }
            }
        }
        let is_needed = |nth: usize| !ranks[nth].is_empty() && !terms.are_policies_on_cpu;
        let mut policies: Vec<PolicyMemory> = Vec::with_capacity(jobs.len());
        for (nth, job) in jobs.iter().enumerate() {
            // Hundreds of jobs may share a checkpoint; its headers are read once.
            let is_same = |other: &usize| {
                let of = |job: &'a Job| (&job.policy_type, &job.policy_config);
                is_needed(*other) && of(&jobs[*other]) == of(job)
            };
            policies.push(match (0..nth).find(is_same) {
                _ if !is_needed(nth) => PolicyMemory::Elsewhere,
                Some(other) => policies[other].clone(),
                None => PolicyMemory::of(job, &terms.measured),
            });
        }
        let environments = jobs
            .iter()
            .map(|job| EnvironmentMemory::of(job, &terms.measured))
            .collect();
        Self {
            jobs,
            placement,
            terms,
            budgets,
            ranks,
            policies,
            environments,
        }
    }

    /// Returns what each used GPU will hold, ordered by its number.
    pub fn needs(&self) -> Vec<Need> {
        let takes: Vec<_> = (0..self.jobs.len())
            .map(|job| self.takes(job, self.jobs[job].num_envs, None))
            .collect();
        self.sum(&takes)
    }

    /// Returns a table for the terminal with one row per GPU: what it will hold, what is free, and
    /// whether that fits.
    pub fn table(&self) -> String {
        let row = |need: &Need| {
            let budget = self.budget(need.gpu);
            let free = budget.map(|budget| budget.free.to_string());
            [
                need.gpu.to_string(),
                need.weights.text(),
                need.activations.text(),
                need.graphs.text(),
                need.context.text(),
                need.environments.text(),
                need.sum().text(),
                free.unwrap_or_else(|| "unknown".to_owned()),
                need.fit(budget).text().to_owned(),
            ]
        };
        let rows: Vec<_> = self.needs().iter().map(row).collect();
        let head = [
            "GPU",
            "Weights",
            "Activations",
            "Graphs",
            "Context",
            "Environments",
            "Sum",
            "Free",
            "Fits",
        ];
        Table::first(head, rows, "GPU", ", see --json").grid()
    }

    /// Returns whether a rank runs more than one job.
    pub fn has_queues(&self) -> bool {
        let ranks = || self.ranks.iter().flatten();
        ranks().collect::<BTreeSet<_>>().len() < ranks().count()
    }

    /// Describes what is unknown about the jobs to run, and how to find it out: one line per
    /// environment or checkpoint.
    pub fn unknown(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let jobs = self.jobs.iter().enumerate();
        for (position, job) in jobs.filter(|(position, _)| !self.ranks[*position].is_empty()) {
            if self.environments[position].each.has_unknown {
                lines.push(format!(
                    "the GPU memory of environment `{}` is unknown: name a run that has measured it \
                     (--measured RUN), or set env_memory_gb in its arguments",
                    job.environment
                ));
            }
            if self.policies[position] == PolicyMemory::Unknown {
                lines.push(unknown_policy(job));
            }
        }
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert(line.clone()));
        lines
    }

    /// Returns the memory of a GPU, if it is known.
    pub fn budget(&self, gpu: usize) -> Option<GpuBudget> {
        self.budgets.get(&gpu).copied()
    }

    /// Returns the peak host memory of the ranks of one node, for jobs whose environments were
    /// measured.
    pub fn host(&self, ranks_of_node: usize) -> MemoryAmount {
        let takes = |position: usize| {
            let job = &self.jobs[position];
            let bytes = self
                .terms
                .measured
                .host(job, self.copies(position, job.num_envs));
            bytes.map_or(MemoryAmount::UNKNOWN, MemoryAmount::certain)
        };
        let of_rank = |rank: usize| {
            let jobs = (0..self.jobs.len()).filter(|job| self.ranks[*job].contains(&rank));
            jobs.map(takes)
                .fold(MemoryAmount::default(), MemoryAmount::or_larger)
        };
        (0..ranks_of_node.min(self.placement.world_size()))
            .map(of_rank)
            .fold(MemoryAmount::default(), |sum, part| sum + part)
    }

    /// Returns the number of rows that a rank infers together in a job with `num_envs`
    /// environments: those of one group.
    pub(super) fn rows(&self, job: usize, num_envs: usize) -> usize {
        let stages = self.jobs[job]
            .rollout
            .pipeline_stage_num
            .unwrap_or(self.terms.pipeline_stages)
            .max(1);
        self.copies(job, num_envs).div_ceil(stages)
    }

    /// Returns this number of rows, limited by `--max-batch`.
    pub(super) fn batch(&self, job: usize, num_envs: usize) -> usize {
        self.rows(job, num_envs)
            .min(self.terms.max_batch.unwrap_or(usize::MAX))
            .max(1)
    }

    /// Returns the memory of a job with `num_envs` environments and at most `batch` rows of one
    /// inference (`None`: the limit of the command line).
    pub(super) fn takes(&self, job: usize, num_envs: usize, batch: Option<usize>) -> Takes {
        self.ranks[job]
            .iter()
            .flat_map(|rank| self.takes_of_rank(job, *rank, num_envs, batch))
            .collect()
    }

    fn takes_of_rank(
        &self,
        job: usize,
        rank: usize,
        num_envs: usize,
        batch: Option<usize>,
    ) -> Takes {
        let rows = batch.unwrap_or_else(|| self.batch(job, num_envs)) as u64;
        let home = self.placement.rollout[rank].gpu();
        let total = self.budget(home).map(|budget| budget.total.0);
        let mut needs = BTreeMap::from([(home, self.policies[job].need(home, rows, total))]);
        let mut copies: BTreeMap<usize, usize> = BTreeMap::new();
        for seat in self.seats(job, rank, num_envs) {
            *copies.entry(seat.gpu).or_default() += 1;
        }
        for (gpu, count) in copies {
            let need = needs.entry(gpu).or_insert(Need::none(gpu));
            need.environments = self.environments[job].of_count(count);
        }
        needs.into_values().map(|need| (rank, need)).collect()
    }

    /// Returns how many of `num_envs` environments each rank of a job has.
    fn copies(&self, job: usize, num_envs: usize) -> usize {
        match self.jobs[job].total_num_envs {
            Some(_) => num_envs / self.placement.world_size().max(1),
            None => num_envs,
        }
    }

    fn seats(&self, job: usize, rank: usize, num_envs: usize) -> Vec<jobs::placement::Seat> {
        match self.jobs[job].total_num_envs {
            Some(_) => self.placement.seats(rank, num_envs),
            None => self.placement.home(rank, num_envs),
        }
    }

    /// Adds up jobs. A rank runs one job after the other, so only its largest job counts.
    pub(super) fn sum(&self, takes: &[Takes]) -> Vec<Need> {
        let mut largest: BTreeMap<(usize, usize), Need> = BTreeMap::new();
        for (rank, need) in takes.iter().flatten() {
            let most = largest.entry((need.gpu, *rank)).or_insert(*need);
            *most = most.or_larger(need);
        }
        let gpus = self.placement.gpus().into_iter();
        let mut needs: BTreeMap<_, _> = gpus.map(|gpu| (gpu, Need::none(gpu))).collect();
        for ((gpu, _), need) in largest {
            needs.entry(gpu).or_default().add(&need);
        }
        for process in &self.placement.rollout {
            let need = needs.entry(process.gpu()).or_default();
            need.context += MemoryAmount::estimated(CONTEXT);
        }
        needs.into_values().collect()
    }
}

/// Describes that nothing is known about the memory of a job's policy, and what helps.
fn unknown_policy(job: &Job) -> String {
    let rule = PolicyType::of(&job.policy_type).map(|policy| policy.row().memory);
    if rule == Some(MemoryRule::Declared) {
        return format!(
            "the GPU memory of the policy of job `{}` is unknown: set {DECLARED_MEMORY} in its \
             policy_config_dict",
            job.name
        );
    }
    format!(
        "the checkpoint of job `{}` cannot be read, so its memory is unknown",
        job.name
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use jobs::placement::{Components, Resources};
    use jobs::samples;
    use serde_json::{Value, json};

    const ON: Resources = Resources::Gpus {
        per_node: 4,
        nodes: 1,
    };
    const GIB: u64 = 1 << 30;

    fn placed(line: &str) -> Placement {
        Placement::new(&Components::parse(line).unwrap(), ON).unwrap()
    }

    /// Returns what jobs with these fields need where no budget is known.
    fn of(jobs: impl IntoIterator<Item = Value>, placement: &str) -> Vec<Need> {
        within(&samples::jobs(jobs), placement, BTreeMap::new())
    }

    fn within(jobs: &[Job], placement: &str, budgets: BTreeMap<usize, GpuBudget>) -> Vec<Need> {
        let (place, options) = (placed(placement), MemoryOptions::default());
        let place = (&place, Assignment::default());
        MemoryPlanner::new(jobs, place, options, budgets).needs()
    }

    fn gib(part: MemoryAmount) -> f64 {
        part.bytes.gib()
    }

    fn gr00t(name: &str, model: &Path) -> Value {
        json!({"name": name, "policy_type": "gr00t", "policy_config_dict": {"model_path": model},
               "arena_env_args": {"environment": "reach", "env_memory_gb": 1.0}})
    }

    #[test]
    fn environments_count_where_they_draw_and_contexts_where_policies_are() {
        let args = json!({"environment": "omnigibson_radio"});
        let job =
            json!({"arena_env_args": args, "policy_type": "zero_action", "total_num_envs": 4});
        let found = of([job], "env: 0-1, rollout: 2-3");
        let of_each = |need: &Need| (need.gpu, gib(need.environments), gib(need.context));
        let gib: Vec<_> = found.iter().map(of_each).collect();
        let wanted = [(0, 20.0, 0.0), (1, 20.0, 0.0), (2, 0.0, 0.5), (3, 0.0, 0.5)];
        assert_eq!(gib, wanted);
        let shown = found[0].text(Some(GpuBudget::whole(24 * GIB)));
        assert_eq!(shown, "memory: about 20.0 GiB of 24.0 GiB");
        let is_sure = found.iter().any(|need| need.sum().certain.0 > 0);
        assert!(!is_sure, "nothing of it was declared or measured");
    }

    #[test]
    fn a_checkpoint_counts_with_working_room_on_the_gpu_of_its_policy() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "pytorch_model.bin",
        ] {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            file.set_len(GIB).unwrap();
        }
        let args = json!({"environment": "reach", "env_memory_gb": 0.5, "num_envs": 4});
        let mut job = gr00t("a", dir.path());
        job["arena_env_args"] = args;
        let found = of([job], "env: 0, rollout: 1");
        assert_eq!(gib(found[0].environments), 2.0);
        assert_eq!(found[0].environments.certain.0, 2 * GIB);
        assert_eq!(gib(found[1].weights), 2.0);
        assert!((gib(found[1].activations) - 0.3).abs() < 1e-6 && !found[1].sum().has_unknown);
    }

    #[test]
    fn ranks_that_share_a_gpu_count_each() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let model = root.join("tests/fixtures/gr00t/case_a_single");
        let jobs = samples::jobs(["a", "b", "c"].map(|name| gr00t(name, &model)));
        let on = |placement: &str| {
            let budgets = BTreeMap::from([(0, GpuBudget::whole(16 * GIB))]);
            within(&jobs, placement, budgets).remove(0)
        };
        let alone = on("env: 0, rollout: 0");
        let two = on("env: 0:0-1, rollout: 0:0-1");
        assert_eq!(two.sum().bytes.0, 2 * alone.sum().bytes.0);
        let is_small = (1..GIB).contains(&alone.graphs.bytes.0);
        assert!(is_small, "the graphs of a small network, not their cap");
        assert_eq!(alone.context.bytes.0, CONTEXT);
    }

    #[test]
    fn of_jobs_one_after_the_other_the_largest_counts() {
        let job = |(name, gib): (&str, f64)| {
            let args = json!({"environment": "reach", "env_memory_gb": gib});
            json!({"name": name, "policy_type": "zero_action", "arena_env_args": args})
        };
        let jobs = [("a", 3.0), ("b", 1.0), ("c", 2.0)].map(job);
        let found = of(jobs, "env: 0:0-1, rollout: 0-1");
        // Rank 0 has jobs a and c, rank 1 has b, and both draw on GPU 0.
        assert_eq!(gib(found[0].environments), 4.0);
    }

    #[test]
    fn rows_of_one_inference_are_those_of_a_group() {
        let args = json!({"environment": "reach", "num_envs": 9});
        let jobs = samples::jobs([json!({"arena_env_args": args, "num_episodes": 9})]);
        let placement = placed("env: 0, rollout: 0");
        let rows = |stages: usize| {
            let terms = MemoryOptions {
                pipeline_stages: stages,
                ..MemoryOptions::default()
            };
            let place = (&placement, Assignment::default());
            MemoryPlanner::new(&jobs, place, terms, BTreeMap::new()).rows(0, 9)
        };
        assert_eq!([rows(1), rows(2), rows(4)], [9, 5, 3]);
    }
}
