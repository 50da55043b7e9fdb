use serde_json::json;

use std::path::Path;

use super::*;

fn settings(args: Value) -> Result<PythonSettings, Refusal> {
    let entry = json!({"jobs": [{"name": "a", "arena_env_args": args, "policy_type": "zero_action", "num_episodes": 1}]});
    PythonSettings::new(&jobs::file::parse(&entry).unwrap()[0])
}

fn refusal(args: Value) -> String {
    settings(args).unwrap_err().to_string()
}

#[test]
fn every_field_is_read() {
    let found = settings(json!({
        "environment": "pkg.mod:make", "num_envs": 4, "env_kwargs": {"a": [1]}, "import": "pkg", "entry_point": ["b", "c"],
        "envs_per_process": 2, "control_hz": 10, "max_episode_steps": 5, "success": "reward>=0.5",
        "mapping": {"video": {"view": {"render": true}}}, "env": {"A": 1, "B": null}, "display": ":3",
        "recycle_after": 9, "pass_episode": true, "env_spacing": 2.0, "env_memory_gb": 4.0,
    }))
    .unwrap();
    assert_eq!(found.imports, ["pkg", "b", "c"]);
    assert_eq!(
        (
            found.envs_per_process,
            found.control_hz,
            found.max_episode_steps
        ),
        (2, Some(10), Some(5))
    );
    assert_eq!(
        found.variables,
        [
            ("A".to_owned(), Some("1".to_owned())),
            ("B".to_owned(), None)
        ]
    );
    assert_eq!(found.display, DisplayChoice::Named(":3".to_owned()));
    assert_eq!(
        (found.recycle_after, found.pass_episode, found.renders()),
        (Some(9), true, true)
    );
    assert_eq!(found.ignored, ["env_spacing"]);
}

#[test]
fn defaults_are_one_copy_a_process_and_python3() {
    let found = settings(json!({"environment": "gym:Pusher-v5", "mapping": null})).unwrap();
    assert_eq!(
        (found.envs_per_process, &found.python),
        (1, &PathBuf::from("python3"))
    );
    assert_eq!(
        (found.renders(), found.display, found.success),
        (false, DisplayChoice::Inherited, None)
    );
}

#[test]
fn a_folder_is_that_of_a_venv_however_it_is_written() {
    // The working directory of a test is that of its crate.
    let folder = tempfile::tempdir_in(".").unwrap();
    let (name, bin) = (
        folder.path().file_name().unwrap().to_str().unwrap(),
        folder.path().join("bin"),
    );
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/sh", bin.join("python")).unwrap();
    for python in [
        name.to_owned(),
        format!("./{name}"),
        folder.path().display().to_string(),
    ] {
        let found = settings(json!({"environment": "gym:a", "python": python}))
            .unwrap()
            .python;
        assert_eq!(found, Path::new(&python).join("bin/python"));
    }
}

#[test]
fn what_is_wrong_is_refused_by_its_place() {
    rig::cases::check("src/env/python/args/refusals.txt", |given| {
        let mut args = json!({"environment": "gym:a"});
        let more: Map<String, Value> = serde_json::from_str(given).unwrap();
        args.as_object_mut().unwrap().extend(more);
        refusal(args)
    });
}

#[test]
fn names_have_one_of_three_forms() {
    for name in ["gym:Pusher-v5", "gym:pkg:Env-v0", "a.b", "a.b:c", "a:b.c"] {
        assert!(settings(json!({"environment": name})).is_ok(), "{name}");
    }
}
