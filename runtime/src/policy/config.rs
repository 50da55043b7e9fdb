//! Creates policies from `policy_config_dict`, whose settings `jobs::policies` lists.

use std::path::PathBuf;

use jobs::policies::{self, Exported, PolicyType, Replay, Scripted, Torchscript};
use jobs::refusal::Refusal;
use serde_json::{Map, Value};

use crate::env::EnvSpec;
use crate::policy::agent::AgentSettings;
use crate::policy::basic::OneActionSettings;
use crate::policy::gr00t::remote::RemoteSettings;
use crate::policy::gr00t::{Gr00tPolicy, Gr00tSettings};
use crate::policy::lerobot::LerobotSettings;
use crate::policy::openpi::OpenpiSettings;
use crate::policy::python::PythonPolicySettings;
use crate::policy::remote::Lifeline;
use crate::policy::settings::{MakeContext, PolicySettings};
use crate::policy::vla_eval::VlaEvalSettings;
use crate::policy::xpolicylab::XpolicylabSettings;
use crate::policy::{Checkpoints, OwnKeys, Policy, PolicyError, PolicyFacts, argument};

/// A policy, and what is constant about it.
pub struct Made {
    /// The created policy.
    pub policy: Box<dyn Policy>,
    /// Its facts.
    pub facts: PolicyFacts,
}

/// Checks names, types and ranges without an environment, before anything is started.
///
/// # Errors
/// Returns a [`PolicyError`] for an unknown type or a wrong field.
pub fn check(policy_type: &str, config: &Map<String, Value>) -> Result<(), PolicyError> {
    read(known(policy_type)?, config).map(drop)
}

/// Returns the files and folders from which a configuration makes a policy; empty if the
/// configuration is invalid.
pub fn files(policy_type: &str, config: &Map<String, Value>) -> Vec<PathBuf> {
    let settings = known(policy_type).and_then(|policy| read(policy, config));
    settings.map_or_else(|_| Vec::new(), |settings| settings.files())
}

/// Creates the policy of a job for an environment, or without one for the keys of its own
/// checkpoint, which only some policies can. `lifeline` reports waiting for servers, and ends
/// it.
///
/// # Errors
/// Fails like [`check`], and for an environment that lacks what the policy needs, for a checkpoint
/// that cannot be loaded, and for an unreachable server.
pub fn make(
    policy_type: &str,
    config: &Map<String, Value>,
    env: Option<&EnvSpec>,
    models: &mut Checkpoints,
    lifeline: &Lifeline,
) -> Result<Made, PolicyError> {
    let policy_type = known(policy_type)?;
    let settings = read(policy_type, config)?;
    let chunk_length = settings.chunk_length();
    let mut policy: Box<dyn Policy> = match env {
        Some(env) => settings.make(MakeContext {
            env,
            models,
            lifeline,
        })?,
        None if policy_type == PolicyType::Gr00t => Box::new(Gr00tPolicy::new(
            Gr00tSettings::read(config)?,
            None,
            models,
        )?),
        None => {
            let name = policy_type.name();
            return Err(Refusal::new(format!("policy `{name}` has to know an interface")).into());
        }
    };
    let mut facts = policy.facts();
    facts.policy = policy_type.name();
    facts.action_names = match (env, &facts.own_keys) {
        (Some(env), _) => env.action.names.clone(),
        (None, keys) => keys.iter().flat_map(OwnKeys::action_names).collect(),
    };
    facts.chunk_length = chunk_length.unwrap_or(facts.horizon);
    facts.is_planner = policy.planner().is_some();
    facts.is_remote = policy_type.row().is_remote;
    if facts.chunk_length > facts.horizon {
        let wanted = format!("expected at most the policy's {} actions", facts.horizon);
        return Err(argument(
            "action_chunk_length",
            &facts.chunk_length.to_string(),
            &wanted,
        ));
    }
    Ok(Made { policy, facts })
}

/// Returns the policy of a name.
fn known(name: &str) -> Result<PolicyType, PolicyError> {
    PolicyType::of(name).ok_or_else(|| {
        let known = PolicyType::names().join(", ");
        PolicyError::Failed(format!(
            "unknown policy_type `{name}`: expected one of {known}"
        ))
    })
}

