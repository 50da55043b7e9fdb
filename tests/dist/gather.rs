//! Tests of the gather over the store at the end of an evaluation.

use crate::dist::child;
use crate::dist::ranks::{PATIENCE, join, ranks, serve};
use std::io::{self, BufRead, BufReader};
use std::process::abort;
use std::time::Duration;
use tch::Device;
use tcpstore::{Deadline, Store, StoreError};
use torchlib::{Gathered, Gathering, Route};

/// Rank, number of ranks, and round.
type Who = (usize, usize, u32);

fn who(rank: usize, world: usize) -> Who {
    (rank, world, 0)
}

fn on_cpu(
    store: &Store,
    (rank, world, round): Who,
    mine: &[u8],
    deadline: Duration,
) -> Result<Gathered, StoreError> {
    let gathering = Gathering {
        store: store.prefix(&format!("rrun/gather/run/{round}")),
        rank,
        world,
        device: Device::Cpu,
        own_gpu_each: false,
        until: Deadline::after(deadline),
    };
    gathering.run(mine.to_vec())
}

/// Returns the part of a rank: rank 0 has nothing, the others 1.5, 3.0 … times the store's maximum
/// transfer.
fn part(rank: usize) -> Vec<u8> {
    (0..rank * 6_000_000)
        .map(|i| (i * 31 + rank) as u8)
        .collect()
}

#[test]
fn parts_of_two_to_four_ranks_reach_rank_0_alone() {
    for world in 2..=4 {
        let found = ranks(world, |rank, store| {
            on_cpu(&store, who(rank, world), &part(rank), PATIENCE).unwrap()
        });
        for (rank, gathered) in found.iter().enumerate() {
            let has = |other: usize| rank == 0 || rank == other;
            let wanted: Vec<_> = (0..world).map(|it| has(it).then(|| part(it))).collect();
            assert_eq!((gathered.route, &gathered.note), (Route::Store, &None));
            assert!(gathered.parts == wanted, "rank {rank} of {world}");
        }
    }
}

#[test]
fn empty_parts_are_there_not_missing() {
    let found = ranks(3, |rank, store| {
        on_cpu(&store, who(rank, 3), b"", PATIENCE).unwrap()
    });
    assert_eq!(found[0].parts, vec![Some(vec![]); 3]);
}

#[test]
fn a_rank_missing_at_the_deadline_is_named_and_the_rest_is_kept() {
    let server = serve();
    for rank in [1, 3] {
        on_cpu(&join(server.port()), who(rank, 4), &[rank as u8], PATIENCE).unwrap();
    }
    let first = on_cpu(&server, who(0, 4), &[0], Duration::from_millis(100)).unwrap();
    assert_eq!(
        first.parts,
        [Some(vec![0]), Some(vec![1]), None, Some(vec![3])]
    );
    assert_eq!(
        first.note.unwrap(),
        "rank 2 did not deliver by the deadline"
    );
}

#[test]
fn a_rank_that_comes_too_late_is_told_so() {
    let server = serve();
    let first = on_cpu(&server, who(0, 2), b"0", Duration::from_millis(100)).unwrap();
    assert_eq!(first.parts, [Some(b"0".to_vec()), None]);
    let late = on_cpu(&join(server.port()), who(1, 2), b"1", PATIENCE).unwrap();
    assert_eq!(
        late.note.unwrap(),
        "rank 0 had closed the report before rank 1 came"
    );
}

#[test]
fn a_rank_that_dies_while_delivering_is_missing() {
    if let Some(port) = child::port() {
        let store = join(port).prefix("rrun/gather/run/0");
        store.set("part/1/0", b"half of it").unwrap();
        store.wait("part/1/0", PATIENCE).unwrap();
        store.set("died", b"").unwrap();
        store.wait("died", PATIENCE).unwrap();
        abort();
    }
    let server = serve();
    let mut peer = child::start(a_rank_that_dies_while_delivering_is_missing, server.port());
    server.wait("rrun/gather/run/0/died", PATIENCE).unwrap();
    let first = on_cpu(&server, who(0, 2), b"0", Duration::from_millis(200)).unwrap();
    assert_eq!(first.parts, [Some(b"0".to_vec()), None]);
    assert_eq!(
        first.note.unwrap(),
        "rank 1 did not deliver by the deadline"
    );
    assert!(!peer.wait().unwrap().success());
}

#[test]
fn parts_of_an_earlier_attempt_are_not_taken() {
    let server = serve();
    on_cpu(&join(server.port()), who(1, 2), b"old", PATIENCE).unwrap();
    let second = |rank| (rank, 2, 1);
    on_cpu(&join(server.port()), second(1), b"new", PATIENCE).unwrap();
    let first = on_cpu(&server, second(0), b"0", PATIENCE).unwrap();
    assert_eq!(first.parts[1], Some(b"new".to_vec()));
}

#[test]
fn a_changed_piece_is_damage_and_named() {
    let server = serve();
    on_cpu(&join(server.port()), who(1, 2), b"part", PATIENCE).unwrap();
    server.set("rrun/gather/run/0/part/1/0", b"pear").unwrap();
    let first = on_cpu(&server, who(0, 2), b"0", PATIENCE).unwrap();
    assert_eq!(first.parts[1], None);
    assert_eq!(first.note.unwrap(), "rank 1 delivered a damaged part");
}

#[test]
fn pieces_leave_the_store_with_the_report() {
    let server = serve();
    on_cpu(&join(server.port()), who(1, 2), b"part", PATIENCE).unwrap();
    let piece = || server.get("rrun/gather/run/0/part/1/0", PATIENCE).unwrap();
    assert_eq!(piece(), b"part");
    on_cpu(&server, who(0, 2), b"0", PATIENCE).unwrap();
    assert_eq!(piece(), b"");
}

#[test]
fn a_store_that_dies_while_rank_0_waits_is_an_error_long_before_the_deadline() {
    if child::told().is_some() {
        let store = serve();
        println!("port={}", store.port());
        // Wait until the test ends, in whatever way.
        io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let test = a_store_that_dies_while_rank_0_waits_is_an_error_long_before_the_deadline;
    let mut host = child::start(test, 0);
    let lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let port = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("port=")?.1.trim().parse().ok());
    let store = join(port.unwrap());
    let waiting = std::thread::spawn({
        let store = store.clone();
        move || on_cpu(&store, who(0, 2), b"0", Duration::from_secs(3600))
    });
    host.kill().unwrap();
    host.wait().unwrap();
    let err = waiting.join().unwrap().unwrap_err();
    assert!(err.is_lost(), "{err:?}");
    let err = on_cpu(&store, who(1, 2), b"1", Duration::from_secs(3600)).unwrap_err();
    assert!(err.is_lost(), "{err:?}");
}

/// Rank 0 leaves with its store as soon as it has everything; the other rank must not treat that as
/// a failure.
#[test]
fn a_store_that_rank_0_hosts_outlives_the_gather() {
    let server = serve();
    let client = join(server.port());
    let other = std::thread::spawn(move || on_cpu(&client, who(1, 2), b"1", PATIENCE));
    on_cpu(&server, who(0, 2), b"0", PATIENCE).unwrap();
    drop(server);
    assert_eq!(other.join().unwrap().unwrap().note, None);
}
