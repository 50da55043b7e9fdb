use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::file;

fn jobs(policy: Value, env: Value) -> Vec<Job> {
    let entry = json!({"name": "a", "arena_env_args": env, "policy_type": "p", "policy_config_dict": policy, "num_episodes": 1});
    file::parse(&json!({"jobs": [entry]})).unwrap()
}

fn reach() -> Value {
    json!({"environment": "reach"})
}

fn said(policy: Value, env: Value) -> String {
    check(&jobs(policy, env), None).map_or_else(|secret| secret.to_string(), |()| String::new())
}

fn server(command: &[&str], env: &[(&str, &str)]) -> String {
    let block = json!({"command": command, "env": BTreeMap::from_iter(env.iter().copied()), "health_port": 1});
    let job =
        json!({"name": "a", "arena_env_args": reach(), "policy_type": "p", "num_episodes": 1});
    let file: Value = json!({"model_server": block, "jobs": [job]});
    let file = file::JobFile::new(std::path::Path::new("jobs.json"), String::new(), &file).unwrap();
    check(&[], file.model_server.as_ref())
        .map_or_else(|secret| secret.to_string(), |()| String::new())
}

#[test]
fn a_token_in_a_job_is_refused_with_the_field_that_names_it_and_without_its_value() {
    for field in [
        "remote_api_token",
        "api_key",
        "hf_token",
        "password",
        "clientSecret",
        "token",
    ] {
        let told = said(json!({field: "s3cret"}), reach());
        assert!(
            told.starts_with(&format!(
                "job 0 (a) field policy_config_dict.{field} contains a secret"
            )),
            "{told}"
        );
        assert!(
            told.contains(&format!("name that in `{field}_env` if there is"))
                && !told.contains("s3cret")
        );
    }
    assert!(
        said(
            json!({"extra_body": {"auth": [{"access_token": "s3cret"}]}}),
            reach()
        )
        .contains("access_token")
    );
}

#[test]
fn a_reference_and_a_word_of_a_tokenizer_are_none() {
    for config in [
        json!({"remote_api_token_env": "MY_TOKEN", "api_key_env": "KEY", "password_file": "/run/secrets/p"}),
        json!({"pad_token": "<pad>", "image_token": "<img>", "max_tokens": 8, "tokenizer_path": "t.json", "key": "k"}),
        json!({"remote_api_token": "", "api_key": null, "token": 7}),
        json!({"model_url": "http://host:8000/v1?version=2", "monkey": "banana", "note": "a@b:c"}),
    ] {
        assert_eq!(said(config.clone(), reach()), "", "{config}");
    }
}

#[test]
fn a_url_with_a_password_or_a_key_is_refused() {
    for url in [
        "http://me:s3cret@host/v1",
        "wss://:s3cret@h",
        "https://h/x?a=1&api_key=s3cret",
        "https://h?token=s3cret",
        "me:s3cret@127.0.0.1",
    ] {
        let told = said(json!({"remote_host": url}), reach());
        assert!(
            (told.contains("write the URL without it")
                || told.contains("without user and password"))
                && !told.contains("s3cret"),
            "{told}"
        );
    }
    assert_eq!(
        said(json!({"remote_host": "ssh://git@host/x"}), reach()),
        ""
    );
}

#[test]
fn a_variable_with_a_secret_is_refused_and_others_are_not() {
    let env = |name: &str| json!({"environment": "gym:X-v0", "env": {name: "s3cret"}});
    for name in [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "MY_TOKEN",
        "DB_PASSWORD",
    ] {
        let told = said(json!({}), env(name));
        assert!(
            told.contains(&format!("set `{name}` in the environment of rrun")),
            "{told}"
        );
        assert!(
            server(&["serve"], &[(name, "s3cret")])
                .starts_with(&format!("model_server field env.{name} contains"))
        );
    }
    for name in [
        "MUJOCO_GL",
        "TOKENIZERS_PARALLELISM",
        "PAD_TOKEN",
        "SSH_KEY_PATH",
        "NO_PROXY",
    ] {
        assert_eq!(said(json!({}), env(name)), "", "{name}");
    }
}

#[test]
fn a_key_among_the_words_of_a_model_server_is_refused() {
    for command in [
        &["vllm", "serve", "m", "--api-key", "s3cret"][..],
        &["vllm", "serve", "--api-key=s3cret"],
        &["/bin/sh", "-c", "HF_TOKEN=s3cret vllm serve m"],
        &["/bin/sh", "-c", "vllm serve m --api-key 's3cret'"],
        &["curl", "http://me:s3cret@h"],
    ] {
        let told = server(command, &[]);
        assert!(
            told.starts_with("model_server field command contains a secret"),
            "{command:?}: {told}"
        );
        assert!(!told.contains("s3cret"));
    }
    for command in [
        &["/bin/sh", "-c", "vllm serve m --api-key $KEY"][..],
        &[
            "vllm",
            "serve",
            "m",
            "--api-key-file",
            "k",
            "--port",
            "8000",
            "--max-tokens",
            "4",
        ],
    ] {
        assert_eq!(server(command, &[]), "", "{command:?}");
    }
}

#[test]
fn what_names_a_secret_is_known() {
    let is = |policy: Value| is_referred_to(&jobs(policy, reach()), None);
    assert!(
        is(json!({"remote_api_token_env": "X"})) && is(json!({"deep": [{"api_key_env": "X"}]}))
    );
    assert!(!is(
        json!({"remote_api_token_env": null, "model_path": "m", "ca_file": "c.pem"})
    ));
}

#[test]
fn what_an_older_version_has_written_down_is_taken_out() {
    let config = json!({"remote_api_token": "s3cret", "a": {"api_key": "s3cret"}, "url": "http://a:s3cret@h", "n": 1});
    let env = json!({"environment": "gym:X-v0", "env": {"MY_TOKEN": "s3cret", "MUJOCO_GL": "egl"}});
    let mut jobs = jobs(config, env);
    redact(&mut jobs[0]);
    let text = serde_json::to_string(&jobs[0]).unwrap();
    assert!(!text.contains("s3cret") && text.contains("egl"), "{text}");
}
