//! Tests of failures: only the copies of the failed process get an error, with the reason, and the
//! next reset starts anew.

use std::fs;

use rig::wait::until;

use super::*;

/// What happens at the second step of an episode with the seed 1, 2, ….
const FAULTS: [&str; 15] = [
    "kill",
    "exit",
    "raise",
    "raise a surrogate",
    "grandchild",
    "chatter",
    "nan",
    "infinite",
    "reward",
    "dtype",
    "shape",
    "float32",
    "text",
    "none",
    "masked",
];

/// Both copies take the same step.
fn both(env: &mut Toy) -> (Result<Step, EnvError>, Result<Step, EnvError>) {
    let actions = [0, 1].map(|index| (EnvIndex(index), vec![0.1, 0.2]));
    let mut steps = env.step(&actions, Render::Yes);
    (steps.remove(0), steps.remove(0))
}

#[test]
fn a_fault_costs_its_own_episode_and_is_told_and_the_next_one_begins_as_ever() {
    let faults = (1..)
        .zip(FAULTS)
        .map(|(seed, fault)| (seed.to_string(), json!([fault, 2])));
    let faults: serde_json::Map<_, _> = faults.collect();
    let args = json!({"environment": fixture("Faulty"), "env_kwargs": {"faults": faults}});
    let mut env = start(args, 2);
    rig::cases::check("src/env/python/tests/faults.txt", |fault| {
        let seed = 1 + FAULTS.iter().position(|known| *known == fault).unwrap();
        let begun = reset(&mut env, 0, 50).unwrap();
        reset(&mut env, 1, seed as u64).unwrap();
        let (first, second) = both(&mut env);
        assert!(first.is_ok() && second.is_ok());
        let (first, second) = both(&mut env);
        let at_two = first.unwrap().observation;
        let told = match second {
            Ok(_) => "it goes on".to_owned(),
            Err(EnvError::Episode { env, reason }) => {
                assert_eq!(env.0, 1);
                shown(&reason)
            }
            other => {
                let (env, reason, stderr) = lost(other);
                assert_eq!(env, 1);
                let said = stderr.iter().filter(|line| !line.starts_with(' '));
                let said: Vec<_> = said.map(|line| format!("    {line}")).collect();
                format!("{}\n{}", shown(&reason), said.join("\n"))
            }
        };
        assert_eq!(reset(&mut env, 1, 50).unwrap().state, begun.state);
        step(&mut env, 1, [0.1, 0.2]).unwrap();
        let again = step(&mut env, 1, [0.1, 0.2]).unwrap().observation;
        assert_eq!(again.state, at_two.state);
        assert!(step(&mut env, 0, [0.0, 0.0]).is_ok());
        told
    });
}

#[test]
fn a_reset_that_fails_is_told_too_and_one_at_the_start_is_nobodys_fault() {
    // The very first reset is the one at the start of the process.
    let folder = tempfile::tempdir().unwrap();
    let kwargs = json!({"fault": "raise", "at": 0, "after": folder.path().join("one")});
    let mut env = start(json!({"env_kwargs": kwargs}), 1);
    let failures = [
        (Blame::Own, "; its last call was `reset`"),
        (
            Blame::Start,
            "; it was at `reset(seed=0)`, which is tried at the start",
        ),
    ];
    for (to_blame, place) in failures {
        let err = reset(&mut env, 0, 1).unwrap_err();
        let reason = err.to_string();
        assert_eq!(blame(Err::<(), _>(err)), to_blame);
        assert!(reason.contains("raised ValueError"), "{reason}");
        assert!(reason.contains(place), "{reason}");
    }
}

#[test]
fn shared_memory_is_written_by_the_simulator_alone_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().file_name().unwrap().to_str().unwrap();
    let kwargs = json!({"fault": "chatter", "at": 1, "once": folder.path().join("once")});
    let mut env = start(json!({"env_kwargs": kwargs, "env": {"RRUN_MARK": mark}}), 2);
    let mut first = reset(&mut env, 0, 1).unwrap();
    let frame = first.video.remove("pixels.top").unwrap();
    step(&mut env, 0, [0.0, 0.0]).unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut own = maps.lines().filter(|map| map.contains("rrun-env"));
    assert!(own.all(|map| map.contains(" r--s ")), "{maps}");
    // Two processes, their fork server, and one that one of them started.
    assert_eq!(marked(mark), 4);
    drop(env);
    // A killed process takes a moment to disappear.
    until("nothing is left", || marked(mark) == 0);
    assert_eq!(frame.rgb[..3], [1, 2, 3]);
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
fn a_process_is_replaced_after_its_episodes() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = folder.path().join("seeds");
    let mut env = start(
        json!({"env_kwargs": {"seeds": seeds}, "recycle_after": 2}),
        1,
    );
    let seen = [0, 1, 2, 3, 4].map(|seed| reset(&mut env, 0, seed).unwrap().state);
    let text = fs::read_to_string(&seeds).unwrap();
    let pids: Vec<_> = text.lines().map(|line| line.rsplit(' ').next()).collect();
    // A process resets once at its start, then twice for the test.
    let same = pids.windows(2).map(|pair| pair[0] == pair[1]);
    assert!(
        same.eq([true, true, false, true, true, false, true]),
        "{text}"
    );
    let mut other = start(json!({}), 1);
    assert_eq!(reset(&mut other, 0, 4).unwrap().state, seen[4]);
}
