//! The options of `rrun suite NAME --policy TYPE`, and the request that they make.

use jobs::experiment::Change;
use jobs::policies;
use jobs::refusal::Refusal;
use jobs::suites::{Request, SuiteRow};
use jobs::tree::overlay;
use serde_json::{Map, Value};

use crate::tools::list::policy::known;
use crate::tools::suite::venv;

/// What is to be evaluated, and what replaces the protocol.
#[derive(Debug, clap::Args)]
pub(super) struct Asked {
    /// Policy type of all jobs; `rrun list` lists them
    #[arg(long, value_name = "TYPE")]
    policy: Option<String>,

    /// A setting of the policy, e.g. model_path=models/mine; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "policy")]
    settings: Vec<String>,

    /// Tasks by number, range or name, e.g. 0-4,7 [default: all]
    #[arg(long, value_name = "LIST", requires = "policy")]
    tasks: Option<String>,

    /// Copies of the environment in each rank
    #[arg(long, value_name = "N", default_value_t = 1, requires = "policy",
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    num_envs: u64,

    /// Episodes of each task [default: those of the protocol]
    #[arg(long, value_name = "N", requires = "policy",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    episodes: Option<u64>,

    /// Steps after which an episode ends [default: those of the protocol]
    #[arg(long, value_name = "N", requires = "policy",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_episode_steps: Option<u64>,

    /// Seed [default: that of the protocol]
    #[arg(long, value_name = "N", requires = "policy",
          value_parser = clap::value_parser!(u64).range(0..=0x7fff_ffff))]
    seed: Option<u64>,

    /// Interpreter of the simulator, or the folder of its venv [default: .simulators/NAME]
    #[arg(long, value_name = "PATH", requires = "policy")]
    python: Option<String>,

    /// Mapping of cameras, states and actions to the names of the policy [default: the suite's]
    #[arg(long, value_name = "FILE", requires = "policy")]
    mapping: Option<String>,
}

impl Asked {
    pub(super) fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// Returns what is asked for, with settings that the policy accepts.
    pub(super) fn request(&self, suite: &'static SuiteRow) -> Result<Request, Refusal> {
        let name = self.policy().unwrap_or_default();
        let policy = known(name)?;
        let policy_config = self.settings()?;
        policies::check(policy, &policy_config).map_err(|err| {
            let policy = policy.name();
            Refusal::new(format_args!(
                "policy `{policy}`: {err}; use --set KEY=VALUE"
            ))
        })?;
        let tasks = match &self.tasks {
            Some(list) => suite.some_tasks(list)?,
            None => suite.all_tasks(),
        };
        Ok(Request {
            tasks,
            policy_type: name.to_owned(),
            policy_config,
            num_envs: self.num_envs,
            python: self.python.clone().unwrap_or_else(|| venv(suite)),
            mapping: self.mapping.clone(),
            episodes: self.episodes,
            max_episode_steps: self.max_episode_steps,
            seed: self.seed,
        })
    }

    /// Returns the settings of the policy.
    fn settings(&self) -> Result<Map<String, Value>, Refusal> {
        let mut settings = Map::new();
        for text in &self.settings {
            let setting = Change::setting(text).map_err(|err| err.inside("--set"))?;
            if let Value::Object(setting) = setting.tree() {
                overlay(&mut settings, setting);
            }
        }
        Ok(settings)
    }
}
