use serde_json::json;

use super::*;

fn job(env_args: Value, policy: (&str, Value)) -> Vec<Job> {
    let entry = json!({"name": "a", "arena_env_args": env_args, "policy_type": policy.0,
                       "policy_config_dict": policy.1, "num_episodes": 1});
    jobs::file::parse(&json!({"jobs": [entry]})).unwrap()
}

fn with_policy(policy: &str, config: Value) -> Result<(), Missing> {
    check(
        &job(json!({"environment": "reach"}), (policy, config)),
        &Environment::default(),
        0,
    )
}

/// Checks an environment whose interpreter is this shell script, called with `-c SCRIPT MODULE…`.
fn with_python(script: &str, mut env_args: Value) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let python = dir.path().join("python");
    // The script is renamed into place: a file that a forked process has open for writing cannot be
    // executed.
    let made = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\"",
            python.to_str().unwrap(),
            script,
        ])
        .status();
    assert!(made.unwrap().success());
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    env_args["python"] = python.to_str().unwrap().into();
    let said = check(
        &job(env_args, ("scripted", json!({}))),
        &Environment::default(),
        0,
    );
    said.map_err(|missing| {
        missing
            .to_string()
            .replace(python.to_str().unwrap(), "python")
    })
}

#[test]
fn a_checkpoint_that_is_not_there_is_refused_with_the_way_to_get_it() {
    let refusal =
        |policy: &str, config: Value| with_policy(policy, config).unwrap_err().to_string();
    assert_eq!(
        refusal("gr00t", json!({"model_path": "/nowhere"})),
        "job 0 (a): `policy_config_dict.model_path` is `/nowhere`, which is not a folder; expected \
         the folder of a checkpoint"
    );
    assert!(
        refusal("gr00t_closedloop", json!({"model_path": "a/b"}))
            .ends_with("`hf download a/b` downloads it")
    );
    let yaml = json!({"policy_config_yaml_path": "/nowhere.yaml"});
    assert!(refusal("gr00t", yaml).ends_with("is `/nowhere.yaml`, and there is no such file"));
    assert!(
        refusal("torchscript", json!({"model_path": "/nowhere.pt"}))
            .ends_with("and there is no such file")
    );
}

#[test]
fn what_is_there_or_of_a_server_is_not_refused() {
    assert_eq!(with_policy("gr00t", json!({"model_path": "/tmp"})), Ok(()));
    assert_eq!(
        with_policy("gr00t", json!({})),
        Ok(()),
        "the ranks know what is missing then"
    );
    for policy in ["gr00t_remote_closedloop", "pi0_remote", "replay_action"] {
        let config =
            json!({"model_path": "/nowhere", "replay_file_path": "/made/by/an/earlier/job"});
        assert_eq!(with_policy(policy, config), Ok(()));
    }
    let mut done = job(
        json!({"environment": "/nowhere.py:make"}),
        ("gr00t", json!({"model_path": "/nowhere"})),
    );
    done[0].status = Status::Completed;
    assert_eq!(check(&done, &Environment::default(), 0), Ok(()));
}

#[test]
fn a_script_and_an_interpreter_that_are_not_there_are_refused() {
    let refusal = |env_args: Value, env: Environment| {
        check(&job(env_args, ("scripted", json!({}))), &env, 0)
            .unwrap_err()
            .to_string()
    };
    let text = refusal(
        json!({"environment": "/nowhere/envs.py:make"}),
        Environment::default(),
    );
    assert!(
        text.contains("names `/nowhere/envs.py`, and there is no such file"),
        "{text}"
    );
    let text = refusal(
        json!({"environment": "gym:a", "python": "/nowhere/venv"}),
        Environment::default(),
    );
    assert!(
        text.contains("is `/nowhere/venv`, expected an interpreter or the folder of a venv"),
        "{text}"
    );
    let text = refusal(
        json!({"environment": "gym:a"}),
        Environment::from([("PATH", "/nowhere")]),
    );
    assert!(text.contains("there is no `python3` in PATH"), "{text}");
}

#[test]
fn a_module_that_the_interpreter_does_not_find_is_refused_by_its_name() {
    let gym = json!({"environment": "gym:a"});
    assert_eq!(
        with_python("echo a banner; echo rrun-missing gymnasium", gym).unwrap_err(),
        "job 0 (a): environment `gym:a`: `python` finds no module `gymnasium`; install it there, or name another \
         interpreter as `arena_env_args.python`"
    );
    // The last arguments are the modules: here all of them are missing.
    let asked =
        |env_args: Value| with_python("shift 2; echo rrun-missing $*", env_args).unwrap_err();
    assert!(asked(json!({"environment": "pkg.mod:make"})).contains("no module `numpy`"));
    let others = |env_args: Value| with_python("shift 3; echo rrun-missing $*", env_args);
    assert!(
        others(json!({"environment": "pkg.mod:make"}))
            .unwrap_err()
            .contains("no module `pkg`")
    );
    let imported = json!({"environment": "gym:a", "import": ["first.x", "second"]});
    assert!(
        others(imported).unwrap_err().contains("no module `first`"),
        "it may bring gymnasium"
    );
    let variable = json!({"environment": "gym:a", "env": {"WHERE": "there"}});
    assert!(
        with_python(
            "echo rrun-missing $([ $WHERE = there ] && echo numpy)",
            variable
        )
        .is_err()
    );
}

#[test]
fn an_interpreter_that_prints_more_than_a_pipe_holds_is_understood() {
    let much = "head -c 100000 /dev/zero | tr '\\0' x; echo; echo rrun-missing gymnasium";
    let refusal = with_python(much, json!({"environment": "gym:a"})).unwrap_err();
    assert!(refusal.contains("no module `gymnasium`"), "{refusal}");
}

