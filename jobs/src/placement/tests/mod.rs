use proptest::prelude::*;
use serde_json::json;

use super::*;

mod division;
mod documents;
mod seats;

const EIGHT: Resources = Resources::Gpus {
    per_node: 8,
    nodes: 1,
};

const FOUR: Resources = Resources::Gpus {
    per_node: 4,
    nodes: 1,
};

fn on(line: &str, resources: Resources) -> Result<Placement, String> {
    let components = Components::parse(line).map_err(|err| err.to_string())?;
    Placement::new(&components, resources).map_err(|err| err.to_string())
}

/// Returns the GPUs of each process of `env`.
fn env(text: &str, resources: Resources) -> Result<Vec<Vec<usize>>, String> {
    let text = format!("env: {text}, rollout: 0");
    on(&text, resources).map(|placement| {
        placement
            .env
            .into_iter()
            .map(|process| process.gpus)
            .collect()
    })
}

fn refusal(text: &str) -> String {
    env(text, FOUR).unwrap_err()
}

#[test]
fn one_process_a_gpu_unless_processes_are_named() {
    assert_eq!(env("0-2", FOUR).unwrap(), [[0], [1], [2]]);
    assert_eq!(env("3", FOUR).unwrap(), [[3]]);
    assert_eq!(env("all", FOUR).unwrap(), [[0], [1], [2], [3]]);
    assert_eq!(env("ALL", Resources::Labels).unwrap(), [[0]]);
    assert_eq!(env(" 0 - 1 ,, 3 ,", FOUR).unwrap(), [[0], [1], [3]]);
}

#[test]
fn processes_are_dealt_in_blocks_as_rlinf_deals_them() {
    let two_each = env("0-3:0-7", EIGHT).unwrap();
    assert_eq!(two_each, [[0], [0], [1], [1], [2], [2], [3], [3]]);
    assert_eq!(env("0-7:0-1", EIGHT).unwrap(), [[0, 1, 2, 3], [4, 5, 6, 7]]);
    let documented = env(
        "0-1:0-3,3-5,7-10:7-14",
        Resources::Gpus {
            per_node: 16,
            nodes: 1,
        },
    )
    .unwrap();
    let expected = [0, 0, 1, 1, 3, 4, 5, 7, 7, 8, 8, 9, 9, 10, 10];
    assert_eq!(documented, expected.map(|gpu| vec![gpu]));
}

#[test]
fn every_broken_rule_is_named_with_what_would_do() {
    let table = [
        ("4", "GPU 4 does not exist, expected GPU 0 to 3"),
        ("2-9", "GPU 4 does not exist, expected GPU 0 to 3"),
        (
            "",
            "it is empty, expected a GPU or a range, for example 0 or 0-3",
        ),
        ("0-", "`0-` is not a GPU or a range, for example 0 or 0-3"),
        ("3-1", "`3-1` is reversed: expected `1-3`"),
        (
            "0-3:all",
            "`all` names GPUs, not processes; `0-3` alone gives each GPU one process",
        ),
        (
            "0:0:0",
            "`0:0:0` has more than one colon: expected GPUs or GPUs:processes, for example 0-3:0-7",
        ),
        (
            "0-1,1-2",
            "GPU 1 follows GPU 1: expected GPUs in ascending order, each once, so 2 or above",
        ),
        (
            "2,0",
            "GPU 0 follows GPU 2: expected GPUs in ascending order, each once, so 3 or above",
        ),
        (
            "0-1:1-2",
            "found process 1, expected 0: processes are numbered without gaps",
        ),
        (
            "0:0-1,1:3",
            "found process 3, expected 2: processes are numbered without gaps",
        ),
        (
            "0-1:0-2",
            "3 processes cannot be divided evenly among 2 GPUs; 2 or 4 can",
        ),
        (
            "0-3:0-2",
            "3 processes cannot be divided evenly among 4 GPUs; 2 or 4 can",
        ),
        (
            "0-3:0-4",
            "5 processes cannot be divided evenly among 4 GPUs; 4 or 8 can",
        ),
        (
            "0-99999999999999999999",
            "99999999999999999999 is too large: expected at most 4095",
        ),
    ];
    for (text, reason) in table {
        let found = refusal(text);
        assert!(
            found.starts_with("component_placement env: `") && found.contains(reason),
            "{text}: {found}"
        );
    }
    assert!(
        env("1", Resources::new(1, 1))
            .unwrap_err()
            .ends_with("GPU 1 does not exist, expected GPU 0")
    );
}

