//! Blocks of two ranks on one store: claimed, taken over, and closed, also over a connection that
//! breaks.

use super::*;
use crate::clock::now;
use crate::eval::lease::store::{LIMIT, PATIENCE};
use crate::eval::tests::cable::Cable;
use crate::eval::tests::leases::{begin, claim, client, client_at, serve, work};

/// The leases of one rank on a store of their own, which has begun with the job.
fn open(work: &Work, done: &[u64]) -> (tcpstore::Store, Leases, Claim) {
    let store = serve();
    let mut leases = client(&store, 0, work);
    let first = begin(&mut leases, work, done);
    (store, leases, first)
}

/// Returns the rest of the episodes of the current build.
fn rest(leases: &mut Leases) -> Vec<u64> {
    std::iter::from_fn(|| leases.next_episode()).collect()
}

const JOB: JobIndex = JobIndex(0);

#[test]
fn blocks_are_taken_as_episodes_are_asked_for() {
    let work = work(12, 1, 4);
    let (store, mut leases, first) = open(&work, &[1]);
    assert_eq!(first.episodes, 0..3);
    assert_eq!(
        (leases.next_episode(), leases.next_episode()),
        (Some(0), Some(2))
    );
    // Another rank arrives and claims the rest of the job except what is already taken.
    let mut other = client(&store, 1, &work);
    assert_eq!(claim(&mut other).episodes, 3..6);
    assert_eq!(rest(&mut leases), [6, 7, 8, 9, 10, 11]);
    assert_eq!((leases.next_build(), leases.check().is_ok()), (None, true));
}

#[test]
fn a_block_is_done_when_all_of_it_is_written() {
    let work = work(2, 1, 1);
    let (_store, mut leases, _) = open(&work, &[]);
    assert_eq!(rest(&mut leases), [0, 1]);
    for episode in [1, 0] {
        assert!(leases.may_write(JOB, episode).unwrap());
        leases.written(JOB, episode);
    }
    leases.leave(JOB, true);
    assert_eq!(leases.claim(BTreeSet::new()).unwrap(), NextStep::Finished);
}

#[test]
fn what_was_taken_over_is_neither_written_nor_begun() {
    let work = work(12, 1, 4);
    let (store, mut leases, _) = open(&work, &[]);
    assert_eq!(leases.next_episode(), Some(0));
    // The rank is restarted while its old process hangs.
    let mut again = client(&store, 0, &work);
    let claims = [(); 7].map(|()| claim(&mut again).episodes);
    assert_eq!(claims[6], 0..3, "what nobody had comes first");
    assert!(!leases.may_write(JOB, 0).unwrap());
    assert_eq!(leases.next_episode(), None);
    let other = leases.may_write(JobIndex(7), 0).unwrap();
    assert!(other, "a job that is not leased is nobody else's");
}

#[test]
fn each_build_has_its_own_blocks() {
    let work = work(7, 2, 4);
    let (_store, mut leases, _) = open(&work, &[]);
    let mut builds = vec![(0, rest(&mut leases))];
    while let Some(build) = leases.next_build() {
        builds.push((build, rest(&mut leases)));
    }
    assert_eq!(builds, [(0, vec![0, 1, 2, 3]), (1, vec![4, 5, 6])]);
}

#[test]
fn an_attempt_that_failed_is_gone_on_with_and_suspects_come_apart() {
    let work = work(6, 1, 2);
    let (_store, mut leases, _) = open(&work, &[]);
    assert_eq!(rest(&mut leases), [0, 1, 2, 3, 4, 5]);
    assert!(leases.may_write(JOB, 1).unwrap());
    leases.written(JOB, 1);
    leases.leave(JOB, false);
    leases.visit(&work, vec![1], BTreeSet::from([3]));
    assert_eq!(leases.next_build(), Some(0));
    assert_eq!(rest(&mut leases), [0, 2, 4, 5]);
    assert_eq!(leases.apart(), [3]);
    leases.leave(JOB, false);
    leases.give_up(JOB);
    assert_eq!(leases.claim(BTreeSet::new()).unwrap(), NextStep::Finished);
}

/// Returns a rank that has the first of `episodes` blocks of one episode.
fn begun(port: u16, episodes: u64) -> Leases {
    let work = work(episodes, 1, 1);
    let mut leases = client_at(port, 0, &work);
    let first = begin(&mut leases, &work, &[]);
    assert_eq!((first.block, leases.next_episode()), (0, Some(0)));
    leases
}

#[test]
fn a_rank_that_is_started_again_takes_back_what_it_had() {
    let store = serve();
    let (mut before, mut after) = (begun(store.port(), 1), begun(store.port(), 1));
    assert_eq!((before.me.life, after.me.life), (1, 2));
    let is_ours = before.may_write(JOB, 0).unwrap();
    assert!(!is_ours, "it is not the old one's any more");
    assert!(after.may_write(JOB, 0).unwrap());
}

#[test]
fn a_rank_that_was_cut_off_keeps_its_leases_and_gets_more() {
    let store = serve();
    let cable = Cable::to(store.port());
    let mut leases = begun(cable.port, 2);
    cable.cut();
    assert!(leases.may_write(JOB, 0).unwrap(), "it is still ours");
    cable.cut();
    assert_eq!(leases.next_episode(), Some(1));
    for episode in 0..2 {
        cable.cut();
        leases.written(JOB, episode);
    }
    assert_eq!(leases.claim(BTreeSet::new()).unwrap(), NextStep::Finished);
}

#[test]
fn a_rank_whose_connection_went_dead_keeps_its_leases_and_gets_more() {
    let store = serve();
    let cable = Cable::to(store.port());
    let mut leases = begun(cable.port, 2);
    cable.die();
    let marked = std::thread::scope(|scope| {
        let marking = scope.spawn(|| leases.may_write(JOB, 0));
        let began = now();
        while !cable.has_swallowed() && began.elapsed() < LIMIT {
            std::thread::yield_now();
        }
        cable.revive();
        marking.join().unwrap()
    });
    assert!(marked.unwrap(), "it is still ours");
    assert_eq!(leases.next_episode(), Some(1));
}

#[test]
fn a_store_that_vanishes_without_a_word_ends_in_an_error_and_not_in_a_wait() {
    let store = serve();
    let cable = Cable::to(store.port());
    let mut leases = begun(cable.port, 2);
    cable.die();
    let began = now();
    let err = leases.may_write(JOB, 0).unwrap_err().to_string();
    assert!(err.starts_with("leases: the store at 127.0.0.1:"), "{err}");
    assert!(began.elapsed() < LIMIT + PATIENCE, "{:?}", began.elapsed());
}
