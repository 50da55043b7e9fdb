use jobs::file::JobFile;
use jobs::placement::{Components, Placement, Resources};
use serde_json::{Value, json};

use super::*;

fn server(block: &Value) -> ModelServer {
    let file = json!({"model_server": block, "jobs": [jobs::samples::entry(json!({}))]});
    let file = JobFile::new("jobs.json".as_ref(), String::new(), &file);
    file.unwrap().model_server.unwrap()
}

fn block(command: &[&str], devices: Option<&[usize]>) -> Value {
    json!({"command": command, "health_port": 1, "devices": devices})
}

fn seating(gpus: usize, placement: &str) -> SeatingPlan {
    let resources = Resources::new(gpus, 1);
    let placement = Placement::new(&Components::parse(placement).unwrap(), resources).unwrap();
    SeatingPlan {
        placement,
        resources,
        is_placed: true,
        total_num_envs: None,
        allocation: Vec::new(),
        distribution: Vec::new(),
        memory: Vec::new(),
        warnings: Vec::new(),
    }
}

#[test]
fn devices_count_what_the_launcher_sees() {
    let refused = |text: &str| Err(format!("model_server.devices: {text}"));
    for (devices, gpus, shown, wanted) in [
        (&[1, 0][..], 4, None, Ok("1,0".to_owned())),
        (&[1], 2, Some("3, GPU-5f"), Ok("GPU-5f".to_owned())),
        // A server without a GPU.
        (&[], 4, Some("3,5"), Ok(String::new())),
        // Without a GPU here, numbers are labels.
        (&[7], 0, None, Ok("7".to_owned())),
        (
            &[0, 4],
            4,
            None,
            refused("GPU 4 does not exist, GPUs 0 to 3 are visible"),
        ),
        (
            &[1],
            1,
            None,
            refused("GPU 1 does not exist, GPU 0 alone is visible"),
        ),
    ] {
        let found = visible(devices, gpus, shown).map_err(|err| err.to_string());
        assert_eq!(found, wanted);
    }
}

#[test]
fn a_gpu_that_ranks_have_too_is_warned_about() {
    for (devices, gpus, placement, wanted) in [
        (Some(&[0][..]), 4, "env: 1-2, rollout: 2-3", &[][..]),
        (
            Some(&[0, 2]),
            4,
            "env: 0-1, rollout: 2-3",
            &[
                "GPU 0 is used by the model server and by environment worker 0",
                "GPU 2 is used by the model server and by rank 0",
            ],
        ),
        (
            None,
            4,
            "env,rollout: all",
            &["model_server has no `devices`: it sees all GPUs"],
        ),
        (
            Some(&[0]),
            0,
            "env,rollout: 0",
            &["model_server has `devices`, but there is no GPU"],
        ),
        (None, 0, "env,rollout: 0", &[]),
    ] {
        let server = server(&block(&["x"], devices));
        let said = caveats(&server, gpus, &seating(gpus, placement));
        assert_eq!(said.len(), wanted.len(), "{said:?}");
        for (line, wanted) in said.iter().zip(wanted) {
            assert!(line.starts_with(wanted), "{line}");
        }
    }
}

#[test]
fn folder_and_program_are_looked_up_as_they_will_be() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/sh", dir.path().join("serve")).unwrap();
    let folder = dir.path().to_str().unwrap();
    let check = |command: &str, cwd: Option<&str>, path: Option<&str>| {
        let mut server = server(&block(&[command], None));
        server.cwd = cwd.map(Into::into);
        server
            .env
            .extend(path.map(|path| ("PATH".to_owned(), path.to_owned())));
        check_program(&server, &Environment::from([("PATH", "/nowhere")]))
            .map_err(|err| err.to_string())
    };
    let refused = |text: &str| Err(format!("model_server.{text}"));
    assert_eq!(check("./serve", Some(folder), None), Ok(()));
    assert_eq!(check("serve", None, Some(folder)), Ok(()));
    assert_eq!(
        check("serve", None, None),
        refused("command: there is no program `serve`")
    );
    assert_eq!(
        check("/bin/sh", Some("/nowhere"), None),
        refused("cwd: there is no folder `/nowhere`")
    );
}
