//! Memory of environments and policies as an earlier run has measured it (a run is its own
//! measurement), and that of environments on the GPU that they render on, as far as it is known.

use std::path::Path;

use jobs::bytes::ByteSize;
use jobs::costs::Costs;
use jobs::environments::DECLARED_MEMORY;
use jobs::files::{self, MAX_DOCUMENT_BYTES};
use jobs::job::Job;
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use serde::Deserialize;
use serde_json::Value;

use crate::amount::MemoryAmount;

/// What the jobs of a run have measured.
#[derive(Clone, Debug, Default)]
pub struct Measured(Vec<MeasuredJob>);

#[derive(Clone, Debug)]
struct MeasuredJob {
    job: Job,
    /// Number of environments in a rank.
    copies: usize,
    /// The peaks are the largest of any rank.
    costs: Costs,
}

/// The part of `report.json` that is read.
#[derive(Deserialize)]
struct Report {
    per_job: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    costs: Costs,
}

impl Measured {
    /// Reads what a run has measured, from its plan and its report.
    ///
    /// # Errors
    /// Refuses a folder without a plan or a report.
    pub fn read(folder: &Path) -> Result<Self, Refusal> {
        let folder = RunFolder::new(folder);
        let plan = RunPlan::read(&folder)?;
        let path = folder.report();
        let report = files::read_json::<Report>(&path, MAX_DOCUMENT_BYTES).map_err(|err| {
            let hint = format!("`rrun report {}` writes it", folder.root().display());
            Refusal::in_file(&path, format_args!("{err}; {hint}"))
        })?;
        let measured = |Row { name, costs }: Row| {
            let job = plan.jobs.iter().find(|job| job.name == name)?.clone();
            let ranks = job.total_num_envs.map_or(1, |_| plan.world_size.max(1));
            let copies = (job.num_envs / ranks).max(1);
            Some(MeasuredJob { job, copies, costs })
        };
        Ok(Self(
            report.per_job.into_iter().filter_map(measured).collect(),
        ))
    }

    /// Returns the GPU memory of a job's environments, in proportion to their number. Only what was
    /// measured is certain: more environments may share some of it.
    pub(super) fn environment(&self, job: &Job) -> Option<EnvironmentMemory> {
        let (found, bytes) = self.of(job, |costs| costs.peak_env_vram_bytes)?;
        let each = bytes.div_ceil(found.copies as u64);
        let is_certain = !found.costs.env_vram_is_estimate;
        Some(EnvironmentMemory {
            each: MemoryAmount::estimated(each),
            certain: ByteSize(if is_certain { bytes } else { 0 }),
        })
    }

    /// Returns the memory of the host that a rank with this many environments of a job takes.
    pub(super) fn host(&self, job: &Job, copies: usize) -> Option<u64> {
        let (found, rank) = self.of(job, |costs| Some(costs.peak_rss_bytes))?;
        let processes = found.costs.peak_env_bytes.unwrap_or(0);
        let each = processes.div_ceil(found.copies as u64);
        Some(rank.saturating_add(each.saturating_mul(copies as u64)))
    }

    /// Returns what libtorch has reserved on the GPU for a job's policy.
    pub(super) fn policy(&self, job: &Job) -> Option<u64> {
        let is_same = |it: &&MeasuredJob| {
            (&it.job.policy_type, &it.job.policy_config) == (&job.policy_type, &job.policy_config)
        };
        let found = self.0.iter().filter(is_same);
        found
            .filter_map(|it| it.costs.peak_vram_bytes)
            .max()
            .filter(|bytes| *bytes > 0)
    }

    /// Returns the measurement of a job's environment with the most copies.
    fn of(&self, job: &Job, bytes: impl Fn(&Costs) -> Option<u64>) -> Option<(&MeasuredJob, u64)> {
        let found = self.0.iter().filter(|it| is_same_environment(&it.job, job));
        found
            .filter_map(|it| Some((it, bytes(&it.costs).filter(|bytes| *bytes > 0)?)))
            .max_by_key(|(it, bytes)| (it.copies, *bytes))
    }
}

/// Returns whether two jobs have the same environment with the same arguments; their declared memory
/// does not matter.
fn is_same_environment(a: &Job, b: &Job) -> bool {
    let arguments = |job: &Job| {
        let mut arguments = job.env_args.clone();
        arguments.remove(DECLARED_MEMORY);
        Value::Object(arguments)
    };
    (&a.environment, a.enable_cameras) == (&b.environment, b.enable_cameras)
        && arguments(a) == arguments(b)
}

/// Simulators in Python with published memory needs: a part of the environment's name, and GiB per
/// environment.
///
/// OmniGibson, which BEHAVIOR is built on, takes about 10 (RLinf's BEHAVIOR report: 11.5 before
/// tuning, 8.2 after it). s000 says 4 to 6, for its small scenes.
const PUBLISHED: &[(&str, f64)] = &[("omnigibson", 10.0), ("behavior", 10.0)];

/// The GPU memory of a job's environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnvironmentMemory {
    /// The memory of one.
    pub(super) each: MemoryAmount,
    /// How much of all together is certain.
    pub(super) certain: ByteSize,
}

impl EnvironmentMemory {
    /// Uses what the job declares in its arguments (`env_memory_gb`), otherwise what was measured,
    /// otherwise what is published.
    pub(super) fn of(job: &Job, measured: &Measured) -> Self {
        let declared = job.env_args.get(DECLARED_MEMORY).and_then(Value::as_f64);
        if let Some(ByteSize(each)) = declared.and_then(ByteSize::of_gib) {
            return Self {
                each: MemoryAmount::estimated(each),
                certain: ByteSize(u64::MAX),
            };
        }
        if let Some(found) = measured.environment(job) {
            return found;
        }
        let name = job.environment.to_lowercase();
        let published = PUBLISHED.iter().find(|(part, _)| name.contains(part));
        let each = published.and_then(|(_, gib)| ByteSize::of_gib(*gib));
        Self {
            each: each.map_or(MemoryAmount::UNKNOWN, |ByteSize(each)| {
                MemoryAmount::estimated(each)
            }),
            certain: ByteSize(0),
        }
    }

