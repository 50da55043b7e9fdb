//! Writes the jobs file of a suite.

use serde_json::{Map, Value, json};

use crate::job::Suite;
use crate::suites::SuiteRow;

/// What to evaluate on a suite, and what replaces its protocol.
#[derive(Clone, Debug)]
pub struct Request {
    /// Numbers of the tasks, ascending; at least one.
    pub tasks: Vec<usize>,
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
            name: self.name.clone(),
            protocol: self.protocol.clone(),
            overrides: self.overrides(request),
        };
        let tasks = request.tasks.iter();
        let jobs: Vec<Value> = tasks.map(|task| self.job(*task, request, &label)).collect();
        json!({"jobs": jobs})
    }

    fn job(&self, task: usize, request: &Request, label: &Suite) -> Value {
        let [episodes, steps, seed] = self
            .numbers(request)
            .map(|(_, own, given)| given.unwrap_or(own));
        let mut values = self.values.clone();
        values.extend([
            ("{suite}".to_owned(), self.name.clone().into()),
            ("{task}".to_owned(), self.tasks[task].clone().into()),
            ("{number}".to_owned(), task.into()),
            ("{seed}".to_owned(), seed.into()),
            ("{steps}".to_owned(), steps.into()),
        ]);
        let mut environment = self.environment.clone();
        fill(&mut environment, &values);
        environment["python"] = request.python.clone().into();
        if let Some(mapping) = &request.mapping {
            environment["mapping"] = mapping.clone().into();
        }
        environment["max_episode_steps"] = steps.into();
        environment["pass_episode"] = true.into();
        environment["num_envs"] = request.num_envs.into();
        json!({
            "name": self.job_name(task),
            "suite": label,
            "arena_env_args": environment,
            "policy_type": request.policy_type,
            "policy_config_dict": request.policy_config,
            "num_episodes": episodes,
            "seed": seed,
        })
    }

    /// Returns the numbers of the protocol by the fields of a job, each with that of the request.
    fn numbers(&self, request: &Request) -> [(&'static str, u64, Option<u64>); 3] {
        let steps = (self.max_episode_steps, request.max_episode_steps);
        [
            ("num_episodes", self.num_episodes, request.episodes),
            ("max_episode_steps", steps.0, steps.1),
            ("seed", self.seed, request.seed),
        ]
    }

    /// Returns the names of what differs from the protocol.
    fn overrides(&self, request: &Request) -> Vec<String> {
        let tasks = (request.tasks != self.all_tasks()).then_some("tasks");
        let numbers = self.numbers(request).into_iter();
        let others = numbers.filter(|(_, own, given)| given.is_some_and(|given| given != *own));
        let names = tasks.into_iter().chain(others.map(|(name, ..)| name));
        names.map(str::to_owned).collect()
    }
}

/// Replaces the names in braces: a text that is one name by its value of any kind, and names within
/// a text by texts.
fn fill(value: &mut Value, values: &Map<String, Value>) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, values)),
        Value::String(text) => {
            if let Some(whole) = values.get(text.as_str()) {
                *value = whole.clone();
                return;
            }
            for (name, part) in values {
                *text = text.replace(name, part.as_str().unwrap_or(name));
            }
        }
        _ => {}
    }
}
