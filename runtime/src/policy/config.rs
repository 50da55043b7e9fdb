//! `policy_config_dict`: known fields with their types and ranges, the rest refused by name.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::env::EnvSpec;
use crate::policy::{Policy, PolicyError, RandomAction, ReplayAction, Scripted, ZeroAction};

/// Fields that Arena gives to every policy and that are read elsewhere: the device by [`crate::device`], the number of
/// environments from the job.
const ELSEWHERE: &[&str] = &["policy_device", "policy_device_id", "num_envs"];

/// Steps that the scripted expert plans ahead, and how many of them are taken.
const SCRIPTED_HORIZON: usize = 8;
const SCRIPTED_CHUNK_LENGTH: usize = 4;

/// A policy, and how many actions of a chunk are taken.
pub struct Made {
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// At most its `action_horizon`.
    pub chunk_length: usize,
}

/// Makes the policy of a job for an environment.
///
/// # Errors
/// [`PolicyError`] for an unknown type, a wrong field, or an environment that does not show what is needed.
pub fn make(policy_type: &str, config: &Map<String, Value>, env: &EnvSpec) -> Result<Made, PolicyError> {
    let mut fields = Fields { left: config.clone() };
    let policy: Box<dyn Policy> = match policy_type {
        "zero_action" => Box::new(ZeroAction::new(&env.action)),
        "random_action" => Box::new(RandomAction::new(&env.action)),
        "replay_action" => {
            let path = fields.string("replay_file_path")?.ok_or_else(|| missing("replay_file_path"))?;
            let only = fields.string("episode_name")?;
            Box::new(ReplayAction::open(&PathBuf::from(path), only.as_deref(), env)?)
        }
        "scripted" => {
            let horizon = fields.positive("action_horizon")?.unwrap_or(SCRIPTED_HORIZON);
            Box::new(Scripted::new(env, horizon)?)
        }
        _ => {
            let known = jobs::known::POLICIES.join(", ");
            return Err(PolicyError::Unknown { name: policy_type.to_owned(), known });
        }
    };
    let horizon = policy.spec().action_horizon;
    let default = if policy_type == "scripted" { SCRIPTED_CHUNK_LENGTH.min(horizon) } else { horizon };
    let chunk_length = fields.positive("action_chunk_length")?.unwrap_or(default);
    if chunk_length > horizon {
        let wanted = format!("at most the action_horizon {horizon} is needed");
        return Err(argument("action_chunk_length", &chunk_length.to_string(), wanted));
    }
    fields.finish()?;
    Ok(Made { policy, chunk_length })
}

struct Fields {
    left: Map<String, Value>,
}

impl Fields {
    fn string(&mut self, field: &str) -> Result<Option<String>, PolicyError> {
        match self.left.shift_remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(argument(field, &other.to_string(), "a string is needed".to_owned())),
        }
    }

    fn positive(&mut self, field: &str) -> Result<Option<usize>, PolicyError> {
        match self.left.shift_remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().and_then(|number| usize::try_from(number).ok()) {
                Some(number @ 1..=4096) => Ok(Some(number)),
                _ => Err(argument(field, &value.to_string(), "a whole number from 1 to 4096 is needed".to_owned())),
            },
        }
    }

    fn finish(self) -> Result<(), PolicyError> {
        match self.left.iter().find(|(field, _)| !ELSEWHERE.contains(&field.as_str())) {
            None => Ok(()),
            Some((field, value)) => {
                Err(argument(field, &value.to_string(), "but this policy has no such field".to_owned()))
            }
        }
    }
}

fn missing(field: &str) -> PolicyError {
    argument(field, "missing", "a file name is needed".to_owned())
}

fn argument(field: &str, found: &str, wanted: String) -> PolicyError {
    PolicyError::Argument { field: field.to_owned(), found: found.to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::env_spec;
    use serde_json::json;

    fn refusal(policy_type: &str, config: Value) -> String {
        let Value::Object(config) = config else { panic!("an object is meant") };
        make(policy_type, &config, &env_spec()).err().expect("must be refused").to_string()
    }

    #[test]
    fn every_known_policy_is_made() {
        for name in jobs::known::POLICIES.iter().filter(|name| **name != "replay_action") {
            assert!(make(name, &Map::new(), &env_spec()).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_chunk_is_not_longer_than_the_horizon() {
        assert_eq!(
            refusal("scripted", json!({"action_horizon": 4, "action_chunk_length": 5})),
            "`policy_config_dict.action_chunk_length` is 5, at most the action_horizon 4 is needed"
        );
    }

    #[test]
    fn a_field_that_nobody_reads_is_refused() {
        assert!(refusal("zero_action", json!({"chunk": 5})).contains("`policy_config_dict.chunk` is 5"));
        assert!(refusal("replay_action", json!({})).contains("replay_file_path` is missing"));
        assert!(refusal("pi0_remote", json!({})).contains("unknown policy_type `pi0_remote`"));
    }

    #[test]
    fn what_arena_gives_to_every_policy_is_accepted() {
        let Value::Object(config) = json!({"policy_device": "cuda:0", "num_envs": 4}) else { panic!() };
        assert!(make("zero_action", &config, &env_spec()).is_ok());
    }
}
