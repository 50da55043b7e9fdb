//! Creates policies from `policy_config_dict`: known fields with types and ranges; unknown names
//! are refused.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::env::EnvSpec;
use crate::policy::agent::{AgentSettings, OpenaiAgent};
use crate::policy::fields::{Fields, argument};
use crate::policy::gr00t::remote::{Gr00tRemote, RemoteSettings};
use crate::policy::gr00t::{Gr00tPolicy, Models, Settings};
use crate::policy::openpi::{Openpi, OpenpiSettings};
use crate::policy::remote::Lifeline;
use crate::policy::torchscript::{ScriptSettings, TorchScript};
use crate::policy::{Policy, PolicyError, RandomAction, ReplayAction, Scripted, ZeroAction};

/// Default number of steps that the scripted expert plans ahead, and how many of them are executed.
const SCRIPTED_HORIZON: usize = 8;
const SCRIPTED_CHUNK_LENGTH: usize = 4;

/// A policy, and how many actions of a chunk are executed.
pub struct Made {
    /// The created policy.
    pub policy: Box<dyn Policy>,
    /// Number of actions of a chunk that are executed, at most the policy's `action_horizon`.
    pub chunk_length: usize,
}

/// The policy that a configuration asks for.
struct Wanted {
    kind: Kind,
    chunk_length: Option<usize>,
}

enum Kind {
    Zero,
    Random,
    Replay { path: PathBuf, only: Option<String> },
    Scripted { horizon: usize },
    Gr00t(Box<Settings>),
    Script(ScriptSettings),
    Agent(Box<AgentSettings>),
    Gr00tRemote(Box<RemoteSettings>),
    Openpi(Box<OpenpiSettings>),
}

/// Checks names, types and ranges without an environment, before anything is started.
///
/// # Errors
/// Returns a [`PolicyError`] for an unknown type or a wrong field.
pub fn check(policy_type: &str, config: &Map<String, Value>) -> Result<(), PolicyError> {
    Wanted::read(policy_type, config).map(drop)
}

/// Returns the files and folders from which a configuration makes a policy; empty if the
/// configuration is invalid.
pub fn files(policy_type: &str, config: &Map<String, Value>) -> Vec<PathBuf> {
    match Wanted::read(policy_type, config).map(|wanted| wanted.kind) {
        Ok(Kind::Replay { path, .. }) => vec![path],
        Ok(Kind::Gr00t(settings)) => settings.files(config),
        Ok(Kind::Script(settings)) => settings.files(),
        Ok(Kind::Agent(settings)) => settings.files(),
        Ok(Kind::Gr00tRemote(settings)) => settings.file.into_iter().collect(),
        Ok(Kind::Zero | Kind::Random | Kind::Scripted { .. } | Kind::Openpi(_)) | Err(_) => {
            Vec::new()
        }
    }
}

/// Creates the policy of a job for an environment. `lifeline` reports waiting for servers, and ends
/// it.
///
/// # Errors
/// Fails like [`check`], and for an environment that lacks what the policy needs, for a checkpoint
/// that cannot be loaded, and for an unreachable server.
pub fn make(
    policy_type: &str,
    config: &Map<String, Value>,
    env: &EnvSpec,
    models: &mut Models,
    lifeline: &Lifeline,
) -> Result<Made, PolicyError> {
    let wanted = Wanted::read(policy_type, config)?;
    let policy: Box<dyn Policy> = match wanted.kind {
        Kind::Zero => Box::new(ZeroAction::new(&env.action)),
        Kind::Random => Box::new(RandomAction::new(&env.action)),
        Kind::Replay { path, only } => Box::new(ReplayAction::open(&path, only.as_deref(), env)?),
        Kind::Gr00t(settings) => Box::new(Gr00tPolicy::new(*settings, env, models)?),
        Kind::Script(settings) => Box::new(TorchScript::open(&settings, env, models)?),
        Kind::Gr00tRemote(settings) => Box::new(Gr00tRemote::new(*settings, env, lifeline)?),
        Kind::Openpi(settings) => Box::new(Openpi::new(*settings, env, lifeline)?),
        Kind::Scripted { horizon } => Box::new(Scripted::new(env, horizon)?),
        Kind::Agent(settings) => Box::new(OpenaiAgent::new(*settings, env, lifeline)?),
    };
    let horizon = policy.spec().action_horizon;
    let chunk_length = wanted.chunk_length.unwrap_or(horizon);
    if chunk_length > horizon {
        let wanted = format!("at most the policy's {horizon} actions are needed");
        return Err(argument(
            "action_chunk_length",
            &chunk_length.to_string(),
            &wanted,
        ));
    }
    Ok(Made {
        policy,
        chunk_length,
    })
}

