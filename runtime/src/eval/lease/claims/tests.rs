//! Claims whose connection breaks.

use super::*;
use crate::clock::now;
use crate::eval::lease::testing::serve;
use crate::eval::tests::cable::Cable;

fn client(store: &Store, rank: usize, blocks: u64) -> (Claims, LeaseHolder) {
    client_at(store.port(), rank, blocks)
}

fn client_at(port: u16, rank: usize, blocks: u64) -> (Claims, LeaseHolder) {
    let addr = StoreAddr::local(port);
    let blocks = (0..blocks).map(|first| first..first + 1).collect();
    let task = LeasedJob {
        job: JobIndex(0),
        blocks,
        done: BTreeSet::new(),
        block_s: 1.0,
    };
    let prefix = "leases".to_owned();
    let config = LeaseConfig { addr, prefix, rank };
    Claims::start(config, vec![task]).unwrap()
}

fn claim(client: &mut Claims, want: Want) -> NextStep {
    client.claim(want, BTreeSet::new()).unwrap()
}

fn block(answer: NextStep) -> usize {
    let NextStep::Run(claim) = answer else {
        panic!("{answer:?}")
    };
    claim.block
}

#[test]
fn two_ranks_share_the_blocks_of_a_real_store() {
    let store = serve();
    let (mut one, me) = client(&store, 0, 3);
    let (mut two, other) = client(&store, 1, 3);
    assert_eq!((me.life, other.life), (1, 1));
    assert_eq!(block(claim(&mut one, Want::Any)), 0);
    assert_eq!(block(claim(&mut two, Want::Any)), 1);
    assert_eq!(block(claim(&mut one, Want::Stay)), 2);
    assert_eq!(claim(&mut two, Want::Stay), NextStep::Nothing);
    let marked = one.mark(me, JobIndex(0), 0).unwrap().unwrap();
    one.done(marked, JobIndex(0), 0);
    one.done(me, JobIndex(0), 2);
    two.done(other, JobIndex(0), 1);
    assert_eq!(two.mark(other, JobIndex(0), 1).unwrap(), None);
    assert_eq!(claim(&mut one, Want::Any), NextStep::Finished);
}

#[test]
fn a_rank_that_is_started_again_takes_back_what_it_had() {
    let store = serve();
    let (mut before, old) = client(&store, 0, 1);
    assert_eq!(block(claim(&mut before, Want::Any)), 0);
    let (mut after, me) = client(&store, 0, 1);
    assert_eq!(me.life, 2);
    assert_eq!(block(claim(&mut after, Want::Any)), 0);
    let taken = before.mark(old, JobIndex(0), 0).unwrap();
    assert_eq!(taken, None, "it is not the old one's any more");
    assert!(after.mark(me, JobIndex(0), 0).unwrap().is_some());
}

#[test]
fn a_rank_that_was_cut_off_keeps_its_leases_and_gets_more() {
    let store = serve();
    let cable = Cable::to(store.port());
    let (mut client, me) = client_at(cable.port, 0, 2);
    assert_eq!(block(claim(&mut client, Want::Any)), 0);
    cable.cut();
    let marked = client.mark(me, JobIndex(0), 0).unwrap();
    let marked = marked.expect("it is still ours");
    cable.cut();
    assert_eq!(block(claim(&mut client, Want::Stay)), 1);
    for (block, holder) in [(0, marked), (1, me)] {
        cable.cut();
        client.done(holder, JobIndex(0), block);
    }
    assert_eq!(claim(&mut client, Want::Any), NextStep::Finished);
}

#[test]
fn a_rank_whose_connection_went_dead_keeps_its_leases_and_gets_more() {
    let store = serve();
    let cable = Cable::to(store.port());
    let (mut client, me) = client_at(cable.port, 0, 2);
    assert_eq!(block(claim(&mut client, Want::Any)), 0);
    cable.die();
    let marked = std::thread::scope(|scope| {
        let marking = scope.spawn(|| client.mark(me, JobIndex(0), 0));
        let began = now();
        while !cable.has_swallowed() && began.elapsed() < LIMIT {
            std::thread::yield_now();
        }
        cable.revive();
        marking.join().unwrap()
    });
    assert!(marked.unwrap().is_some(), "it is still ours");
    assert_eq!(block(claim(&mut client, Want::Stay)), 1);
}

#[test]
fn a_store_that_vanishes_without_a_word_ends_in_an_error_and_not_in_a_wait() {
    let store = serve();
    let cable = Cable::to(store.port());
    let (mut client, me) = client_at(cable.port, 0, 2);
    assert_eq!(block(claim(&mut client, Want::Any)), 0);
    cable.die();
    let began = now();
    let err = client.mark(me, JobIndex(0), 0).unwrap_err().to_string();
    assert!(err.starts_with("leases: the store at 127.0.0.1:"), "{err}");
    assert!(began.elapsed() < LIMIT + PATIENCE, "{:?}", began.elapsed());
}
