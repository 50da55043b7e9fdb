use std::ffi::OsString;

use jobs::eval_args::EvalArgs;

use super::*;
use crate::node::nvml::GpuMemory;

const GIB: u64 = 1 << 30;

fn on(gpus: usize) -> LaunchSize {
    LaunchSize {
        nproc: None,
        nodes: (1, 1),
        tasks_per_node: Vec::new(),
        gpus,
        is_virtual: false,
    }
}

/// Returns one shared job with 4 environments called `environment`.
fn setup(environment: &str, placement: Option<&str>) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let jobs = dir.path().join("jobs.json");
    let text = format!(
        r#"{{"jobs": [{{"name": "behavior", "arena_env_args": {{"environment": "{environment}"}},
            "policy_type": "scripted", "total_num_envs": 4}}]}}"#
    );
    std::fs::write(&jobs, text).unwrap();
    let mut words = vec![OsString::from("--jobs"), jobs.into()];
    words.extend(
        placement
            .into_iter()
            .flat_map(|text| ["--placement".into(), text.into()]),
    );
    Setup::read(&EvalArgs::parse_words(&words).unwrap(), &|_| None).unwrap()
}

fn refusal(launch: &LaunchSize, placement: &str) -> String {
    launch
        .seat(&setup("reach", Some(placement)), None)
        .unwrap_err()
        .to_string()
}

fn notes(gpus: usize, environment: &str, placement: &str, capacity: &[GpuMemory]) -> Vec<Note> {
    let setup = setup(environment, Some(placement));
    let (_, placement) = on(gpus).seat(&setup, None).unwrap();
    let resources = Resources::new(gpus, 1);
    let args = EvalArgs::parse_words(&["--jobs".into(), "jobs.json".into()]).unwrap();
    let room = GpuBudgets::new(&args, resources, capacity).unwrap();
    SeatingPlan::new(&setup, placement, resources, &room).notes()
}

#[test]
fn the_number_of_ranks_is_that_of_rollout_workers() {
    let ranks = |placement: &str| {
        on(4)
            .seat(&setup("reach", Some(placement)), None)
            .unwrap()
            .0
    };
    assert_eq!(
        [
            ranks("env: 0-1, rollout: 2-3"),
            ranks("env,rollout: all"),
            ranks("env: 0, rollout: 0:0-3")
        ],
        [2, 4, 4]
    );
    assert_eq!(
        on(0)
            .seat(&setup("reach", Some("env: 0-1, rollout: 2-3")), None)
            .unwrap()
            .0,
        2
    );
}

#[test]
fn another_number_of_ranks_is_refused_with_both() {
    let launch = LaunchSize {
        nproc: Some(4),
        ..on(4)
    };
    assert_eq!(
        refusal(&launch, "env: 0-1, rollout: 2-3"),
        "--nproc-per-node is 4 on 1 node(s), 4 ranks in all, but the placement has 2 rollout worker(s), each of which is \
         a rank; leave --nproc-per-node out, or change one of them"
    );
    assert!(
        LaunchSize {
            nproc: Some(2),
            ..on(4)
        }
        .seat(&setup("reach", Some("env: 0-1, rollout: 2-3")), None)
        .is_ok()
    );
}

#[test]
fn gpus_that_are_not_there_are_refused_with_those_that_are() {
    assert!(refusal(&on(2), "env: 0-1, rollout: 2-3").ends_with(
        "GPU 2 does not exist, expected GPU 0 \
            to 1"
    ));
}

