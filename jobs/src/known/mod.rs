//! The environments and policies that `rrun` includes, so that a job with an unknown name is
//! refused before anything is started.

use crate::job::{Job, Status};
use crate::latency::LatencyError;
use crate::policies::{PolicyType, SettingError, canonical_policy};
use crate::similar::{self, most_similar};
use crate::simulators::Simulator;

mod experiment;
pub mod fields;
mod to_run;

pub(crate) use to_run::check_arguments;
pub use to_run::{check_to_run, is_filmed};

/// Returns whether a name refers to a Python environment: `gym:<id>`, `file.py:factory`,
/// `package.module:factory` or `package.module.factory`. Only Python can tell whether it exists.
pub fn is_python_environment(name: &str) -> bool {
    let is_spec_file = name.ends_with(".yaml") || name.ends_with(".yml");
    !is_spec_file && !name.contains(char::is_whitespace) && name.contains([':', '.'])
}

/// Why a job is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobRefusal {
    /// The job names an unknown environment or policy.
    #[error(
        "job {index} ({job}) field {field}: unknown name `{found}`{hint}; expected one of \
        {known}"
    )]
    Unknown {
        /// Position of the job in the file.
        index: usize,
        /// Name of the job.
        job: String,
        /// `arena_env_args.environment` or `policy_type`.
        field: &'static str,
        /// The unknown name.
        found: String,
        /// The nearest known name, as a clause.
        hint: String,
        /// The known names, separated by commas, and other forms that a name may have.
        known: String,
    },
    /// A run of an Experiment has an environment that is not included.
    #[error(
        "runs.{run}.environment.type: `{found}` is not included, so name the Python factory that \
         makes it: shared.environment.factory=FILE.py:FUNCTION; included are {known}"
    )]
    NoFactory {
        /// Name of the run.
        run: String,
        /// The environment.
        found: String,
        /// The environments that are included, separated by commas.
        known: String,
    },
    /// A run of an Experiment has a policy that is not included.
    #[error("runs.{run}.policy.type: `{found}` is not included{hint}; expected one of {known}")]
    NoPolicy {
        /// Name of the run.
        run: String,
        /// The policy.
        found: String,
        /// The nearest known name, as a clause.
        hint: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// The job has a field or a variation of its environment that is not read.
    #[error("job {index} ({job}): unknown field `{field}`; {hint}")]
    Field {
        /// Position of the job in the file.
        index: usize,
        /// Name of the job.
        job: String,
        /// The field as written, with the object that it is in.
        field: String,
        /// The nearest known name, or all of them.
        hint: String,
    },
    /// The job has an API key instead of the name of a variable.
    #[error(
        "job {index} ({job}) field policy_config_dict.{KEY} is a key, but plan and journal would \
         show it; use {KEY}_env, the name of a variable that contains it"
    )]
    Key {
        /// Position of the job in the file.
        index: usize,
        /// Name of the job.
        job: String,
    },
    /// A setting of the job's policy is wrong or missing.
    #[error("job {index} ({job}): {reason}")]
    Setting {
        /// Position of the job in the file.
        index: usize,
        /// Name of the job.
        job: String,
        /// What is wrong.
        reason: SettingError,
    },
    /// An argument of the job's environment has a wrong value.
    #[error("job {index} ({job}): `{field}` is {found}, {wanted}")]
    Argument {
        /// Position of the job in the file.
        index: usize,
        /// Name of the job.
        job: String,
        /// The argument, with the object that it is in: `variations.light_intensity`.
        field: String,
        /// What was found, as JSON.
        found: String,
        /// What is wanted instead.
        wanted: String,
    },
    /// The job cannot have its latency.
    #[error("job {index} ({job}): {reason}")]
    Latency {
        /// Position of the job in the file.
        index: usize,
        /// Name of the job.
        job: String,
        /// Why it cannot.
        reason: LatencyError,
    },
    /// Neither the job nor its policy says when it ends.
    #[error(
        "job {index} ({job}): neither num_episodes nor num_steps is given, and policy `{policy}` \
         has no length of its own; use --num-steps"
    )]
    NoLength {
        /// Position of the job in the file.
        index: usize,
        /// Name of the job.
        job: String,
        /// The policy, as the job names it.
        policy: String,
    },
    /// A camera is to be filmed that the job's environment does not have.
    #[error("job {index} ({job}): `{environment}` has no camera `{camera}`; it has {known}")]
    Camera {
        /// Position of the job in the file.
        index: usize,
        /// Name of the job.
        job: String,
        /// The environment.
        environment: String,
        /// The camera that it does not have.
        camera: String,
        /// Those that it has, separated by commas.
        known: String,
    },
}