impl Wanted {
    fn read(policy_type: &str, config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let policy_type = jobs::known::canonical_policy(policy_type);
        if policy_type == "gr00t" {
            let settings = Settings::read(config)?;
            return Ok(Self {
                chunk_length: settings.chunk_length,
                kind: Kind::Gr00t(Box::new(settings)),
            });
        }
        if policy_type == "torchscript" {
            let settings = ScriptSettings::read(config)?;
            return Ok(Self {
                chunk_length: settings.chunk_length,
                kind: Kind::Script(settings),
            });
        }
        if policy_type == "openai_agent" {
            // A skill's steps are one chunk, all of which are executed.
            return Ok(Self {
                chunk_length: None,
                kind: Kind::Agent(Box::new(AgentSettings::read(config)?)),
            });
        }
        if policy_type == "gr00t_remote_closedloop" {
            let settings = RemoteSettings::read(config)?;
            return Ok(Self {
                chunk_length: settings.chunk_length,
                kind: Kind::Gr00tRemote(Box::new(settings)),
            });
        }
        if policy_type == "pi0_remote" {
            let settings = OpenpiSettings::read(config)?;
            return Ok(Self {
                chunk_length: None,
                kind: Kind::Openpi(Box::new(settings)),
            });
        }
        let mut fields = Fields::of_job(config);
        let (kind, chunk_length) = match policy_type {
            "zero_action" => (Kind::Zero, Some(fields.chunk_length(1, 1)?)),
            "random_action" => (Kind::Random, Some(fields.chunk_length(1, 1)?)),
            "replay_action" => {
                // A demonstration is one chunk, all of whose actions are executed.
                let missing = || argument("replay_file_path", "missing", "a file name is needed");
                let path = fields.path("replay_file_path")?.ok_or_else(missing)?;
                (
                    Kind::Replay {
                        path,
                        only: fields.string("episode_name")?,
                    },
                    None,
                )
            }
            "scripted" => {
                let horizon = fields
                    .positive("action_horizon")?
                    .unwrap_or(SCRIPTED_HORIZON);
                (
                    Kind::Scripted { horizon },
                    Some(fields.chunk_length(horizon, SCRIPTED_CHUNK_LENGTH.min(horizon))?),
                )
            }
            _ => {
                let known = jobs::known::POLICIES.join(", ");
                return Err(PolicyError::Unknown {
                    name: policy_type.to_owned(),
                    known,
                });
            }
        };
        fields.finish()?;
        Ok(Self { kind, chunk_length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::env_spec;
    use serde_json::json;

    /// Makes a policy for the environment of the tests.
    fn made(policy_type: &str, config: &Map<String, Value>) -> Result<Made, PolicyError> {
        let mut models = Models::new(tch::Device::Cpu);
        make(
            policy_type,
            config,
            &env_spec(),
            &mut models,
            &Lifeline::alone(),
        )
    }

    fn refusal(policy_type: &str, config: Value) -> String {
        let Value::Object(config) = config else {
            panic!("an object is meant")
        };
        made(policy_type, &config)
            .err()
            .expect("must be refused")
            .to_string()
    }

    #[test]
    fn every_known_policy_is_made() {
        for name in jobs::known::POLICIES
            .iter()
            .filter(|name| !needs_settings(name))
        {
            assert!(made(name, &Map::new()).is_ok(), "{name}");
        }
    }

    /// Returns whether the policy needs a file or a server.
    fn needs_settings(name: &str) -> bool {
        let others = [
            "replay_action",
            "gr00t",
            "torchscript",
            "gr00t_remote_closedloop",
            "pi0_remote",
            "openai_agent",
        ];
        others.contains(&name)
    }

    #[test]
    fn a_policy_of_a_server_that_is_away_is_an_error_that_names_it() {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let config = json!({"remote_host": "127.0.0.1", "remote_port": port, "remote_retry_s": 0});
        let text = refusal("gr00t_remote_closedloop", config.clone());
        assert!(
            text.starts_with(&format!(
                "policy server tcp://127.0.0.1:{port}: it stays away: 1 attempt in "
            )),
            "{text}"
        );
        assert!(
            text.ends_with("the last one: get_modality_config: connection refused"),
            "{text}"
        );
        let mut config = config;
        config["openpi_embodiment_adapter"] = "custom".into();
        config["observation_mapping"] = json!({"state": "joint_position"});
        config["action_chunk_length"] = 4.into();
        let text = refusal("pi0_remote", config);
        assert!(
            text.starts_with(&format!(
                "policy server ws://127.0.0.1:{port}: it stays away: "
            )),
            "{text}"
        );
    }

    #[test]
    fn a_chunk_is_not_longer_than_the_horizon() {
        assert_eq!(
            refusal(
                "scripted",
                json!({"action_horizon": 4, "action_chunk_length": 5})
            ),
            "`policy_config_dict.action_chunk_length` is 5, at most the action_horizon 4 is needed"
        );
    }

    #[test]
    fn a_field_that_nobody_reads_is_refused() {
        assert!(
            refusal("zero_action", json!({"chunk": 5})).contains("`policy_config_dict.chunk` is 5")
        );
        assert!(refusal("replay_action", json!({})).contains("replay_file_path` is missing"));
        assert!(refusal("pi0", json!({})).contains("unknown policy_type `pi0`"));
    }

    #[test]
    fn a_replay_is_not_cut_into_chunks() {
        let config = json!({"replay_file_path": "/nowhere", "action_chunk_length": 2});
        assert!(
            refusal("replay_action", config)
                .contains("`policy_config_dict.action_chunk_length` is 2, but")
        );
    }

    #[test]
    fn what_arena_gives_to_every_policy_is_accepted() {
        let Value::Object(config) = json!({"policy_device": "cuda:0", "num_envs": 4}) else {
            panic!()
        };
        assert!(made("zero_action", &config).is_ok());
    }
}
