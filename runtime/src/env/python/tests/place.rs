//! Tests of the variables, display and GPU that a process gets.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use jobs::eval_args::Screen;

use super::*;

fn told(args: Value, config: PythonConfig) -> Vec<String> {
    let num_envs = config.place.gpus.len();
    let mut args = args;
    args["environment"] = json!(fixture("Placed"));
    args["mapping"] = json!({"language": {"attr": "place"}});
    let mut env = start_with(args, config).unwrap();
    (0..num_envs)
        .map(|index| reset(&mut env, index, 0).unwrap().language.to_string())
        .collect()
}

#[test]
fn each_process_sees_its_gpu_its_egl_device_and_its_numbers() {
    let place = EnvPlacement {
        gpus: gpus(&[Some(3), None, Some(1), Some(1)]),
        rank: 7,
        ..EnvPlacement::new(0)
    };
    let mut config = config(place);
    config.egl.devices = [(Some(1), 0), (None, 5)].into();
    let names = ["CUDA_VISIBLE_DEVICES", "MUJOCO_EGL_DEVICE_ID", "OWN"];
    let kwargs = json!({"names": names, "told": ["{gpu}", "{env}", "{rank}", "port 90{env}"]});
    let args = json!({"env_kwargs": kwargs, "env": {"OWN": "{gpu}"}, "envs_per_process": 2});
    let wanted = [
        "CUDA_VISIBLE_DEVICES=3 MUJOCO_EGL_DEVICE_ID=3 OWN=3 [3, 0, 7, 'port 900']",
        "CUDA_VISIBLE_DEVICES=None MUJOCO_EGL_DEVICE_ID=5 OWN=None [None, 1, 7, 'port 901']",
        "CUDA_VISIBLE_DEVICES=1,-1,0 MUJOCO_EGL_DEVICE_ID=0 OWN=1 [1, 2, 7, 'port 902']",
        "CUDA_VISIBLE_DEVICES=1,-1,0 MUJOCO_EGL_DEVICE_ID=0 OWN=1 [1, 3, 7, 'port 903']",
    ];
    assert_eq!(told(args, config), wanted);
}

#[test]
fn a_display_of_its_own_takes_clients_while_the_environment_lives() {
    let args = json!({"environment": fixture("Placed"), "env_kwargs": {"names": ["DISPLAY"]}, "display": "auto",
                      "mapping": {"language": {"attr": "place"}}});
    let mut env = start(args, 1);
    let place = reset(&mut env, 0, 0).unwrap().language.to_string();
    let number = place.strip_prefix("DISPLAY=:").unwrap();
    let number = number.split(' ').next().unwrap();
    let socket = format!("/tmp/.X11-unix/X{number}");
    let mut client = UnixStream::connect(&socket).unwrap();
    // X11 protocol 11.0 without authorisation; the first byte of the reply is 1 if the client is
    // accepted.
    let order = if cfg!(target_endian = "little") {
        b'l'
    } else {
        b'B'
    };
    let eleven = 11u16.to_ne_bytes();
    let hello = [order, 0, eleven[0], eleven[1], 0, 0, 0, 0, 0, 0, 0, 0];
    client.write_all(&hello).unwrap();
    let mut reply = [0];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply, [1]);
    drop(env);
    assert!(!Path::new(&socket).exists() && !Path::new(&format!("/tmp/.X{number}-lock")).exists());
}

#[test]
fn a_display_that_the_job_names_is_taken_as_it_is() {
    let place = EnvPlacement {
        xvfb: Some(Screen {
            width: 64,
            height: 64,
            depth: 24,
        }),
        ..EnvPlacement::new(1)
    };
    let args = json!({"env_kwargs": {"names": ["DISPLAY"]}, "display": ":77"});
    assert_eq!(told(args, config(place)), ["DISPLAY=:77 None"]);
}

#[test]
fn a_simulator_has_its_addresses_at_random() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = folder.path().join("seeds");
    let mut env = start(json!({"env_kwargs": {"seeds": seeds}}), 1);
    reset(&mut env, 0, 1).unwrap();
    let text = fs::read_to_string(&seeds).unwrap();
    let pid = text.trim_end().rsplit(' ').next().unwrap();
    let flags = fs::read_to_string(format!("/proc/{pid}/personality")).unwrap();
    let flags = u32::from_str_radix(flags.trim(), 16).unwrap();
    assert_eq!(flags & libc::ADDR_NO_RANDOMIZE as u32, 0, "{flags:#x}");
}
