//! How much GPU memory a run will need: an estimate before anything is started, from what is known about checkpoints and
//! simulators. What is not known is said to be unknown.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::assign::{self, Assignment};
use crate::job::Job;
use crate::placement::Placement;

const GIB: f64 = (1_u64 << 30) as f64;

/// What a policy needs beside its weights, as a share of them: OpenVLA has 14 GB of bfloat16 weights and takes 14 to 16
/// GB (s000, "Per-Component Memory Usage").
const WORKING_ROOM: f64 = 0.15;

/// Simulators whose need is published, by a part of their environments' names, in GiB an environment.
///
/// OmniGibson, on which BEHAVIOR stands: about 10 (RLinf's BEHAVIOR report: 11.5 before tuning, 8.2 after it). s000 says 4
/// to 6, for its small scenes.
const SIMULATORS: &[(&str, f64)] = &[("omnigibson", 10.0), ("behavior", 10.0)];

/// Files of a checkpoint that hold weights.
const WEIGHTS: &[&str] = &["safetensors", "bin", "pt", "pth", "ts"];

/// Folders within a checkpoint that are looked into.
const DEPTH: usize = 3;

/// Use of a GPU above which it is tight: allocators fragment, and a simulator grows with its scene.
const TIGHT: f64 = 0.9;

/// What one GPU will hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The GPU, as the placement numbers it.
    pub gpu: usize,
    /// Policies, in GiB.
    pub policies_gib: f64,
    /// Environments, in GiB.
    pub envs_gib: f64,
    /// Something on it is not known, and so not in the figures.
    pub has_unknown: bool,
}

impl Estimate {
    /// All of it, in GiB.
    pub fn total_gib(&self) -> f64 {
        self.policies_gib + self.envs_gib
    }

    /// In words, beside what the GPU has.
    pub fn text(&self, capacity: Option<u64>) -> String {
        let known = self.total_gib() > 0.0;
        let need = match (known, self.has_unknown) {
            (true, false) => format!("about {:.1} GiB", self.total_gib()),
            (true, true) => format!("at least {:.1} GiB", self.total_gib()),
            (false, true) => "unknown".to_owned(),
            (false, false) => "little".to_owned(),
        };
        match capacity {
            Some(bytes) => format!("memory: {need} of {:.1} GiB", bytes as f64 / GIB),
            None => format!("memory: {need}, what the GPU has is unknown"),
        }
    }

    /// Whether it will hardly fit.
    pub fn is_tight(&self, capacity: u64) -> bool {
        self.total_gib() > TIGHT * capacity as f64 / GIB
    }
}

/// What each GPU that is used will hold, by its number. Looks at the checkpoints' files.
pub fn estimates(jobs: &[Job], placement: &Placement, assignment: Assignment) -> Vec<Estimate> {
    let of_rank = |rank| assign::work(jobs, placement, assignment, rank);
    let work: Vec<_> = (0..placement.world_size()).map(of_rank).collect();
    let of_gpu = |gpu: usize| {
        let mut estimate = Estimate { gpu, ..Estimate::default() };
        for (own, process) in work.iter().zip(&placement.rollout) {
            // A rank runs one job after the other: the largest counts.
            let policies = own.iter().filter(|_| process.gpu() == gpu).map(|work| policy_gib(&work.job));
            estimate.add(policies, |estimate| &mut estimate.policies_gib);
            let envs = own.iter().map(|work| {
                let count = work.seats.iter().filter(|seat| seat.gpu == gpu).count();
                if count == 0 { Some(0.0) } else { env_gib(&work.job).map(|each| each * count as f64) }
            });
            estimate.add(envs, |estimate| &mut estimate.envs_gib);
        }
        estimate
    };
    placement.tenants().into_keys().map(of_gpu).collect()
}

impl Estimate {
    fn add(&mut self, needs: impl Iterator<Item = Option<f64>>, to: impl Fn(&mut Self) -> &mut f64) {
        let needs: Vec<_> = needs.collect();
        self.has_unknown |= needs.contains(&None);
        *to(self) += needs.into_iter().flatten().fold(0.0, f64::max);
    }
}

/// GiB of one environment: `env_memory_gb` of its arguments, else what is published.
fn env_gib(job: &Job) -> Option<f64> {
    let said = job.env_args.get("env_memory_gb").and_then(Value::as_f64);
    let name = job.environment.to_lowercase();
    let known = || SIMULATORS.iter().find(|(part, _)| name.contains(part)).map(|(_, gib)| *gib);
    said.filter(|gib| *gib >= 0.0).or_else(known)
}

