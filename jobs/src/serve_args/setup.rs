//! What a `serve` command line names, read and checked: the policy, and the interface for which it
//! acts.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::count::listed;
use crate::environments::{Simulator, is_python_environment};
use crate::file::{self, JobFile};
use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::interface::Interface;
use crate::job::Job;
use crate::policies::{self, PolicyType, Serving};
use crate::refusal::Refusal;
use crate::serve_args::ServeArgs;
use crate::{installed, rules, secrets, settings};

/// Number of names that are listed.
const NAMED: usize = 40;

/// Name of the job that stands for the environment of a server.
const NAME: &str = "serve";

/// What is served, and for which robots.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSetup {
    /// The policy; `None` if only an interface is printed.
    pub policy: Option<PolicyChoice>,
    /// Where cameras, states and actions of the clients are described; `None` if the checkpoint
    /// describes them itself.
    pub interface: Option<InterfaceSource>,
}

/// Where the cameras, states and actions of the clients are described.
#[derive(Clone, Debug, PartialEq)]
pub enum InterfaceSource {
    /// A file describes them.
    File(Interface),
    /// They are those of the environment of this job.
    Environment(Box<Job>),
}

impl ServeSetup {
    /// Reads and checks what a command line names.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn read(args: &ServeArgs) -> Result<Self, Refusal> {
        let job = args
            .jobs
            .as_ref()
            .map(|path| job_of(path, args))
            .transpose()?;
        let named = match (&job, &args.policy) {
            (Some(job), _) => Some(PolicyChoice {
                policy_type: job.policy_type.clone(),
                config: job.policy_config.clone(),
            }),
            (None, Some(policy)) => Some(PolicyChoice::read(policy)?),
            (None, None) => None,
        };
        let policy = named
            .map(|policy| policy.with(args.policy_config.as_deref()))
            .transpose()?;
        let file = args.interface.as_deref().map(Interface::read);
        let interface = match (file.transpose()?, job, &args.environment) {
            (Some(interface), _, _) => Some(InterfaceSource::File(interface)),
            (None, Some(job), _) => Some(environment(job)?),
            (None, None, Some(name)) => Some(environment(env_job(name, args)?)?),
            (None, None, None) => None,
        };
        if args.print_interface && interface.is_none() {
            return Err(Refusal::new(
                "--print-interface needs --environment NAME or --jobs FILE",
            ));
        }
        let setup = Self { policy, interface };
        setup.check()?;
        secrets::check(setup.job().as_slice(), None)?;
        Ok(setup)
    }

    /// Returns the job whose files have to exist before anything is started.
    pub fn job(&self) -> Option<Job> {
        let mut job = match &self.interface {
            Some(InterfaceSource::Environment(job)) => Job::clone(job),
            // Any built-in environment will do, because they need no files.
            _ => parsed(Simulator::environments().first()?, json!({})).ok()?,
        };
        if let Some(policy) = &self.policy {
            job.policy_type.clone_from(&policy.policy_type);
            job.policy_config.clone_from(&policy.config);
        }
        Some(job)
    }

    fn check(&self) -> Result<(), Refusal> {
        let Some(choice) = &self.policy else {
            return Ok(());
        };
        let Some(policy) = PolicyType::of(&choice.policy_type) else {
            return Err(Refusal::new(format_args!(
                "--policy `{}` is neither a folder nor a known policy: expected a folder or one of \
                 {}",
                choice.policy_type,
                PolicyType::names().join(", ")
            )));
        };
        let name = policy.name();
        match policy.row().serving {
            Serving::Refused(reason) => Err(Refusal::new(format_args!(
                "`policy_type` is `{name}`, which cannot be served: {reason}"
            ))),
            Serving::Interface if self.interface.is_none() => Err(Refusal::new(format_args!(
                "policy `{name}` has to know the cameras, states and actions of its clients; name \
                 them with --environment NAME (and --env-args), with --jobs FILE, or with \
                 --interface FILE (`rrun serve --print-interface` prints one)"
            ))),
            Serving::Interface | Serving::OwnKeys => {
                policies::check(policy, &choice.config).map_err(Refusal::new)
            }
        }
    }
}