#[test]
fn ranks_and_environments_stay_on_the_node_of_their_gpu() {
    let two = LaunchSize {
        nodes: (2, 2),
        ..on(4)
    };
    assert_eq!(
        two.seat(&setup("reach", Some("env,rollout: 0-7")), None)
            .unwrap()
            .0,
        4
    );
    assert_eq!(
        two.seat(
            &setup("reach", Some("env: 0-1,4-5, rollout: 2-3,6-7")),
            None
        )
        .unwrap()
        .0,
        2
    );
    assert!(
        refusal(&two, "env: 0-3, rollout: 4-7")
            .starts_with("rank 0 runs on node 0, but its GPU 4 is on node 1")
    );
    let across = refusal(&two, "env: 4-7, rollout: 0-1,6-7");
    assert!(across.starts_with(
        "environment worker 0 is on node 1, and rank 0, which has its environments, on node 0"
    ));
    assert!(across.ends_with("use a policy server (`rrun serve`)"));
    assert!(
        refusal(&two, "env: 0, rollout: 0-2").contains("cannot be divided evenly among 2 nodes")
    );
    assert!(
        refusal(
            &LaunchSize {
                nodes: (1, 2),
                ..on(4)
            },
            "env,rollout: 0"
        )
        .contains("--nnodes 1:2 leaves")
    );
}

#[test]
fn workers_share_gpus_in_blocks() {
    let gpus = |launch: LaunchSize| {
        let (nproc, placement) = launch.seat(&setup("reach", None), Some(4)).unwrap();
        (
            nproc,
            placement
                .rollout
                .iter()
                .map(jobs::placement::PlacedProcess::gpu)
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(gpus(on(2)), (8, vec![0, 0, 0, 0, 1, 1, 1, 1]));
    assert_eq!(gpus(on(0)).0, 4);
    assert_eq!(
        gpus(LaunchSize {
            nproc: Some(5),
            ..on(2)
        }),
        (5, vec![0, 0, 0, 0, 1])
    );
    let crowd = LaunchSize {
        nproc: Some(20),
        ..on(4)
    }
    .seat(&setup("reach", None), Some(4))
    .unwrap_err()
    .to_string();
    assert_eq!(
        crowd,
        "--nproc-per-node 20 with --workers-per-gpu 4 needs 5 GPUs, 4 are visible"
    );
}

#[test]
fn a_rank_that_sees_one_gpu_alone_cannot_be_placed() {
    let launch = LaunchSize {
        is_virtual: true,
        ..on(4)
    };
    assert!(
        refusal(&launch, "env,rollout: all")
            .starts_with("--virtual-local-rank shows each rank one GPU alone")
    );
    assert!(launch.seat(&setup("reach", None), None).is_ok());
}

#[test]
fn who_sits_where_is_said_with_memory_and_distribution() {
    let capacity = [GpuMemory {
        total: 80 * GIB,
        used: 0,
    }; 4];
    assert_eq!(
        notes(4, "omnigibson_radio", "env: 0-1, rollout: 2-3", &capacity),
        [
            "GPU 0: EnvWorker 0 (2 environments); memory: about 20.0 GiB of 80.0 GiB",
            "GPU 1: EnvWorker 1 (2 environments); memory: about 20.0 GiB of 80.0 GiB",
            "GPU 2: RolloutWorker 0 (policy inference); memory: about 0.5 GiB of 80.0 GiB",
            "GPU 3: RolloutWorker 1 (policy inference); memory: about 0.5 GiB of 80.0 GiB",
            "Worker 0 (GPU 0): Manages 2 environments (env 0, env 1)",
            "Worker 1 (GPU 1): Manages 2 environments (env 0, env 1)",
        ]
    );
}

#[test]
fn without_a_gpu_the_numbers_are_called_labels() {
    let lines = notes(0, "reach", "env: 0-1, rollout: 2-3", &[]);
    assert_eq!(
        lines[0],
        "no GPU here: the numbers of the placement are labels, and everything runs on the CPU"
    );
    assert_eq!(lines[1], "GPU 0: EnvWorker 0 (2 environments)");
}

#[test]
fn a_tight_gpu_and_isaac_above_gpu_0_are_warned_about() {
    let capacity = [GpuMemory {
        total: 24 * GIB,
        used: 0,
    }; 4];
    let lines = notes(4, "behavior_r1pro", "env: 2, rollout: 3", &capacity);
    let warnings: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("warning: "))
        .collect();
    assert!(warnings[0].starts_with(
        "warning: GPU 2 is tight, memory: about 40.0 GiB of 24.0 GiB; use fewer environments"
    ));
    assert_eq!(
        warnings[1],
        "warning: `behavior_r1pro` may hang: environment workers of Isaac Sim should start at GPU \
         0, these start at 2"
    );
}