/// GiB of a policy: nothing without a checkpoint, unknown if there is one and it cannot be measured.
fn policy_gib(job: &Job) -> Option<f64> {
    if !["gr00t", "torchscript"].contains(&crate::known::canonical_policy(&job.policy_type)) {
        return Some(0.0);
    }
    let path = job.policy_config.get("model_path").and_then(Value::as_str)?;
    let bytes = weights(Path::new(path), DEPTH)?;
    Some(bytes as f64 / GIB * (1.0 + WORKING_ROOM))
}

/// Bytes of the weights in a file or folder; a checkpoint that has them in two formats loads one.
fn weights(path: &Path, depth: usize) -> Option<u64> {
    if path.is_file() {
        return Some(path.metadata().ok()?.len());
    }
    let mut by_format = vec![0; WEIGHTS.len()];
    add_weights(path, depth, &mut by_format);
    by_format.into_iter().max().filter(|bytes| *bytes > 0)
}

fn add_weights(folder: &Path, depth: usize, by_format: &mut [u64]) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if let Some(format) = WEIGHTS.iter().position(|weights| *weights == extension) {
            by_format[format] += path.metadata().map_or(0, |metadata| metadata.len());
        } else if depth > 0 && path.is_dir() {
            add_weights(&path, depth - 1, by_format);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Components, Resources};
    use serde_json::json;

    const ON: Resources = Resources::Gpus { per_node: 4, nodes: 1 };

    fn placed(line: &str) -> Placement {
        Placement::new(&Components::parse(line).unwrap(), ON).unwrap()
    }

    fn jobs(entries: Value) -> Vec<Job> {
        crate::file::parse(&json!({"jobs": entries})).unwrap()
    }

    fn omnigibson(total: usize) -> Vec<Job> {
        jobs(json!([{"name": "a", "arena_env_args": {"environment": "omnigibson_radio"}, "policy_type": "zero_action",
                     "total_num_envs": total}]))
    }

    #[test]
    fn environments_count_where_they_draw() {
        let found = estimates(&omnigibson(4), &placed("env: 0-1, rollout: 2-3"), Assignment::default());
        let gib: Vec<_> =
            found.iter().map(|estimate| (estimate.gpu, estimate.envs_gib, estimate.policies_gib)).collect();
        assert_eq!(gib, [(0, 20.0, 0.0), (1, 20.0, 0.0), (2, 0.0, 0.0), (3, 0.0, 0.0)]);
        assert_eq!(found[0].text(Some(24 << 30)), "memory: about 20.0 GiB of 24.0 GiB");
        assert!(!found[0].is_tight(24 << 30) && found[0].is_tight(22 << 30));
        assert_eq!(found[2].text(None), "memory: little, what the GPU has is unknown");
    }

    #[test]
    fn a_checkpoint_counts_with_working_room_on_the_gpu_of_its_policy() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "pytorch_model.bin"] {
            std::fs::File::create(dir.path().join(name)).unwrap().set_len(1 << 30).unwrap();
        }
        let entry = json!({"name": "a", "arena_env_args": {"environment": "reach", "env_memory_gb": 0.5, "num_envs": 4},
                           "policy_type": "gr00t", "policy_config_dict": {"model_path": dir.path()}, "num_episodes": 1});
        let found = estimates(&jobs(json!([entry])), &placed("env: 0, rollout: 1"), Assignment::default());
        assert_eq!((found[0].envs_gib, found[1].policies_gib), (2.0, 2.0 * 1.15));
        assert!(!found[1].has_unknown);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let entry = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "gr00t",
                           "policy_config_dict": {"model_path": "/nowhere"}, "num_episodes": 1});
        let found = estimates(&jobs(json!([entry])), &placed("env: 0, rollout: 0"), Assignment::default());
        assert_eq!(found[0].text(Some(1 << 30)), "memory: unknown of 1.0 GiB");
    }

    #[test]
    fn of_jobs_one_after_the_other_the_largest_counts() {
        let entry = |name: &str, gib: f64| {
            json!({"name": name, "policy_type": "zero_action", "num_episodes": 1,
                                                  "arena_env_args": {"environment": "reach", "env_memory_gb": gib}})
        };
        let entries = jobs(json!([entry("a", 3.0), entry("b", 1.0), entry("c", 2.0)]));
        let found = estimates(&entries, &placed("env: 0:0-1, rollout: 0-1"), Assignment::default());
        assert_eq!(found[0].envs_gib, 4.0, "rank 0 has jobs a and c, rank 1 has b, and both draw on GPU 0");
    }
}
