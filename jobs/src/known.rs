//! The environments and policies that this `rrun` brings, so that a job which names another is refused before
//! anything was started.

use crate::job::{Job, Status};

pub mod fields;

/// Environments of `rrun-rank`.
pub const ENVIRONMENTS: &[&str] = &["reach", "push", "pick_and_place"];

/// Whether a name means an environment in Python: `gym:<id>`, `file.py:factory`, `package.module:factory` or
/// `package.module.factory`. Whether there is one, only Python can say.
pub fn is_python_environment(name: &str) -> bool {
    let is_spec_file = name.ends_with(".yaml") || name.ends_with(".yml");
    !is_spec_file && !name.contains(char::is_whitespace) && name.contains([':', '.'])
}

/// Policies of `rrun-rank`.
pub const POLICIES: &[&str] = &[
    "zero_action",
    "random_action",
    "replay_action",
    "scripted",
    "gr00t",
    "torchscript",
    "gr00t_remote_closedloop",
    "pi0_remote",
    "openai_agent",
];

/// Other names of policies, those of Isaac Lab Arena.
const ALIASES: &[(&str, &str)] = &[
    ("gr00t_closedloop", "gr00t"),
    ("isaaclab_arena_gr00t.policy.gr00t_closedloop_policy.Gr00tClosedloopPolicy", "gr00t"),
    (
        "isaaclab_arena_gr00t.policy.gr00t_remote_closedloop_policy.Gr00tRemoteClosedloopPolicy",
        "gr00t_remote_closedloop",
    ),
    ("isaaclab_arena_openpi.policy.pi0_remote_policy.Pi0RemotePolicy", "pi0_remote"),
];

/// The name in [`POLICIES`] of a policy that has several.
pub fn canonical_policy(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, canonical)| canonical)
}

/// A job that is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It names something that is not there.
    #[error("job {index} ({job}) field {field}: `{found}` is not known{hint}; known are {known}")]
    Unknown {
        /// Position in the file.
        index: usize,
        /// Name.
        job: String,
        /// `arena_env_args.environment` or `policy_type`.
        field: &'static str,
        /// What was asked for.
        found: String,
        /// The nearest name, as a clause.
        hint: String,
        /// What there is, comma separated.
        known: String,
    },
    /// It gives its environment a field that nobody reads.
    #[error("job {index} ({job}) field arena_env_args.{field}: unknown field; {hint}")]
    Field {
        /// Position in the file.
        index: usize,
        /// Name.
        job: String,
        /// As it was written.
        field: String,
        /// The nearest name, or all of them.
        hint: String,
    },
    /// It has a key where only the name of a variable belongs.
    #[error(
        "job {index} ({job}) field policy_config_dict.{KEY} is a key, but plan and journal would show it; {KEY}_env names \
         the variable that has it"
    )]
    Key {
        /// Position in the file.
        index: usize,
        /// Name.
        job: String,
    },
}

/// A planner's key, which jobs do not hold.
const KEY: &str = "api_key";

/// Likeness above which a name is taken for a misspelt one.
const LIKE: f64 = 0.85;

/// Checks the names of all jobs that are to run, and those of their environments' fields.
///
/// # Errors
/// [`Refused`] for the first one.
pub fn check(jobs: &[Job]) -> Result<(), Refused> {
    // Also where it will not run: the plan shows all jobs.
    if let Some(job) = jobs.iter().find(|job| job.policy_config.contains_key(KEY)) {
        return Err(Refused::Key { index: job.index.0, job: job.name.clone() });
    }
    for job in jobs.iter().filter(|job| job.status == Status::Pending) {
        let is_python = is_python_environment(&job.environment);
        if !is_python {
            look_up(job, "arena_env_args.environment", &job.environment, ENVIRONMENTS)?;
        }
        if let Some(fields::Misspelt { field, hint }) = fields::misspelt(job, is_python) {
            return Err(Refused::Field { index: job.index.0, job: job.name.clone(), field, hint });
        }
        look_up(job, "policy_type", canonical_policy(&job.policy_type), POLICIES)?;
    }
    Ok(())
}

fn look_up(job: &Job, field: &'static str, found: &str, known: &[&str]) -> Result<(), Refused> {
    if known.contains(&found) {
        return Ok(());
    }
    let close = nearest(found, known);
    Err(Refused::Unknown {
        index: job.index.0,
        job: job.name.clone(),
        field,
        found: found.to_owned(),
        hint: close.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default(),
        known: known.join(", "),
    })
}

/// The known name that a misspelt one is likest to, if it is like one at all.
pub fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(name, found);
    let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    nearest.copied().filter(|name| likeness(name) > LIKE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn jobs(environment: &str, policy: &str, status: &str) -> Vec<Job> {
        let entry = json!({"name": "a", "arena_env_args": {"environment": environment}, "policy_type": policy,
                           "num_episodes": 1, "status": status});
        crate::file::parse(&json!({"jobs": [entry]})).unwrap()
    }

    #[test]
    fn a_misspelt_name_is_refused_with_the_nearest_one() {
        assert_eq!(
            check(&jobs("reech", "scripted", "pending")).unwrap_err().to_string(),
            "job 0 (a) field arena_env_args.environment: `reech` is not known; did you mean `reach`?; \
             known are reach, push, pick_and_place"
        );
        assert!(check(&jobs("reach", "cosmos_remote", "pending")).unwrap_err().to_string().contains("policy_type"));
    }

    #[test]
    fn an_environment_in_python_is_known_by_its_form() {
        for name in ["gym:Pusher-v5", "envs/libero.py:make", "package.module:Env", "package.module.make"] {
            assert_eq!(check(&jobs(name, "scripted", "pending")), Ok(()));
        }
        for name in ["gym", "graph.yaml", "a b.c"] {
            assert!(check(&jobs(name, "scripted", "pending")).is_err());
        }
    }

    #[test]
    fn a_misspelt_field_of_an_environment_is_named_with_its_job() {
        let mut misspelt = jobs("reach", "scripted", "pending");
        misspelt[0].env_args.insert("num_env".to_owned(), 4.into());
        assert_eq!(
            check(&misspelt).unwrap_err().to_string(),
            "job 0 (a) field arena_env_args.num_env: unknown field; did you mean `num_envs`?"
        );
        misspelt[0].status = Status::Completed;
        assert_eq!(check(&misspelt), Ok(()));
    }

    #[test]
    fn a_job_that_will_not_run_may_name_anything() {
        assert_eq!(check(&jobs("gr1", "x", "completed")), Ok(()));
        assert_eq!(check(&jobs("push", "scripted", "pending")), Ok(()));
    }

    #[test]
    fn a_key_is_refused_before_a_plan_could_show_it() {
        for status in ["pending", "completed"] {
            let mut jobs = jobs("push", "openai_agent", status);
            jobs[0].policy_config.insert("api_key".to_owned(), "sk-1".into());
            let text = check(&jobs).unwrap_err().to_string();
            assert!(text.ends_with("api_key_env names the variable that has it") && !text.contains("sk-1"), "{text}");
        }
    }

    #[test]
    fn arenas_names_of_policies_are_known() {
        assert_eq!(check(&jobs("push", "gr00t_closedloop", "pending")), Ok(()));
        for (dotted, _) in ALIASES {
            assert_eq!(check(&jobs("push", dotted, "pending")), Ok(()));
        }
        let dotted = "isaaclab_arena_openpi.policy.pi0_remote_policy.Pi0RemotePolicy";
        assert_eq!(canonical_policy(dotted), "pi0_remote");
    }
}
