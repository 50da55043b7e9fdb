use super::*;
use crate::policy::tests::env_spec;
use jobs::settings::{PathTo, SettingRow};
use serde_json::json;
use std::path::Path;

/// Makes a policy for the environment of the tests.
fn made(policy_type: &str, config: &Map<String, Value>) -> Result<Made, PolicyError> {
    let mut models = Checkpoints::new(tch::Device::Cpu, Lifeline::alone());
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