#[test]
fn gpus_are_numbered_over_nodes_and_a_process_stays_on_one() {
    let nodes = Resources::new(4, 2);
    assert_eq!(env("3-4", nodes).unwrap(), [[3], [4]]);
    assert_eq!((nodes.node(5), nodes.device(5)), (Some(1), Some(1)));
    assert!(
        env("8", nodes)
            .unwrap_err()
            .ends_with("GPU 8 does not exist, expected GPU 0 to 7 (2 nodes with 4 each)")
    );
    let straddles = env("2-5:0", nodes).unwrap_err();
    assert!(straddles.ends_with(
        "process 0 has GPUs 2 to 5, which are on nodes 0 and 1; a process stays on one"
    ));
}

#[test]
fn without_a_gpu_the_numbers_are_labels() {
    let placement = on("env: 0-1, rollout: 2-3", Resources::new(0, 1)).unwrap();
    assert_eq!(
        placement.rollout,
        [
            PlacedProcess { gpus: vec![2] },
            PlacedProcess { gpus: vec![3] }
        ]
    );
    assert_eq!(
        (Resources::Labels.device(2), Resources::Labels.node(2)),
        (None, None)
    );
}

#[test]
fn one_line_and_a_mapping_say_the_same() {
    let both = |line: &str, value: serde_json::Value| {
        let parsed = Components::parse(line).unwrap();
        assert_eq!(parsed, Components::from_value(&value).unwrap(), "{line}");
        parsed
    };
    both(
        "env: 0-1, rollout: 2-3",
        json!({"env": "0-1", "rollout": "2-3"}),
    );
    both("env,rollout: all", json!({"env,rollout": "all"}));
    both("env, rollout :all", json!({"env , rollout": "all"}));
    both(
        "env: 0-1,3, rollout: 2:0-2",
        json!({"env": "0-1,3", "rollout": " 2:0-2"}),
    );
    both("{env: 0; rollout: 1}", json!({"env": "0", "rollout": " 1"}));
    both(
        "env: 0,all:1-4, rollout: all",
        json!({"env": "0,all:1-4", "rollout": "all"}),
    );
}

#[test]
fn numbers_and_lists_of_yaml_are_places() {
    let components = Components::from_value(&json!({"env": 0, "rollout": [1, "2-3"]})).unwrap();
    let placement = Placement::new(&components, FOUR).unwrap();
    assert_eq!((placement.env.len(), placement.rollout.len()), (1, 3));
}

#[test]
fn a_later_placement_takes_the_place_of_an_earlier_one() {
    let first = Components::parse("env: 0-1, rollout: 2-3").unwrap();
    let both = Components::parse("rollout: 0-1").unwrap().over(first);
    assert_eq!(both, Components::parse("env: 0-1, rollout: 0-1").unwrap());
}

#[test]
fn mistakes_in_one_line_are_named() {
    for (line, reason) in [
        (
            "env: 0-1",
            "component_placement has no `rollout`; env and rollout are both required",
        ),
        (
            "env 0-1",
            "unknown component `env 0-1` (did you mean `env`?)",
        ),
        (
            "0-1",
            "`0-1` has no component before it, for example `env: 0-1`",
        ),
        (
            "env, 0-1",
            "`0-1` follows `env`, a colon is missing between them",
        ),
        (
            "env: 0, rollout",
            "`rollout` has no place, for example `rollout: 0-1`",
        ),
        ("env: 0, env: 1, rollout: 0", "`env` is placed twice"),
        (
            "envs: 0, rollout: 1",
            "unknown component `envs` (did you mean `env`?); expected env or rollout",
        ),
        (
            "",
            "component_placement is empty, expected a mapping of components to GPUs",
        ),
    ] {
        let found = on(line, FOUR).unwrap_err();
        assert!(found.contains(reason), "{line}: {found}");
    }
}

#[test]
fn node_groups_are_refused_by_name() {
    let value = json!({"env": {"node_group": "a800", "placement": "0-1"}, "rollout": 0});
    assert_eq!(
        Components::from_value(&value).unwrap_err().to_string(),
        "component_placement env: `node_group` is not supported; GPUs are numbered over all nodes, \
         for example `0-3`"
    );
}

#[test]
fn components_of_training_are_known_and_not_used() {
    let components = Components::from_value(&json!({"actor,env,rollout": "all"})).unwrap();
    assert_eq!(components.unused().collect::<Vec<_>>(), ["actor"]);
    assert_eq!(Placement::new(&components, FOUR).unwrap().world_size(), 4);
}

