//! Applies the `variations` of a job: the same environment with other arguments, like Isaac
//! Lab-Arena's overrides `a.b.c=<value>`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::environments::is_python_environment;
use crate::job::Job;
use crate::tree::overlay;

/// Name of the argument that holds the arguments of a Python environment's factory.
const FACTORY_ARGUMENTS: &str = "env_kwargs";

/// Returns the job with each variation merged into its arguments: into `env_kwargs` if a Python
/// factory creates the environment, otherwise into `arena_env_args`. Maps are merged recursively,
/// all other values are replaced.
pub fn applied(job: &Job) -> Cow<'_, Job> {
    if job.variations.is_empty() {
        return Cow::Borrowed(job);
    }
    let mut varied = job.clone();
    if is_python_environment(&job.environment) {
        let arguments = varied
            .env_args
            .entry(FACTORY_ARGUMENTS)
            .or_insert_with(|| Value::Object(Map::new()));
        // Any other value is refused later for its type.
        if let Value::Object(arguments) = arguments {
            overlay(arguments, job.variations.clone());
        }
    } else {
        overlay(&mut varied.env_args, job.variations.clone());
    }
    Cow::Owned(varied)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn env_args(environment: &str, args: Value, variations: Value) -> Value {
        let mut args = args;
        args["environment"] = environment.into();
        let entry = json!({"name": "a", "arena_env_args": args, "policy_type": "zero_action", "num_episodes": 1,
                           "variations": variations});
        let job = crate::file::parse(&json!({"jobs": [entry]}))
            .unwrap()
            .remove(0);
        Value::Object(applied(&job).env_args.clone())
    }

    #[test]
    fn a_variation_replaces_an_argument_of_the_environment() {
        let found = env_args(
            "reach",
            json!({"light_intensity": 500}),
            json!({"light_intensity": 900}),
        );
        assert_eq!(found, json!({"light_intensity": 900}));
    }

    #[test]
    fn a_factory_in_python_gets_variations_among_its_arguments() {
        let args = json!({"env_kwargs": {"light": {"hdr": "hall", "intensity": 1}, "size": 64}});
        let found = env_args("gym:Push-v0", args, json!({"light": {"intensity": 2}}));
        let wanted = json!({"env_kwargs": {"light": {"hdr": "hall", "intensity": 2}, "size": 64}});
        assert_eq!(found, wanted);
        let shown = env_args("gym:Push-v0", json!({}), json!({"a": 1}));
        assert_eq!(shown, json!({"env_kwargs": {"a": 1}}));
    }
}