    /// Returns the memory of `count` environments in one rank; none take nothing.
    pub(super) fn of_count(&self, count: usize) -> MemoryAmount {
        let all = self.each * count as u64;
        MemoryAmount {
            certain: all.bytes.min(self.certain),
            ..all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::samples;
    use serde_json::json;

    const GIB: u64 = 1 << 30;

    /// Returns the measurement of jobs with these peaks.
    fn measured(rows: impl IntoIterator<Item = (Job, Value)>) -> Measured {
        let row = |(job, peaks): (Job, Value)| {
            let mut costs = json!(Costs::default());
            for (name, peak) in peaks.as_object().unwrap() {
                costs[name] = peak.clone();
            }
            MeasuredJob {
                copies: job.num_envs,
                costs: serde_json::from_value(costs).unwrap(),
                job,
            }
        };
        Measured(rows.into_iter().map(row).collect())
    }

    fn job(mut args: Value) -> Job {
        args["environment"] = json!("reach");
        samples::job(json!({"arena_env_args": args}))
    }

    #[test]
    fn an_environment_is_found_by_the_arguments_that_matter() {
        let peaks = json!({"peak_env_vram_bytes": 8});
        let all = measured([(job(json!({"camera_height": 64, "num_envs": 4})), peaks)]);
        let each = |args: Value| Some(all.environment(&job(args))?.each.bytes.0);
        let same = json!({"camera_height": 64, "env_memory_gb": 2.0, "num_envs": 8});
        assert_eq!(each(same), Some(2));
        assert_eq!(each(json!({"camera_height": 128})), None);
        assert_eq!(
            each(json!({"camera_height": 64, "enable_cameras": true})),
            None
        );
    }

    #[test]
    fn the_measurement_with_the_most_copies_counts() {
        let with = |envs: usize, bytes: u64| {
            let peaks = json!({"peak_rss_bytes": 100, "peak_env_bytes": bytes});
            (job(json!({"num_envs": envs})), peaks)
        };
        let all = measured([with(4, 200), with(1, 80)]);
        let host = |copies: usize| all.host(&job(json!({})), copies);
        assert_eq!(
            [host(1), host(4), host(8)],
            [Some(150), Some(300), Some(500)]
        );
    }

    #[test]
    fn a_policy_is_found_by_its_settings() {
        let policy = |path: &str| {
            let config = json!({"model_path": path});
            samples::job(json!({"policy_type": "exported", "policy_config_dict": config}))
        };
        let peaks = json!({"peak_vram_bytes": 7});
        let all = measured([
            (policy("/a"), peaks),
            (policy("/c"), json!({"peak_vram_bytes": 0})),
        ]);
        assert_eq!(
            ["/a", "/b", "/c"].map(|path| all.policy(&policy(path))),
            [Some(7), None, None]
        );
    }

    fn declaring(name: &str, declared: Value) -> Job {
        let args = json!({"environment": name, "num_envs": 4, "env_memory_gb": declared});
        samples::job(json!({"arena_env_args": args}))
    }

    #[test]
    fn the_job_goes_before_measurements_and_these_before_what_is_published() {
        let plain = declaring("omnigibson_radio", Value::Null);
        let of = |job: &Job, measured: &Measured| EnvironmentMemory::of(job, measured);
        let published = of(&plain, &Measured::default()).of_count(1);
        assert_eq!(published, MemoryAmount::estimated(10 * GIB));
        let peaks = json!({"peak_env_vram_bytes": 28 * GIB});
        let measured = measured([(plain.clone(), peaks)]);
        let found = of(&plain, &measured).of_count(2);
        assert_eq!(found, MemoryAmount::certain(14 * GIB));
        let shown = of(&declaring("omnigibson_radio", json!(2.5)), &measured).of_count(1);
        assert_eq!(shown, MemoryAmount::certain(5 * GIB / 2));
    }

    #[test]
    fn only_what_was_measured_is_certain() {
        let plain = declaring("reach", Value::Null);
        let peaks = |is_estimate| json!({"peak_env_vram_bytes": 4 * GIB, "env_vram_is_estimate": is_estimate});
        let certain = |is_estimate: bool| {
            let measured = measured([(plain.clone(), peaks(is_estimate))]);
            let found = EnvironmentMemory::of(&plain, &measured).of_count(8);
            assert_eq!(found.bytes.0, 8 * GIB);
            found.certain.0
        };
        assert_eq!([certain(false), certain(true)], [4 * GIB, 0]);
    }

    #[test]
    fn a_measurement_without_a_gpu_says_nothing_about_one() {
        let reach = declaring("reach", Value::Null);
        let measured = measured([(reach.clone(), json!({"peak_rss_bytes": GIB}))]);
        let found = EnvironmentMemory::of(&reach, &measured);
        assert_eq!(found.of_count(1), MemoryAmount::UNKNOWN);
        assert_eq!(found.of_count(0), MemoryAmount::default());
    }

    #[test]
    fn what_cannot_be_a_declaration_is_none() {
        for declared in [json!(-1.0), json!("two"), json!(1e300)] {
            let found =
                EnvironmentMemory::of(&declaring("reach", declared), &Measured::default()).each;
            assert_eq!(found, MemoryAmount::UNKNOWN);
        }
    }
}