#[test]
fn an_interpreter_that_does_not_say_is_left_to_the_ranks() {
    let gym = || json!({"environment": "gym:a"});
    assert_eq!(with_python("exit 3", gym()), Ok(()));
    assert_eq!(
        with_python("echo rrun-missing numpy; exit 1", gym()),
        Ok(())
    );
    assert_eq!(with_python("echo hello", gym()), Ok(()));
    let placed = json!({"environment": "gym:a", "env": {"PYTHONPATH": "/of/{gpu}"}});
    assert_eq!(with_python("echo rrun-missing numpy", placed), Ok(()));
}

#[test]
fn the_file_the_interpreter_and_the_modules_of_a_python_policy_are_looked_for() {
    let refusal = |config: Value| with_policy("python", config).unwrap_err().to_string();
    assert_eq!(
        refusal(json!({"policy": "/nowhere/mine.py:make"})),
        "job 0 (a): `policy_config_dict.policy` names `/nowhere/mine.py`, and there is no such \
         file; it is looked for from the working directory"
    );
    assert_eq!(
        refusal(json!({"policy": "mine:make", "python": "/nowhere/venv"})),
        "job 0 (a): `policy_config_dict.python` is `/nowhere/venv`, expected an interpreter or \
         the folder of a venv"
    );
    let text = refusal(json!({"policy": "a_package_of_nobody.policies:make"}));
    assert!(
        text.contains("finds no module `numpy`") || text.contains("`a_package_of_nobody`"),
        "{text}"
    );
    assert!(text.ends_with("as `policy_config_dict.python`"), "{text}");
}

#[test]
fn a_package_is_refused_before_anything_is_started() {
    use jobs::exported::TorchKeys;
    use jobs::exported::testing::{DESCRIPTION, keys, package};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    let refusal = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let config = json!({ "model_path": path });
        let checked = with_policy("exported", config).map_err(|missing| missing.to_string());
        checked.map_err(|text| text.replace(path.to_str().unwrap(), "policy.pt2"))
    };
    let any_cpu = TorchKeys {
        machine: std::env::consts::ARCH.to_owned(),
        ..keys()
    };
    assert_eq!(refusal(&package(&any_cpu, DESCRIPTION)), Ok(()));
    assert!(
        refusal(b"no package")
            .unwrap_err()
            .starts_with("job 0 (a): `policy.pt2`: it is not a `.pt2` package: ")
    );
    let other_torch = DESCRIPTION.replace("2.11.0", "2.9.1");
    assert_eq!(
        refusal(&package(&any_cpu, &other_torch)).unwrap_err(),
        "job 0 (a): `policy.pt2`: it was exported by torch 2.9.1+cu130, expected 2.11 or 2.12; \
         export it with that version"
    );
    let newer = TorchKeys {
        cpu_isa: "AVX1024".to_owned(),
        ..any_cpu.clone()
    };
    let text = refusal(&package(&newer, DESCRIPTION)).unwrap_err();
    assert!(
        text.contains("compiled for a CPU with avx1024, which this CPU lacks"),
        "{text}"
    );
    let camera = DESCRIPTION.replace(
        r#"{"kind": "state", "vectors": [{"name": "eef_position", "size": 3}]}"#,
        r#"{"kind": "cameras", "names": ["top"], "height": 8, "width": 8, "layout": "HWC",
            "dtype": "uint8", "stacked": false}"#,
    );
    assert_eq!(
        refusal(&package(&any_cpu, &camera)).unwrap_err(),
        "job 0 (a): `policy.pt2` reads the camera `top`, but `reach` has front, wrist; \
         `policy_config_dict.cameras` gives cameras other names"
    );
}

#[test]
fn a_checkpoint_of_lerobot_is_read_before_ranks_start() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |mapping: Value| {
        let config =
            json!({"model_path": folder.path(), "mapping": mapping, "python": "/bin/true"});
        let text = match with_policy("lerobot", config) {
            Ok(()) => "nothing".to_owned(),
            Err(missing) => missing.to_string(),
        };
        text.replace(&folder.path().display().to_string(), "FOLDER")
    };
    assert_eq!(
        refusal(json!({})),
        "job 0 (a): `FOLDER/config.json`: No such file or directory (os error 2); a checkpoint of \
         LeRobot has this file"
    );
    let config = r#"{"type": "act", "input_features": {"observation.images.left": {"type": "VISUAL", "shape": [3, 4, 4]}}}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    assert!(refusal(json!({})).contains("policy_preprocessor.json`: there is no such file"));
    for name in ["policy_preprocessor.json", "policy_postprocessor.json"] {
        std::fs::write(folder.path().join(name), "{}").unwrap();
    }
    assert_eq!(
        refusal(json!({})),
        "job 0 (a): `policy_config_dict.mapping.cameras` is without `observation.images.left`, \
         expected the camera for each; environment `reach` has front, wrist"
    );
    let left = json!({"cameras": {"observation.images.left": "wrist"}});
    assert_eq!(refusal(left), "nothing");
}

#[test]
fn the_mapping_of_an_environment_has_to_be_there() {
    let refused = |mapping: Value| {
        let env_args = json!({"environment": "gym:CartPole-v1", "mapping": mapping});
        with_python("exit 0", env_args)
    };
    let refusal = refused(json!("/nowhere.yaml")).unwrap_err();
    let wanted = "`arena_env_args.mapping` is `/nowhere.yaml`, and there is no such file";
    assert!(refusal.contains(wanted), "{refusal}");
    assert_eq!(refused(json!({"cameras": {"front": "render"}})), Ok(()));
}
