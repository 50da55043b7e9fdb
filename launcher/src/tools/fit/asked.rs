//! The evaluation that `fit` checks: the options of `rrun eval` that affect memory, under the same
//! names.

use std::ffi::OsString;
use std::path::PathBuf;

use jobs::assign::{Assign, Shard};

/// Options of `eval`.
#[derive(Debug, clap::Args)]
pub(super) struct AskedEvaluation {
    /// Jobs file, as in eval
    #[arg(long, value_name = "FILE", required_unless_present_any = ["config", "ppo"])]
    jobs: Option<PathBuf>,

    /// RLinf YAML, as in eval; later files override earlier ones
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,

    /// Override a setting of --config, e.g. env.eval.total_num_envs=8
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Placement: which GPU each rank and environment uses, e.g. 'env: 0-1, rollout: 2-3'
    #[arg(long, value_name = "PLACEMENT")]
    placement: Option<String>,

    /// Number of ranks that share a GPU
    #[arg(long, value_name = "N", conflicts_with = "placement", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers_per_gpu: Option<u32>,

    /// Override num_envs (or total_num_envs), the number of copies of the environment, in every job
    #[arg(long, value_name = "N")]
    num_envs: Option<usize>,

    /// Maximum number of rows per inference
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    max_batch: Option<usize>,

    /// Number of groups of environments that take turns
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pipeline_stages: Option<usize>,

    /// Rule that assigns work to ranks
    #[arg(long, value_enum, value_name = "RULE")]
    assign: Option<Assign>,

    /// Unit that the rule assigns to ranks
    #[arg(long, value_enum, value_name = "WHAT")]
    shard: Option<Shard>,

    /// Device of the policy; cpu needs no GPU
    #[arg(long, value_name = "DEVICE")]
    policy_device: Option<String>,

    /// Run folder of an earlier evaluation: memory is planned as its report has measured it
    #[arg(long, value_name = "RUN")]
    measured: Option<PathBuf>,
}

impl AskedEvaluation {
    /// Returns the equivalent command line of `eval`.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = Words(Vec::new());
        words.add("jobs", self.jobs.as_ref());
        self.config
            .iter()
            .for_each(|file| words.add("config", Some(file)));
        self.set.iter().for_each(|set| words.add("set", Some(set)));
        words.add("placement", self.placement.as_ref());
        words.number(
            "workers-per-gpu",
            self.workers_per_gpu.map(|ranks| ranks as usize),
        );
        words.number("num-envs", self.num_envs);
        words.number("max-batch", self.max_batch);
        words.number("pipeline-stages", self.pipeline_stages);
        words.name("assign", self.assign);
        words.name("shard", self.shard);
        words.add("policy-device", self.policy_device.as_ref());
        words.add("measured", self.measured.as_ref());
        words.0
    }
}

struct Words(Vec<OsString>);

impl Words {
    fn add<T: Clone + Into<OsString>>(&mut self, option: &str, value: Option<&T>) {
        let Some(value) = value else { return };
        let mut word = OsString::from(format!("--{option}="));
        word.push::<OsString>(value.clone().into());
        self.0.push(word);
    }

    fn number(&mut self, option: &str, value: Option<usize>) {
        self.add(option, value.map(|value| value.to_string()).as_ref());
    }

    fn name(&mut self, option: &str, value: Option<impl clap::ValueEnum>) {
        let name = value.and_then(|value| Some(value.to_possible_value()?.get_name().to_owned()));
        self.add(option, name.as_ref());
    }
}
