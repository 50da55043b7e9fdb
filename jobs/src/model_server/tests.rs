use serde_json::json;

use super::*;
use crate::config::Config;
use crate::file;

fn file_with(block: &Value) -> Value {
    let job = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "p", "num_episodes": 1});
    json!({"model_server": block, "jobs": [job]})
}

fn refusal(block: &Value) -> String {
    file::parse(&file_with(block)).unwrap_err().to_string()
}

fn with(field: &str, value: Value) -> Value {
    let mut block = json!({"command": ["serve"], "health_port": 8000});
    block[field] = value;
    block
}

#[test]
fn a_block_is_read_with_its_defaults() {
    let server =
        parse(&json!({"command": ["serve", "--port", "8000"], "health_port": 8000})).unwrap();
    assert_eq!(server.command, ["serve", "--port", "8000"]);
    assert_eq!(
        (server.health, server.devices, server.cwd),
        (Health::Port(8000), None, None)
    );
    assert_eq!(
        (server.start_timeout, server.stop_timeout),
        (Duration::from_secs(600), Duration::from_secs(30))
    );
    assert_eq!((server.max_restarts, server.env.len()), (3, 0));
}

#[test]
fn a_text_goes_to_the_shell_and_all_fields_count() {
    let server = parse(&json!({
        "command": "exec serve --port $PORT", "health_url": "http://127.0.0.1:8000/health", "devices": [1, 0],
        "env": {"PORT": 8000, "HF_HOME": "/data"}, "cwd": "server", "start_timeout": 5, "max_restarts": 0, "stop_timeout": 7,
    }))
    .unwrap();
    assert_eq!(server.command, ["/bin/sh", "-c", "exec serve --port $PORT"]);
    assert_eq!(
        (server.health.to_string().as_str(), server.devices),
        ("http://127.0.0.1:8000/health", Some(vec![1, 0]))
    );
    assert_eq!(
        (server.env["PORT"].as_str(), server.env["HF_HOME"].as_str()),
        ("8000", "/data")
    );
    assert_eq!(
        (server.cwd, server.max_restarts),
        (Some("server".into()), 0)
    );
    assert_eq!(
        (server.start_timeout, server.stop_timeout),
        (Duration::from_secs(5), Duration::from_secs(7))
    );
}

#[test]
fn what_is_wrong_is_refused_by_field() {
    let refusals = [
        (
            json!([]),
            "model_server: found a list of 0, expected an object",
        ),
        (
            json!({"health_port": 1}),
            "model_server field command: it is missing",
        ),
        (
            json!({"command": " ", "health_port": 1}),
            "field command: found \" \", expected a list of words or",
        ),
        (
            json!({"command": [], "health_port": 1}),
            "field command: found a list of 0",
        ),
        (
            json!({"command": ["serve", 8000], "health_port": 1}),
            "field command: a word of the list is not a string",
        ),
        (
            json!({"command": [""], "health_port": 1}),
            "field command: the program is empty",
        ),
        (
            json!({"command": "serve"}),
            "field health_url: it is missing, and so is health_port",
        ),
        (
            with("health_port", json!(70_000)),
            "field health_port: found 70000, expected a whole number up to 65535",
        ),
        (
            with("health_url", json!("http://h")),
            "field health_port: health_url is also given",
        ),
        (
            json!({"command": "s", "health_url": "https://h"}),
            "field health_url: `https://h` cannot be polled",
        ),
        (
            with("devices", json!("0")),
            "field devices: found \"0\", expected a list of GPU indices",
        ),
        (with("devices", json!([0, -1])), "field devices: found -1"),
        (
            with("devices", json!([0, 1, 0])),
            "field devices: GPU 0 is listed twice",
        ),
        (
            with("env", json!({"A=B": "x"})),
            "field env: `A=B` is not the name of a variable",
        ),
        (
            with("env", json!({"A": true})),
            "field env: A: found true, expected a string or a number",
        ),
        (with("cwd", json!("")), "field cwd: it is not a path"),
        (
            with("start_timeout", json!(0)),
            "field start_timeout: found 0, expected a whole number above 0",
        ),
        (
            with("stop_timeout", json!(3601)),
            "field stop_timeout: found 3601, expected a whole number up to 3600",
        ),
        (
            with("max_restarts", json!(-1)),
            "field max_restarts: found -1, expected a whole number",
        ),
        (
            with("max_restarts", json!(1001)),
            "field max_restarts: found 1001, expected a whole number up to 1000",
        ),
        (
            with("start_timout", json!(1)),
            "unknown field `start_timout`; did you mean `start_timeout`?",
        ),
    ];
    for (block, reason) in refusals {
        assert!(
            refusal(&block).contains(reason),
            "{block}: {}",
            refusal(&block)
        );
    }
}

#[test]
fn devices_and_their_variable_are_one_setting() {
    let mut block = with("env", json!({"CUDA_VISIBLE_DEVICES": "1"}));
    assert!(file::parse(&file_with(&block)).is_ok());
    block["devices"] = json!([1]);
    assert!(refusal(&block).contains("field env: CUDA_VISIBLE_DEVICES is also set by `devices`"));
}

#[test]
fn a_misspelt_block_is_refused_with_the_name_of_the_right_one() {
    let mut file = file_with(&Value::Null);
    file["model_sever"] = json!({});
    assert!(
        file::parse(&file)
            .unwrap_err()
            .to_string()
            .contains("did you mean `model_server`?")
    );
}

#[test]
fn a_configuration_has_it_too_and_its_refusals_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["run.yaml", "server.yaml"].map(|name| dir.path().join(name));
    std::fs::write(&paths[0], "env: {eval: {environment: reach}}\n").unwrap();
    let read = |text: &str| {
        std::fs::write(&paths[1], text).unwrap();
        Config::read(&paths, &[], &|name| {
            (name == "PORT").then(|| "8001".to_owned())
        })
    };
    let config =
        read("model_server:\n  command: exec serve ${HOME}\n  health_port: ${oc.env:PORT}\n")
            .unwrap_err();
    assert!(
        config
            .to_string()
            .contains("server.yaml`: model_server field health_port: found \"8001\""),
        "{config}"
    );
    let config = read(
        "model_server:\n  command: exec serve ${HOME}\n  health_url: http://h:${oc.env:PORT}/\n",
    )
    .unwrap();
    let server = config.model_server.unwrap();
    assert_eq!(
        (
            server.command[2].as_str(),
            server.health.to_string().as_str()
        ),
        ("exec serve ${HOME}", "http://h:8001/")
    );
}