/// Returns the job that is named, of a jobs file.
fn job_of(path: &Path, args: &ServeArgs) -> Result<Job, Refusal> {
    let mut jobs = JobFile::read(path)?.jobs;
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    let place = match &args.only {
        Some(name) => {
            let place = names.iter().position(|known| known == name);
            place.ok_or_else(|| Refusal::unknown("--only", "job", name, &names))?
        }
        None if names.len() == 1 => 0,
        None => {
            return Err(Refusal::new(format_args!(
                "`{}` has {} jobs; name one with --only: {}",
                path.display(),
                names.len(),
                listed(&names, NAMED)
            )));
        }
    };
    Ok(jobs.swap_remove(place))
}

/// Returns a job for the environment of `--environment` and `--env-args`.
fn env_job(name: &str, args: &ServeArgs) -> Result<Job, Refusal> {
    if Simulator::of(name).is_none() && !is_python_environment(name) {
        return Err(Refusal::new(format_args!(
            "--environment `{name}` is unknown: expected one of {}, or an environment in Python \
             (`gym:<id>`, `file.py:factory`)",
            Simulator::environments().join(", ")
        )));
    }
    let env_args = args.env_args.as_deref();
    let env_args = env_args.map(|text| json_option("--env-args", text));
    let env_args = env_args.transpose()?.unwrap_or_default();
    parsed(name, env_args.into()).map_err(|refusal| refusal.inside("--env-args"))
}

/// Returns a job for an environment, with a policy that nobody asks for.
fn parsed(environment: &str, mut env_args: Value) -> Result<Job, Refusal> {
    env_args["environment"] = environment.into();
    let entry = json!({
        "name": NAME,
        "arena_env_args": env_args,
        "policy_type": PolicyType::ZeroAction.name(),
        "num_episodes": 1,
    });
    let jobs = file::parse(&json!({"jobs": [entry]}));
    Ok(jobs.map_err(Refusal::new)?.swap_remove(0))
}

/// Checks the environment of a job, which is made once, with one copy.
fn environment(mut job: Job) -> Result<InterfaceSource, Refusal> {
    job.num_envs = 1;
    job.total_num_envs = None;
    job.status = crate::job::Status::Pending;
    rules::check_job(&job, false)?;
    rules::check_arguments(&job).map_err(|refusal| refusal.inside(job.place()))?;
    Ok(InterfaceSource::Environment(Box::new(job)))
}

/// The option.
const POLICY: &str = "--policy";

/// A policy as in a job.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct PolicyChoice {
    /// Registered policy name, `policy_type` of a job.
    pub policy_type: String,
    /// Settings of the policy, `policy_config_dict` of a job.
    #[serde(rename = "policy_config_dict", default)]
    pub config: Map<String, Value>,
}

impl PolicyChoice {
    /// Returns the policy of `--policy`: a name, the folder of a checkpoint, or a JSON object.
    ///
    /// # Errors
    /// Refuses a JSON object of another form, with the name of the option.
    pub fn read(policy: &str) -> Result<Self, Refusal> {
        let policy = &*installed::found(policy);
        if policy.trim_start().starts_with('{') {
            return settings::read(POLICY, &object(POLICY, policy)?);
        }
        let mut choice = Self {
            policy_type: policy.to_owned(),
            config: Map::new(),
        };
        if PolicyType::of(policy).is_none() && Path::new(policy).is_dir() {
            choice.policy_type = PolicyType::Gr00t.name().to_owned();
            choice.config.insert("model_path".to_owned(), policy.into());
        }
        Ok(choice)
    }

    /// Returns the policy with the settings of `--policy-config`, which override its own.
    ///
    /// # Errors
    /// Refuses a value that is not a JSON object, and a file that cannot be read.
    pub fn with(mut self, config: Option<&str>) -> Result<Self, Refusal> {
        if let Some(text) = config {
            self.config.extend(json_option("--policy-config", text)?);
        }
        Ok(self)
    }
}

/// Returns the JSON object that an option contains, or that is in the file that it names.
pub(super) fn json_option(option: &str, text: &str) -> Result<Map<String, Value>, Refusal> {
    if text.trim_start().starts_with('{') {
        return object(option, text);
    }
    let json = files::read_text(Path::new(text), MAX_DOCUMENT_BYTES)
        .map_err(|err| Refusal::at(format_args!("{option} `{text}`"), err))?;
    object(option, &json)
}

fn object(option: &str, text: &str) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_str(text)
        .map_err(|err| Refusal::at(option, format_args!("not a JSON object: {err}")))
}