proptest! {
    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC{0,40}", near in "[envrolutal0-9:,{}; -]{0,40}", gpus in 0usize..9) {
        for text in [text, near] {
            let _ = on(&text, Resources::new(gpus, 2));
            let _ = env(&text, Resources::new(gpus, 1));
            let _ = Components::from_value(&json!({"env": text, "rollout": [text]}));
        }
    }

    #[test]
    fn what_is_accepted_maps_every_process_to_gpus_that_are_there(text in "([0-9](-[0-9])?(:[0-9](-[0-9])?)?,?){1,3}") {
        if let Ok(processes) = env(&text, EIGHT) {
            prop_assert!(processes.iter().all(|gpus| !gpus.is_empty() && gpus.iter().all(|gpu| *gpu < 8)));
            prop_assert!(processes.windows(2).all(|pair| pair[0][0] <= pair[1][0]), "ascending: {processes:?}");
            let contiguous = |gpus: &Vec<usize>| gpus.windows(2).all(|pair| pair[1] == pair[0] + 1);
            prop_assert!(processes.iter().all(contiguous), "{processes:?}");
        }
    }

    #[test]
    fn blocks_of_a_segment_use_each_gpu_equally_often(gpus in 1usize..9, times in 1usize..5, share in prop::bool::ANY) {
        let (gpus, processes) = if share { (gpus, gpus * times) } else { (gpus * times, gpus) };
        let text = format!("0-{}:0-{}", gpus - 1, processes - 1);
        let placed = env(&text, Resources::new(64, 1)).unwrap();
        prop_assert_eq!(placed.len(), processes);
        let mut uses = vec![0; gpus];
        placed.iter().flatten().for_each(|gpu| uses[*gpu] += 1);
        prop_assert!(uses.iter().all(|count| *count == processes.div_ceil(gpus)), "{uses:?}");
    }

    #[test]
    fn every_environment_has_one_seat_at_its_worker_and_one_rank(
        workers in 1usize..7, ranks in 1usize..7, times in 1usize..4
    ) {
        let total = workers * ranks * times;
        let text = format!("env: 0-{}, rollout: 0-{}", workers - 1, ranks - 1);
        let placement = on(&text, Resources::Labels).unwrap();
        let seats: Vec<_> = (0..ranks).flat_map(|rank| placement.seats(rank, total)).collect();
        let expected: Vec<_> = (0..total)
            .map(|env| Seat { worker: env / (total / workers), gpu: env / (total / workers), env: env % (total / workers) })
            .collect();
        prop_assert_eq!(seats, expected, "in the order of the global environments");
        for rank in 0..ranks {
            let own: std::collections::BTreeSet<_> = placement.seats(rank, total).iter().map(|seat| seat.worker).collect();
            prop_assert_eq!(own, placement.workers(rank).collect());
        }
    }

    #[test]
    fn every_episode_belongs_to_one_slot_of_one_rank(ranks in 1usize..7, times in 1usize..4, episode in 0u64..10_000) {
        let total = ranks * times;
        let shares: Vec<_> = (0..ranks).map(|rank| Share::of(rank, ranks, total)).collect();
        let owners: Vec<_> = shares.iter().filter_map(|share| Some(share.first + share.slot(episode)?)).collect();
        prop_assert_eq!(owners, [(episode % total as u64) as usize]);
    }

    #[test]
    fn episodes_without_an_end_have_numbers_of_their_own(ranks in 1usize..7, times in 1usize..4, epochs in 1usize..4) {
        let total = ranks * times;
        let mut numbers = Vec::new();
        for share in (0..ranks).map(|rank| Share::of(rank, ranks, total)) {
            for slot in 0..times {
                let own: Vec<_> = share.numbers(slot).take(epochs).collect();
                prop_assert!(own.iter().all(|number| share.slot(*number) == Some(slot)));
                numbers.extend(own);
            }
        }
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (0..(epochs * total) as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_proposed_total_passes(
        total in 1usize..50, workers in 1usize..5, ranks in 1usize..5, stages in 1usize..4, group_size in 1usize..4
    ) {
        let division = Division { total, workers, ranks, stages, group_size };
        if let Err(err) = division.check() {
            use crate::placement::check::DivisionError as E;
            let (E::Workers { nearest, .. } | E::Ranks { nearest, .. } | E::Stages { nearest, .. } | E::Groups { nearest, .. }) = err
            else { return Err(TestCaseError::fail(err.to_string())) };
            prop_assert!(!nearest.is_empty());
            for total in nearest {
                prop_assert_eq!(Division { total, ..division }.check(), Ok(()));
            }
        }
    }
}
