//! Tests of failures: only the copies of the failed process get an error, with the reason, and the
//! next reset starts anew.

use std::fs;

use super::*;
use crate::clock::now;

/// An environment of two processes, of which the second misbehaves once.
struct Broken {
    env: Toy,
    _folder: tempfile::TempDir,
}

fn broken_with(fault: &str, at: u64, config: PythonConfig) -> Broken {
    let folder = tempfile::tempdir().unwrap();
    let once = folder.path().join("once");
    let kwargs = json!({"fault": fault, "at": at, "once": once, "only": 1, "env": "{env}"});
    let env = start_with(
        json!({"environment": fixture("numbered"), "env_kwargs": kwargs}),
        config,
    )
    .unwrap();
    Broken {
        env,
        _folder: folder,
    }
}

fn broken(fault: &str, at: u64) -> Broken {
    broken_with(fault, at, PythonConfig::new(2))
}

/// Starts episodes of both copies and steps both until the second fails; returns its reason and
/// last lines. The first must go on, and a reset of the second must show the usual observation.
fn fails(mut broken: Broken) -> (String, Vec<String>) {
    let env = &mut broken.env;
    let begun = reset(env, 0, 5).unwrap();
    let intact = reset(env, 1, 5).unwrap();
    assert_eq!(begun.state, intact.state);
    let both = |env: &mut Toy| {
        let actions = [(EnvIndex(0), vec![0.1, 0.2]), (EnvIndex(1), vec![0.1, 0.2])];
        let mut steps = env.step(&actions, Render::Yes);
        (steps.remove(0), steps.remove(0))
    };
    let (first, second) = both(env);
    assert!(first.is_ok() && second.is_ok());
    let (first, second) = both(env);
    let at_two = first.unwrap().observation;
    let (who, reason, stderr) = match second {
        Err(EnvError::Episode { env, reason }) => (env.0, reason, Vec::new()),
        other => lost(other),
    };
    assert_eq!(who, 1);
    assert_eq!(reset(env, 1, 5).unwrap().state, intact.state);
    step(env, 1, [0.1, 0.2]).unwrap();
    assert_eq!(
        step(env, 1, [0.1, 0.2]).unwrap().observation.state,
        at_two.state
    );
    assert!(step(env, 0, [0.0, 0.0]).is_ok());
    (reason, stderr)
}

#[test]
fn a_killed_process_is_named_with_its_signal_and_last_call() {
    let (reason, stderr) = fails(broken("kill", 2));
    let wanted = "the simulator was killed by SIGKILL; its last call was `step 2` of environment 1, episode 5, seed 5; rank 0, job `toy`, process ";
    assert!(reason.starts_with(wanted), "{reason}");
    assert_eq!(stderr, ["about to: kill"]);
}

#[test]
fn a_process_that_exits_is_named_with_its_code() {
    let (reason, _) = fails(broken("exit", 2));
    assert!(
        reason.starts_with("the simulator exited with code 3; its last call was `step 2`"),
        "{reason}"
    );
}

#[test]
fn an_exception_is_told_with_its_line_and_traceback() {
    let (reason, stderr) = fails(broken("raise", 2));
    assert!(
        reason.starts_with("the simulator raised ValueError: the gripper is not there ("),
        "{reason}"
    );
    assert!(
        reason.contains("toy.py line ")
            && reason.contains("in misbehave); its last call was `step 2`"),
        "{reason}"
    );
    assert!(
        stderr.iter().any(|line| line.contains("Traceback")),
        "{stderr:?}"
    );
    assert_eq!(
        stderr.last().unwrap(),
        "ValueError: the gripper is not there"
    );
}

#[test]
fn a_process_that_hangs_is_given_up_at_its_deadline() {
    let config = PythonConfig {
        stall_timeout: Duration::from_secs(20),
        ..PythonConfig::new(2)
    };
    let (reason, _) = fails(broken_with("hang", 2, config));
    assert!(
        reason.starts_with("the simulator gave no answer for 20 s; its last call was `step 2`"),
        "{reason}"
    );
}

