use jobs::exported::TorchKeys;
use jobs::samples::{DESCRIPTION, keys, package};
use serde_json::json;

use super::*;
use crate::tests::{cases, environment};

/// Nothing is missing.
const ALL: &str = "all of it is there";

/// Looks for what a job with these fields needs.
fn found(fields: Value) -> String {
    found_with(fields, &Environment::default())
}

fn found_with(fields: Value, env: &Environment) -> String {
    match check(&[jobs::samples::job(fields)], env, 0) {
        Ok(()) => ALL.to_owned(),
        Err(missing) => missing.to_string(),
    }
}

/// Reads the fields of a job, and in front of them a variable, or `SCRIPT` and a line of shell in
/// place of the interpreter of the environment, which is called with `-c CODE MODULE…`.
fn answer(given: &str) -> String {
    let (first, fields) = given.rsplit_once('\n').unwrap_or(("", given));
    let mut fields: Value = serde_json::from_str(fields).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let env = match first.split_once(' ') {
        Some(("SCRIPT", script)) => {
            let python = dir.path().join("python");
            crate::tests::write_program(&python, script);
            fields["arena_env_args"]["python"] = python.to_str().unwrap().into();
            Environment::default()
        }
        _ => environment(first.split_once('=')),
    };
    let folder = format!("{}/", dir.path().display());
    found_with(fields, &env).replace(&folder, "")
}

#[test]
fn what_a_job_names_is_looked_for_before_ranks_start() {
    rig::cases::check(cases("plan/missing/needs.txt"), answer);
}

#[test]
fn the_modules_of_a_python_policy_are_looked_for() {
    let config = json!({"policy": "a_package_of_nobody.policies:make"});
    let text = found(json!({"policy_type": "python", "policy_config_dict": config}));
    assert!(
        text.contains("finds no module `numpy`") || text.contains("`a_package_of_nobody`"),
        "{text}"
    );
    assert!(text.ends_with("as `policy_config_dict.python`"), "{text}");
}

#[test]
fn a_job_whose_variables_are_known_is_looked_at_beside_one_whose_are_the_ranks() {
    let job = |env: Value| {
        let config = json!({"policy": "a_package_of_nobody.policies:make", "env": env});
        jobs::samples::job(json!({"policy_type": "python", "policy_config_dict": config}))
    };
    let both = [
        job(json!({"CUDA_VISIBLE_DEVICES": "{gpu}"})),
        job(json!({})),
    ];
    assert!(check(&both[..1], &Environment::default(), 0).is_ok());
    assert!(check(&both, &Environment::default(), 0).is_err());
}

#[test]
fn a_package_is_refused_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    let refusal = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let config = json!({ "model_path": path });
        let text = found(json!({"policy_type": "exported", "policy_config_dict": config}));
        text.replace(path.to_str().unwrap(), "policy.pt2")
    };
    let any_cpu = TorchKeys {
        machine: std::env::consts::ARCH.to_owned(),
        ..keys()
    };
    assert_eq!(refusal(&package(&any_cpu, DESCRIPTION)), ALL);
    let text = refusal(b"no package");
    assert!(
        text.starts_with("job 0 (a): `policy.pt2`: it is not a `.pt2` package: "),
        "{text}"
    );
    let other_torch = DESCRIPTION.replace("2.11.0", "2.9.1");
    assert_eq!(
        refusal(&package(&any_cpu, &other_torch)),
        "job 0 (a): `policy.pt2`: it was exported by torch 2.9.1+cu130, expected 2.11 or 2.12; \
         export it with that version"
    );
    let newer = TorchKeys {
        cpu_isa: "AVX1024".to_owned(),
        ..any_cpu.clone()
    };
    let text = refusal(&package(&newer, DESCRIPTION));
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
        refusal(&package(&any_cpu, &camera)),
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
        let text = found(json!({"policy_type": "lerobot", "policy_config_dict": config}));
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
    assert_eq!(refusal(left), ALL);
}

/// Says what the trackers of a command line lack.
fn trackers_of(words: &str) -> String {
    let words = crate::tests::words(&format!("--jobs a {words}"));
    let args = jobs::eval_args::EvalArgs::parse_words(&words).unwrap();
    let path = std::env::var("PATH").unwrap();
    let env = environment([("PATH", path.as_str())]);
    match check_trackers(&args.tracking, &env) {
        Ok(()) => "found".to_owned(),
        Err(err) => err.to_string(),
    }
}

#[test]
fn an_interpreter_is_needed_by_others_than_tensorboard() {
    for (words, wanted) in [
        ("", "found"),
        ("--track tensorboard --track-python /no", "found"),
        (
            "--track tensorboard,mlflow --track-python /no/venv",
            "--track mlflow needs Python: `/no/venv` is neither an interpreter nor a venv; \
             name an interpreter or a venv with --track-python",
        ),
    ] {
        assert_eq!(trackers_of(words), wanted, "{words}");
    }
}

#[test]
fn a_package_that_is_not_installed_is_refused_with_the_command_that_installs_it() {
    let venv = tempfile::tempdir().unwrap();
    let bin = venv.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    // The system's interpreter, without the packages of any venv.
    crate::tests::write_program(&bin.join("python"), "exec python3 -S \"$@\"");
    let text = trackers_of(&format!(
        "--track wandb --track-python {}",
        venv.path().display()
    ));
    assert!(
        text.starts_with("--track wandb: `") && text.contains("finds no module `wandb`"),
        "{text}"
    );
    assert!(text.contains("`pip install wandb` there"), "{text}");
}

fn written(folder: &Path, keys: &TorchKeys, description: &str) -> Package {
    let path = folder.join("policy.pt2");
    std::fs::write(&path, package(keys, description)).unwrap();
    Package::read(&path).unwrap()
}

#[test]
fn a_package_for_a_gpu_needs_one_of_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let cuda = TorchKeys {
        device: "cuda".to_owned(),
        compute_capability: Some(90),
        ..keys()
    };
    let cuda = written(folder.path(), &cuda, DESCRIPTION);
    let told = check_gpus(&cuda, 0, &[]).unwrap_err().to_string();
    assert!(
        told.contains("policy.pt2`: it was compiled for a GPU, but no GPU is"),
        "{told}"
    );
    assert_eq!(check_gpus(&cuda, 2, &[80, 90]), Ok(()));
    assert_eq!(check_gpus(&cuda, 1, &[]), Ok(()), "nothing is known");
    let text = check_gpus(&cuda, 2, &[80, 86]).unwrap_err().to_string();
    let wanted = "policy.pt2`: it was compiled for GPUs of compute capability 90, but GPU 0 has \
                  80; export it on such a GPU";
    assert!(text.ends_with(wanted), "{text}");
    let cpu = written(folder.path(), &keys(), DESCRIPTION);
    assert_eq!(check_gpus(&cpu, 0, &[]), Ok(()));
}