/// The field with the name of the environment.
const ENVIRONMENT: &str = "arena_env_args.environment";

/// The field with a planner's API key, which jobs must not have.
const KEY: &str = "api_key";

/// Checks the environments and policies of all jobs that are to run, and the fields of their
/// environments.
///
/// # Errors
/// Returns [`JobRefusal`] for the first job that is refused.
pub fn check(jobs: &[Job]) -> Result<(), JobRefusal> {
    // Jobs that will not run are checked, too, because the plan shows all jobs.
    if let Some(job) = jobs.iter().find(|job| job.policy_config.contains_key(KEY)) {
        return Err(JobRefusal::Key {
            index: job.index.0,
            job: job.name.clone(),
        });
    }
    for job in jobs.iter().filter(|job| job.status == Status::Pending) {
        let is_python = is_python_environment(&job.environment);
        if !is_python {
            look_up(
                job,
                ENVIRONMENT,
                &job.environment,
                &Simulator::environments(),
            )?;
        }
        if let Some(fields::Misspelt { field, hint }) = fields::misspelt(job, is_python) {
            return Err(JobRefusal::Field {
                index: job.index.0,
                job: job.name.clone(),
                field,
                hint,
            });
        }
        look_up(
            job,
            "policy_type",
            canonical_policy(&job.policy_type),
            &PolicyType::names(),
        )?;
    }
    Ok(())
}

fn look_up(job: &Job, field: &'static str, found: &str, known: &[&str]) -> Result<(), JobRefusal> {
    if known.contains(&found) {
        return Ok(());
    }
    let close = nearest(found, known);
    let others = match field {
        ENVIRONMENT => {
            ", or an environment in Python: `gym:ID`, `file.py:factory`, \
                        `package.module:factory`"
        }
        _ => "",
    };
    Err(JobRefusal::Unknown {
        index: job.index.0,
        job: job.name.clone(),
        field,
        found: found.to_owned(),
        hint: close
            .map(|name| format!(" (did you mean `{name}`?)"))
            .unwrap_or_default(),
        known: known.join(", ") + others,
    })
}

/// Returns the known name that a misspelled one resembles most, if any is similar enough.
pub fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    most_similar(found, known.iter().copied(), similar::NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use rig::cases;
    use serde_json::json;

    /// Returns why the jobs of a changed entry are refused before they are planned or run.
    fn checked(given: &str) -> String {
        let entry = cases::changed(&samples::entry(json!({})), given);
        let jobs = crate::file::parse(&json!({"jobs": [entry]})).unwrap();
        let to_run = || check_to_run(&jobs, &samples::eval_args(&[]));
        let refusal = check(&jobs).err().or_else(|| to_run().err());
        refusal.map_or_else(|| "accepted".to_owned(), |refusal| refusal.to_string())
    }

    #[test]
    fn names_and_values_that_no_rank_can_run_are_refused_before_ranks_start() {
        cases::check("src/known/cases.txt", checked);
    }

    #[test]
    fn a_key_is_refused_before_a_plan_could_show_it() {
        for status in ["pending", "completed"] {
            let mut job = samples::job(json!({"policy_type": "openai_agent", "status": status}));
            job.policy_config
                .insert("api_key".to_owned(), "sk-1".into());
            let text = check(&[job]).unwrap_err().to_string();
            let hint = "use api_key_env, the name of a variable that contains it";
            assert!(text.ends_with(hint) && !text.contains("sk-1"), "{text}");
        }
    }

    #[test]
    fn arenas_names_of_policies_are_known() {
        for row in PolicyType::ALL.iter().map(|policy| policy.row()) {
            for alias in row.aliases {
                let found = check(&[samples::job(json!({"policy_type": alias}))]);
                assert_eq!(found, Ok(()));
            }
        }
        let dotted = "isaaclab_arena_openpi.policy.pi0_remote_policy.Pi0RemotePolicy";
        assert_eq!(canonical_policy(dotted), "pi0_remote");
    }
}
