//! Writes the jobs file of a suite.

use serde_json::{Map, Value, json};

use crate::job::Suite;
use crate::suites::{Numbers, SuiteRow, TaskChoice};

/// What to evaluate on a suite, and what replaces its protocol.
#[derive(Clone, Debug)]
pub struct Request {
    /// The tasks.
    pub tasks: TaskChoice,
    /// The `policy_type` of all jobs.
    pub policy_type: String,
    /// The `policy_config_dict` of all jobs.
    pub policy_config: Map<String, Value>,
    /// Copies of the environment in a rank.
    pub num_envs: u64,
    /// Interpreter of the simulator, or the folder of its venv.
    pub python: String,
    /// A mapping that replaces the one of the suite.
    pub mapping: Option<String>,
    /// Episodes of each task, if not those of the protocol.
    pub episodes: Option<u64>,
    /// Steps of an episode, if not those of the protocol.
    pub max_episode_steps: Option<u64>,
    /// The seed, if not that of the protocol.
    pub seed: Option<u64>,
}

impl SuiteRow {
    /// Returns the jobs file that evaluates a policy on this suite.
    pub fn jobs_file(&self, request: &Request) -> Value {
        let label = Suite {
            name: self.name.to_owned(),
            protocol: self.protocol.version.to_owned(),
            overrides: self.overrides(request),
        };
        let tasks = request.tasks.numbers().iter();
        let jobs: Vec<Value> = tasks.map(|task| self.job(*task, request, &label)).collect();
        json!({"jobs": jobs})
    }

    fn job(&self, task: usize, request: &Request, label: &Suite) -> Value {
        let numbers = self.numbers(request);
        let mut environment = (self.environment)(self, task, &numbers);
        environment["python"] = request.python.clone().into();
        if let Some(mapping) = &request.mapping {
            environment["mapping"] = mapping.clone().into();
        }
        environment["max_episode_steps"] = numbers.max_episode_steps.into();
        environment["pass_episode"] = true.into();
        environment["num_envs"] = request.num_envs.into();
        json!({
            "name": self.job_name(task),
            "suite": label,
            "arena_env_args": environment,
            "policy_type": request.policy_type,
            "policy_config_dict": request.policy_config,
            "num_episodes": numbers.episodes,
            "seed": numbers.seed,
        })
    }

    /// Returns the numbers of the protocol, with those of the request in their place.
    fn numbers(&self, request: &Request) -> Numbers {
        let numbers = self.protocol.numbers;
        Numbers {
            episodes: request.episodes.unwrap_or(numbers.episodes),
            max_episode_steps: request
                .max_episode_steps
                .unwrap_or(numbers.max_episode_steps),
            seed: request.seed.unwrap_or(numbers.seed),
        }
    }

    /// Returns the names of what differs from the protocol.
    fn overrides(&self, request: &Request) -> Vec<String> {
        let (numbers, asked) = (self.protocol.numbers, self.numbers(request));
        let differs = [
            ("tasks", request.tasks != TaskChoice::all(self)),
            ("num_episodes", asked.episodes != numbers.episodes),
            (
                "max_episode_steps",
                asked.max_episode_steps != numbers.max_episode_steps,
            ),
            ("seed", asked.seed != numbers.seed),
        ];
        let names = differs.into_iter().filter(|(_, differs)| *differs);
        names.map(|(name, _)| name.to_owned()).collect()
    }
}
