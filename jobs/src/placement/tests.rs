use proptest::prelude::*;
use rig::cases;
use serde_json::json;

use super::*;
use crate::layout::RunFolder;

const EIGHT: Resources = Resources::Gpus {
    per_node: 8,
    nodes: 1,
};

fn on(line: &str, resources: Resources) -> Result<Placement, String> {
    let components = Components::parse(line).map_err(|err| err.to_string())?;
    Placement::new(&components, resources).map_err(|err| err.to_string())
}

/// Returns the GPUs of each process of `env`.
fn env(text: &str, resources: Resources) -> Result<Vec<Vec<usize>>, String> {
    let placement = on(&format!("env: {text}, rollout: 0"), resources)?;
    let processes = placement.env.into_iter();
    Ok(processes.map(|process| process.gpus).collect())
}

/// Returns the placement of a line, in front of which stand the GPUs of a node, and how many nodes
/// there are: `4x1 env: 0, rollout: 1`.
fn on_machine(given: &str) -> Result<Placement, String> {
    let (machine, line) = given.split_once(' ').unwrap();
    let (gpus, nodes) = machine.split_once('x').unwrap();
    on(
        line,
        Resources::new(gpus.parse().unwrap(), nodes.parse().unwrap()),
    )
}

/// Returns the GPUs of each process, or why the line is refused.
fn placed(given: &str) -> String {
    let gpus = |processes: &[PlacedProcess]| {
        let each = processes
            .iter()
            .map(|process| format!("{:?}", process.gpus));
        each.collect::<Vec<_>>().join(" ")
    };
    match on_machine(given) {
        Ok(placed) => format!(
            "env {}, rollout {}",
            gpus(&placed.env),
            gpus(&placed.rollout)
        ),
        Err(refusal) => refusal,
    }
}

#[test]
fn every_process_has_the_gpus_that_its_line_names_or_the_broken_rule_is_named() {
    cases::check("src/placement/places.txt", placed);
}

/// Returns who is on each GPU, what each worker has, and the videos of each rank's environments; of
/// a job with `alone` before its environments, those of each rank that runs it.
fn seated(given: &str) -> String {
    let (total, line) = given.split_once(" of ").unwrap();
    let placement = on_machine(line).unwrap();
    let alone = total.strip_prefix("alone ");
    let total = alone.unwrap_or(total).parse().unwrap();
    let mut said = match alone {
        Some(_) => Vec::new(),
        None => [
            placement.allocation(Some(total)),
            placement.distribution(total),
        ]
        .concat(),
    };
    for rank in 0..placement.world_size() {
        let seats = match alone {
            Some(_) => placement.home(rank, total),
            None => placement.seats(rank, total),
        };
        let videos = seats
            .into_iter()
            .map(|seat| RunFolder::video_stem("a", seat));
        said.push(format!(
            "rank {rank}: {}",
            videos.collect::<Vec<_>>().join(" ")
        ));
    }
    said.join("\n")
}

/// The options of s000 and the examples of s001 are as in these documents.
#[test]
fn environments_sit_where_the_documents_say() {
    cases::check("src/placement/seats.txt", seated);
}

#[test]
fn gpus_are_numbered_over_nodes_and_labels_have_neither_node_nor_device() {
    let nodes = Resources::new(4, 2);
    assert_eq!((nodes.node(5), nodes.device(5)), (Some(1), Some(1)));
    let labels = Resources::new(0, 1);
    assert_eq!((labels.node(2), labels.device(2)), (None, None));
}

#[test]
fn one_line_and_a_mapping_say_the_same() {
    for (line, mapping) in [
        (
            "env: 0-1, rollout: 2-3",
            json!({"env": "0-1", "rollout": "2-3"}),
        ),
        ("env,rollout: all", json!({"env,rollout": "all"})),
        ("env, rollout :all", json!({"env , rollout": "all"})),
        (
            "env: 0-1,3, rollout: 2:0-2",
            json!({"env": "0-1,3", "rollout": " 2:0-2"}),
        ),
        (
            "env: 0,all:1-4, rollout: all",
            json!({"env": "0,all:1-4", "rollout": "all"}),
        ),
        (
            "env: 0, rollout: 1,2-3",
            json!({"env": 0, "rollout": [1, "2-3"]}),
        ),
    ] {
        let parsed = Components::parse(line).unwrap();
        assert_eq!(parsed, Components::from_value(&mapping).unwrap(), "{line}");
    }
}

#[test]
fn a_later_placement_takes_the_place_of_an_earlier_one() {
    let first = Components::parse("env: 0-1, rollout: 2-3").unwrap();
    let both = Components::parse("rollout: 0-1").unwrap().over(first);
    assert_eq!(both, Components::parse("env: 0-1, rollout: 0-1").unwrap());
}

#[test]
fn components_of_training_are_known_and_not_used() {
    let components = Components::from_value(&json!({"actor,env,rollout": "all"})).unwrap();
    assert_eq!(components.unused().collect::<Vec<_>>(), ["actor"]);
    let placement = Placement::new(&components, EIGHT).unwrap();
    assert_eq!(placement.world_size(), 8);
}

#[test]
fn a_total_that_does_not_divide_is_refused_with_the_nearest_that_do() {
    cases::check("src/placement/division.txt", |given| {
        let numbers: Vec<usize> = given.split(' ').map(|word| word.parse().unwrap()).collect();
        let [total, workers, ranks, stages] = numbers[..] else {
            panic!("four numbers: {given}")
        };
        let division = Division {
            total,
            workers,
            ranks,
            stages,
        };
        let checked = division.check();
        checked.map_or_else(|err| err.to_string(), |()| "fits".to_owned())
    });
    let told = check_steps(4100, 32).unwrap_err().to_string();
    let wanted = "4100, which is not a multiple of num_action_chunks 32; 4096 or 4128 are";
    assert!(told.ends_with(wanted));
    assert_eq!(check_steps(4096, 32), Ok(()));
}

#[test]
fn a_share_in_a_journal_may_have_any_numbers() {
    let share = Share {
        first: usize::MAX,
        count: usize::MAX,
        total: 0,
    };
    assert_eq!((share.slot(3), share.envs().len()), (None, 0));
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
        total in 1usize..50, workers in 1usize..5, ranks in 1usize..5, stages in 1usize..4
    ) {
        let division = Division { total, workers, ranks, stages };
        if division.check().is_err() {
            let nearest = division.nearest();
            prop_assert!(!nearest.is_empty());
            for total in nearest {
                prop_assert_eq!(Division { total, ..division }.check(), Ok(()));
            }
        }
    }
}