#[test]
fn a_grandchild_that_keeps_the_pipes_hides_no_death() {
    let (reason, stderr) = fails(broken("grandchild", 2));
    assert!(
        reason.starts_with("the simulator exited with code 4"),
        "{reason}"
    );
    assert_eq!(stderr, ["about to: grandchild"]);
}

#[test]
fn numbers_that_are_none_are_told_by_name() {
    let reason = fails(broken("nan", 2)).0;
    let wanted = "the simulator gave NaN as number 1 of state `position`, expected a finite \
        number; at step 2 of episode 5, seed 5; rank 0, job `toy`";
    assert_eq!(reason, wanted);
    let reason = fails(broken("infinite", 2)).0;
    assert!(
        reason.starts_with("the simulator gave inf as number 2 of state `position`"),
        "{reason}"
    );
    let reason = fails(broken("reward", 2)).0;
    assert!(
        reason.starts_with("the simulator gave the reward NaN"),
        "{reason}"
    );
}

#[test]
fn an_observation_that_changes_its_look_is_refused() {
    let reason = fails(broken("dtype", 2)).0;
    let wanted = "the picture of camera pixels.top as float32 [24, 24, 3], at first it was uint8 [24, 24, 3]";
    assert!(reason.contains(wanted), "{reason}");
    let reason = fails(broken("shape", 2)).0;
    assert!(
        reason.contains(
            "the simulator gave state position as float64 [2], at first it was float64 [3]"
        ),
        "{reason}"
    );
}

#[test]
fn a_flood_of_output_does_not_block() {
    let mut broken = broken("chatter", 2);
    reset(&mut broken.env, 1, 5).unwrap();
    step(&mut broken.env, 1, [0.0, 0.0]).unwrap();
    step(&mut broken.env, 1, [0.0, 0.0]).unwrap();
}

#[test]
fn a_reset_that_fails_is_told_too() {
    // The very first reset is the one at the start of the process.
    let folder = tempfile::tempdir().unwrap();
    let kwargs = json!({"fault": "raise", "at": 0, "after": folder.path().join("one")});
    let mut env = start(json!({"env_kwargs": kwargs}), 1);
    let (_, reason, _) = lost(reset(&mut env, 0, 1));
    assert!(
        reason.contains("raised ValueError") && reason.contains("last call was `reset`"),
        "{reason}"
    );
    let (_, reason, _) = lost(reset(&mut env, 0, 1));
    assert!(
        reason.contains("raised ValueError")
            && reason.contains("it was at `reset(seed=0)`, which is tried at the start"),
        "{reason}"
    );
}

#[test]
fn copies_of_a_lost_process_hear_of_it_when_they_step() {
    let folder = tempfile::tempdir().unwrap();
    let kwargs = json!({"fault": "kill", "at": 2, "once": folder.path().join("once")});
    let mut env = start(json!({"env_kwargs": kwargs, "envs_per_process": 2}), 2);
    reset(&mut env, 0, 1).unwrap();
    reset(&mut env, 1, 2).unwrap();
    step(&mut env, 0, [0.0, 0.0]).unwrap();
    let killed = lost(step(&mut env, 0, [0.0, 0.0]));
    let bystander = lost(step(&mut env, 1, [0.0, 0.0]));
    assert_eq!((killed.0, bystander.0), (0, 1));
    assert!(
        bystander.1.contains("killed by SIGKILL") && bystander.1.contains("of environment 0"),
        "{}",
        bystander.1
    );
    reset(&mut env, 1, 2).unwrap();
    step(&mut env, 1, [0.0, 0.0]).unwrap();
}

#[test]
fn nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder
        .path()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let kwargs = json!({"fault": "chatter", "at": 1, "once": folder.path().join("once")});
    let mut env = start(json!({"env_kwargs": kwargs, "env": {"RRUN_MARK": mark}}), 2);
    let frame = reset(&mut env, 0, 1)
        .unwrap()
        .video
        .remove("pixels.top")
        .unwrap();
    step(&mut env, 0, [0.0, 0.0]).unwrap();
    // Two processes, their fork server, and one that one of them started.
    assert_eq!(marked(&mark), 4);
    drop(env);
    // A killed process takes a moment to disappear.
    let deadline = now() + Duration::from_secs(60);
    while marked(&mark) > 0 && now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(marked(&mark), 0);
    assert_eq!(frame.rgb[..3], [1, 2, 3]);
}

