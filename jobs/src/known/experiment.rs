//! Refusals in the words of an Experiment, in which the fields of a job have other names.

use std::path::Path;

use crate::experiment::is_experiment;
use crate::known::{ENVIRONMENT, JobRefusal};
use crate::simulators::Simulator;

impl JobRefusal {
    /// Returns the refusal of a job that was read from `path`, with the names that the file has.
    pub fn in_words_of(self, path: &Path) -> Self {
        if !is_experiment(path) {
            return self;
        }
        match self {
            // The nearest of our own tasks would be another task.
            Self::Unknown {
                job, field, found, ..
            } if field == ENVIRONMENT => Self::NoFactory {
                run: job,
                found,
                known: Simulator::environments().join(", "),
            },
            Self::Unknown {
                job,
                found,
                hint,
                known,
                ..
            } => Self::NoPolicy {
                run: job,
                found,
                hint,
                known,
            },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::known::check;
    use crate::samples;

    fn refusal(environment: &str, policy: &str, path: &str) -> String {
        let args = json!({"environment": environment});
        let job = samples::job(json!({"arena_env_args": args, "policy_type": policy}));
        check(&[job])
            .unwrap_err()
            .in_words_of(path.as_ref())
            .to_string()
    }

    #[test]
    fn an_environment_of_arena_is_refused_with_its_field_and_the_way_out() {
        let told = refusal("push_table", "scripted", "a.yaml");
        let wanted = "runs.a.environment.type: `push_table` is not included, so name the Python \
                      factory that makes it: shared.environment.factory=FILE.py:FUNCTION; \
                      included are ";
        assert!(told.starts_with(wanted), "{told}");
        assert!(!told.contains("did you mean"), "{told}");
        let in_jobs = refusal("push_table", "scripted", "a.json");
        let words = "field arena_env_args.environment";
        assert!(in_jobs.contains(words), "{in_jobs}");
    }

    #[test]
    fn a_policy_of_arena_is_refused_with_its_field() {
        let cosmos = "isaaclab_arena_cosmos.policy.cosmos.CosmosPolicy";
        let told = refusal("push", cosmos, "a.yml");
        let wanted = format!("runs.a.policy.type: `{cosmos}` is not included");
        assert!(told.starts_with(&wanted), "{told}");
        let misspelt = refusal("push", "zero_acton", "a.yaml");
        let words = "(did you mean `zero_action`?)";
        assert!(misspelt.contains(words), "{misspelt}");
    }
}