/// Reads and checks the settings of a policy.
fn read(
    policy: PolicyType,
    config: &Map<String, Value>,
) -> Result<Box<dyn PolicySettings>, PolicyError> {
    let settings: Box<dyn PolicySettings> = match policy {
        PolicyType::ZeroAction => Box::new(OneActionSettings::zero(config)?),
        PolicyType::RandomAction => Box::new(OneActionSettings::random(config)?),
        PolicyType::ReplayAction => Box::new(policies::read::<Replay>(config)?),
        PolicyType::Scripted => Box::new(policies::read::<Scripted>(config)?),
        PolicyType::Gr00t => Box::new(Gr00tSettings::read(config)?),
        PolicyType::Torchscript => Box::new(policies::read::<Torchscript>(config)?),
        PolicyType::Exported => Box::new(policies::read::<Exported>(config)?),
        PolicyType::Python => Box::new(PythonPolicySettings::read(config)?),
        PolicyType::Lerobot => Box::new(LerobotSettings::read(config)?),
        PolicyType::Gr00tRemote => Box::new(RemoteSettings::read(config)?),
        PolicyType::Pi0Remote => Box::new(OpenpiSettings::read(config)?),
        PolicyType::XpolicylabRemote => Box::new(XpolicylabSettings::read(config)?),
        PolicyType::VlaEvalRemote => Box::new(VlaEvalSettings::read(config)?),
        PolicyType::OpenaiAgent => Box::new(AgentSettings::read(config)?),
    };
    settings.check()?;
    Ok(settings)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::policy::tests::env_spec;
    use jobs::settings::{PathTo, SettingRow};
    use serde_json::json;
    use std::path::Path;

    /// Makes a policy for the environment of the tests.
    fn made(policy_type: &str, config: &Map<String, Value>) -> Result<Made, PolicyError> {
        let mut models = Checkpoints::new(tch::Device::Cpu);
        make(
            policy_type,
            config,
            Some(&env_spec()),
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

    /// Returns the settings without which a policy is refused. `folder` has the files that they
    /// name, and gets those of a LeRobot checkpoint.
    pub(crate) fn required(policy: PolicyType, folder: &Path) -> Map<String, Value> {
        if policy == PolicyType::Lerobot && folder.is_dir() {
            let file = |name: &str, text| std::fs::write(folder.join(name), text).unwrap();
            file("config.json", r#"{"type": "act"}"#);
            file("policy_preprocessor.json", "{}");
            file("policy_postprocessor.json", "{}");
        }
        let settings = policy.row().settings().iter();
        let required = settings.filter(|setting| setting.is_required);
        let value = |setting: &SettingRow| match setting.path {
            Some(PathTo::Checkpoint) => json!(folder),
            Some(_) => json!(folder.join("file")),
            None if setting.is_callable() => json!("package.module:factory"),
            None => json!("http://localhost:8000/v1"),
        };
        required
            .map(|setting| (setting.name.clone(), value(setting)))
            .collect()
    }

    #[test]
    fn a_policy_without_required_settings_is_made_unless_it_needs_a_server() {
        let folder = Path::new("/nowhere");
        for policy in PolicyType::ALL.iter().copied() {
            let is_alone = required(policy, folder).is_empty() && !policy.row().is_remote;
            assert!(
                !is_alone || made(policy.name(), &Map::new()).is_ok(),
                "{policy:?}"
            );
        }
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
                "policy server tcp://127.0.0.1:{port}: it stays unavailable: 1 attempt in "
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
                "policy server ws://127.0.0.1:{port}: it stays unavailable: "
            )),
            "{text}"
        );
    }

    #[test]
    fn settings_that_cannot_be_are_refused_by_name() {
        rig::cases::check("src/policy/settings.txt", |given| {
            let (policy, config) = given.split_once(' ').unwrap();
            let checked = check(policy, &serde_json::from_str(config).unwrap());
            checked.map_or_else(|err| err.to_string(), |()| "taken".to_owned())
        });
    }
}