#[test]
fn memory_that_a_simulator_writes_is_written_by_nobody_else() {
    let mut env = start(json!({}), 1);
    let frame = reset(&mut env, 0, 1)
        .unwrap()
        .video
        .remove("pixels.top")
        .unwrap();
    assert_eq!(frame.rgb[..3], [1, 2, 3]);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(
        maps.lines()
            .filter(|map| map.contains("rrun-env"))
            .all(|map| map.contains(" r--s ")),
        "{maps}"
    );
}

/// Returns the number of processes with this mark in their environment.
fn marked(mark: &str) -> usize {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let marks = |pid: &String| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|text| String::from_utf8_lossy(&text).contains(mark))
    };
    pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()) && marks(pid))
        .count()
}

#[test]
fn a_simulator_that_cannot_be_made_says_why_with_its_last_lines() {
    let reason =
        refusal(json!({"env_kwargs": {"fault": "construction", "note": "looking for a licence"}}));
    assert!(
        reason.starts_with("the simulator raised RuntimeError: no licence for this simulator ("),
        "{reason}"
    );
    assert!(
        reason.contains("it was at `make ") && reason.contains("\n    looking for a licence\n"),
        "{reason}"
    );
}

#[test]
fn a_start_that_hangs_is_given_up() {
    let config = PythonConfig {
        stall_timeout: Duration::from_secs(2),
        ..PythonConfig::new(1)
    };
    let reason = start_with(json!({"env_kwargs": {"fault": "slow"}}), config)
        .err()
        .unwrap()
        .to_string();
    assert!(
        reason.starts_with("the simulator gave no answer for 2 s; it was at `"),
        "{reason}"
    );
}

#[test]
fn an_interpreter_that_is_none_is_told() {
    let mut broken = job(json!({}));
    broken.env_args["python"] = json!("/bin/true");
    let reason = make(&broken, PythonConfig::new(1), Answers::new(|_, _| ()))
        .err()
        .unwrap()
        .to_string();
    assert!(
        reason
            .starts_with("the simulator exited with code 0; it was at `start of the interpreter`"),
        "{reason}"
    );
}

#[test]
fn a_process_is_replaced_after_its_episodes() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = folder.path().join("seeds");
    let mut env = start(
        json!({"env_kwargs": {"seeds": seeds}, "recycle_after": 2}),
        1,
    );
    let seen: Vec<_> = (0..5)
        .map(|seed| reset(&mut env, 0, seed).unwrap().state)
        .collect();
    let pids = |text: &str| {
        text.lines()
            .map(|line| line.rsplit(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let pids = pids(&fs::read_to_string(&seeds).unwrap());
    // A process resets once at its start, then twice for the test.
    let same: Vec<_> = pids.windows(2).map(|pair| pair[0] == pair[1]).collect();
    assert_eq!(same, [true, true, false, true, true, false, true]);
    let mut other = start(json!({}), 1);
    assert_eq!(reset(&mut other, 0, 4).unwrap().state, seen[4]);
}

#[test]
fn an_action_that_is_none_is_the_episodes_error() {
    let mut env = start(json!({}), 1);
    reset(&mut env, 0, 1).unwrap();
    let reason = step(&mut env, 0, [f32::NAN, 0.0]).unwrap_err().to_string();
    assert_eq!(reason, "environment 0: the action `action_0` is NaN");
    let reason = env
        .step(&[(EnvIndex(0), vec![0.0])], Render::No)
        .remove(0)
        .unwrap_err()
        .to_string();
    assert_eq!(
        reason,
        "environment 0: the action has 1 numbers, expected 2"
    );
    let reason = env
        .step(&[(EnvIndex(7), vec![0.0])], Render::No)
        .remove(0)
        .unwrap_err()
        .to_string();
    assert_eq!(reason, "environment 7: there is no such copy");
}
