use rig::cases;
use serde_json::json;

use super::*;
use crate::{file, samples};

fn jobs(policy: Value, env: Value) -> Vec<Job> {
    let fields = json!({"policy_type": "p", "policy_config_dict": policy, "arena_env_args": env});
    samples::jobs([fields])
}

fn reach() -> Value {
    json!({"environment": "reach"})
}

/// Returns the secret that is found in a changed jobs file, which no message shows.
fn said(given: &str) -> String {
    let server = json!({"command": ["serve"], "health_port": 1});
    let policy = json!({"policy_type": "p", "policy_config_dict": {}});
    let file = json!({"model_server": server, "jobs": [samples::entry(policy)]});
    let file = cases::changed(&file, given);
    let file = file::JobFile::new("jobs.json".as_ref(), String::new(), &file).unwrap();
    let Err(secret) = check(&file.jobs, file.model_server.as_ref()) else {
        return "accepted".to_owned();
    };
    let told = secret.to_string();
    assert!(!told.contains("s3cret"), "{told}");
    told
}

#[test]
fn a_secret_is_refused_by_its_place_and_what_only_looks_like_one_is_not() {
    cases::check("src/secrets/cases.txt", said);
}

#[test]
fn what_names_a_secret_is_known() {
    let is = |policy: Value| is_referred_to(&jobs(policy, reach()), None);
    assert!(is(json!({"remote_api_token_env": "X"})));
    assert!(is(json!({"deep": [{"api_key_env": "X"}]})));
    assert!(!is(
        json!({"remote_api_token_env": null, "model_path": "m", "ca_file": "c.pem"})
    ));
}

mod redaction {
    use super::*;

    #[test]
    fn keys_tokens_and_passwords_of_urls_are_replaced_and_nothing_else() {
        let variables = [
            ("WANDB_API_KEY", "0123abcd"),
            ("HF_TOKEN", "hf_0123abcd"),
            ("MLFLOW_TRACKING_URI", "https://me:pass word@host:1/x@y"),
            ("MLFLOW_TRACKING_PASSWORD", "a"),
            ("HOME", "/home/me"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let redaction = Redaction::new(variables);
        let found = redaction.apply("0123abcd hf_0123abcd https://me:pass word@host /home/me");
        assert_eq!(found, "*** *** https://me:***@host /home/me");
        assert!(matches!(redaction.apply("a plain text"), Cow::Borrowed(_)));
    }
}
