//! The output of `rrun list --json`.

use std::path::PathBuf;

use jobs::job::Length;
use jobs::policies::PolicyType;
use jobs::refusal::Refusal;
use jobs::suites::SuiteRow;
use serde::Serialize;

use crate::tools::list::catalogue::{Catalogue, Listed};
use crate::tools::list::environment::ListedEnvironment;
use crate::tools::list::policy::{PolicyJson, SettingJson};
use crate::tools::list::suite::Suite;

/// Schema of the output.
const SCHEMA: &str = "rrun/list/1";

/// The output: everything, or the one thing that was asked for.
#[derive(Debug, Serialize)]
pub(super) struct ListJson {
    schema: &'static str,
    environments: Vec<EnvironmentJson>,
    policies: Vec<PolicyJson>,
    suites: Vec<SuiteJson>,
    /// The suites of `rrun suite`. Episodes and steps are those of each task.
    benchmarks: Vec<&'static SuiteRow>,
}

#[derive(Debug, Serialize)]
struct EnvironmentJson {
    name: &'static str,
    about: String,
    documentation: &'static str,
    arguments: Vec<SettingJson>,
    example: String,
}

#[derive(Debug, Serialize)]
struct SuiteJson {
    name: String,
    about: String,
    file: PathBuf,
    command: String,
    jobs: Vec<SuiteJobJson>,
    requirements: Vec<RequirementJson>,
    example: String,
}

#[derive(Debug, Serialize)]
struct SuiteJobJson {
    name: String,
    environment: String,
    num_envs: usize,
    policy_type: String,
    length: Length,
}

#[derive(Debug, Serialize)]
struct RequirementJson {
    path: String,
    is_there: bool,
    /// The command that makes it; `null` if there is none.
    command: Option<String>,
}

impl ListJson {
    fn empty() -> Self {
        Self {
            schema: SCHEMA,
            environments: Vec::new(),
            policies: Vec::new(),
            suites: Vec::new(),
            benchmarks: Vec::new(),
        }
    }

    pub(super) fn one(listed: &Listed) -> Self {
        let mut found = Self::empty();
        match listed {
            Listed::Environment(environment) => {
                found.environments.push(EnvironmentJson::new(environment));
            }
            Listed::Policy(policy) => found.policies.push(PolicyJson::new(policy.row())),
            Listed::Suite(suite) => found.suites.push(SuiteJson::new(suite)),
            Listed::Benchmark(benchmark) => found.benchmarks.push(benchmark),
        }
        found
    }

    pub(super) fn all(all: &Catalogue) -> Result<Self, Refusal> {
        let environments = all.environments.iter().map(EnvironmentJson::new);
        let policies = PolicyType::ALL.iter().map(|one| PolicyJson::new(one.row()));
        let mut suites = Vec::new();
        for path in &all.suites {
            suites.push(SuiteJson::new(&Suite::read(path)?));
        }
        Ok(Self {
            environments: environments.collect(),
            policies: policies.collect(),
            suites,
            benchmarks: SuiteRow::all().collect(),
            ..Self::empty()
        })
    }
}

impl EnvironmentJson {
    fn new(environment: &ListedEnvironment) -> Self {
        let arguments = environment.arguments();
        Self {
            name: environment.name(),
            about: environment.about(),
            documentation: environment.page(),
            arguments: arguments.iter().map(SettingJson::new).collect(),
            example: environment.example(),
        }
    }
}

impl SuiteJson {
    fn new(suite: &Suite) -> Self {
        let jobs = suite.jobs.iter().map(|job| SuiteJobJson {
            name: job.name.clone(),
            environment: job.environment.clone(),
            num_envs: job.num_envs,
            policy_type: job.policy_type.clone(),
            length: job.length,
        });
        let requirements = suite
            .requirements()
            .into_iter()
            .map(|needed| RequirementJson {
                path: needed.path,
                is_there: needed.is_there,
                command: needed.command,
            });
        Self {
            name: suite.name.clone(),
            about: suite.about(),
            file: suite.path.clone(),
            command: suite.command(),
            jobs: jobs.collect(),
            requirements: requirements.collect(),
            example: suite.example(),
        }
    }
}
