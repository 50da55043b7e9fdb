use super::*;
use crate::eval::tests::cable::Cable;
use crate::eval::tests::leases::serve;

fn rank(rank: usize, port: u16) -> Peers {
    rank_of(2, rank, port)
}

fn rank_of(world: usize, rank: usize, port: u16) -> Peers {
    let env = RankEnv::read(|name| match name {
        "RANK" => Some(rank.to_string()),
        "WORLD_SIZE" => Some(world.to_string()),
        "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
        "MASTER_PORT" => Some(port.to_string()),
        "TORCHELASTIC_USE_AGENT_STORE" => Some("True".to_owned()),
        _ => None,
    });
    Peers::meet(&env.unwrap()).unwrap()
}

/// Lets a rank arrive that does not wait for the others.
fn arrive(mut peers: Peers) {
    peers.wait_for_all(&arrived(), CONNECT, |_| true);
}

pub(super) fn beat(steps: u64) -> Beat {
    Beat {
        steps,
        ..Beat::default()
    }
}

fn arrived() -> Beat {
    Beat {
        arrived: true,
        ..beat(1)
    }
}

/// Returns the last heartbeat of rank 1.
fn heard(near: &mut Peers) -> Option<&Beat> {
    near.read();
    near.beats().nth(1)
}

/// Lets `far` tell of its third step until `near` knows.
fn tell_until_heard(far: &mut Peers, near: &mut Peers) {
    let began = now();
    while heard(near) != Some(&beat(3)) {
        assert!(began.elapsed() < CONNECT, "it is not heard");
        far.tell(&beat(3));
    }
}

#[test]
fn a_rank_that_was_cut_off_is_heard_again() {
    let server = serve();
    let cable = Cable::to(server.port());
    let (mut near, mut far) = (rank(0, server.port()), rank(1, cable.port));
    assert_eq!(far.tell(&beat(1)), None);
    assert_eq!(heard(&mut near), Some(&beat(1)));
    cable.cut();
    far.tell(&beat(2));
    tell_until_heard(&mut far, &mut near);
    near.call_off("enough");
    assert_eq!(far.tell(&beat(4)).as_deref(), Some("enough"));
}

/// Fails if `work` has not ended within two minutes.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    let limit = Duration::from_secs(120);
    ended.recv_timeout(limit).expect("it ends in time")
}

#[test]
fn a_store_that_answers_no_more_holds_a_rank_up_once_and_is_found_again() {
    let server = serve();
    let cable = Cable::to(server.port());
    let (mut near, mut far) = (rank(0, server.port()), rank(1, cable.port));
    far.tell(&beat(1));
    cable.die();
    let (mut far, took) = in_time(move || {
        let began = now();
        for _ in 0..20 {
            far.tell(&beat(2));
            far.is_first("renderer");
        }
        (far, began.elapsed())
    });
    assert!(took < PATIENCE * 2, "{took:?}");
    cable.revive();
    tell_until_heard(&mut far, &mut near);
}

#[test]
fn a_rank_that_waits_for_a_store_that_answers_no_more_waits_no_longer() {
    let server = serve();
    let cable = Cable::to(server.port());
    let mut far = rank(1, cable.port);
    far.tell(&beat(1));
    let die = move |_: &Peers| {
        cable.die();
        false
    };
    let lost = in_time(move || far.wait_for_all(&arrived(), CONNECT * 60, die));
    assert_eq!(lost, [0]);
}

#[test]
fn a_rank_that_arrived_and_was_started_again_is_waited_for_without_haste() {
    let server = serve();
    let port = server.port();
    arrive(rank(1, port));
    let mut again = rank(1, port);
    again.tell(&beat(0));
    let (began, mut looks) = (now(), 0);
    rank(0, port).wait_for_all(&arrived(), CONNECT, |_| {
        looks += 1;
        began.elapsed() > Duration::from_secs(3)
    });
    assert!(server.check("rrun/eval/none/0/all").unwrap());
    assert!(looks <= 6, "it looked {looks} times in three seconds");
}

#[test]
fn a_rank_that_waits_leaves_as_soon_as_the_last_one_has_arrived() {
    let server = serve();
    let mut near = rank(0, server.port());
    // A rest would last longer than the test.
    near.every = Duration::from_secs(3600);
    near.tell(&beat(1));
    let port = server.port();
    let far = move || rank(1, port).wait_for_all(&arrived(), CONNECT, |_| false);
    let arrival = std::thread::spawn(far);
    let lost = in_time(move || near.wait_for_all(&arrived(), CONNECT * 60, |_| false));
    assert_eq!((lost, arrival.join().unwrap()), (vec![], vec![]));
}

#[test]
fn of_all_ranks_one_is_the_first_to_speak_of_a_topic() {
    let server = serve();
    let (near, far) = (rank(0, server.port()), rank(1, server.port()));
    let speakers = [&far, &near, &far];
    let is_first = speakers.map(|peers| peers.is_first("renderer"));
    assert_eq!(is_first, [true, false, false]);
    assert!(near.is_first("another"));
}

#[test]
fn a_rank_arrives_once_however_often_it_is_started() {
    let server = serve();
    arrive(rank(1, server.port()));
    arrive(rank(1, server.port()));
    assert!(
        !server.check("rrun/eval/none/0/all").unwrap(),
        "rank 0 is not there"
    );
    arrive(rank(0, server.port()));
    assert!(server.check("rrun/eval/none/0/all").unwrap());
}

fn crowd(server: &Store, world: usize, ranks: impl Iterator<Item = usize>) -> Vec<Peers> {
    ranks
        .map(|rank| rank_of(world, rank, server.port()))
        .collect()
}

/// Lets all of them arrive at once; returns what each takes for lost.
fn arrive_together(peers: Vec<Peers>, timeout: Duration) -> Vec<Vec<usize>> {
    let arrive = |mut peers: Peers| {
        std::thread::spawn(move || peers.wait_for_all(&arrived(), timeout, |_| false))
    };
    let arriving: Vec<_> = peers.into_iter().map(arrive).collect();
    arriving.into_iter().map(|it| it.join().unwrap()).collect()
}

#[test]
fn of_many_ranks_one_reads_all_heartbeats_and_the_others_its_overview() {
    let (server, world) = (serve(), DIRECT + 8);
    let lost = arrive_together(crowd(&server, world, 0..world), CONNECT);
    assert_eq!(lost, vec![Vec::<usize>::new(); world]);
}

#[test]
fn many_ranks_agree_on_one_that_never_comes() {
    let (server, world) = (serve(), DIRECT + 8);
    // Rank 0 comes last, because it counts the time from then on.
    let lost = arrive_together(crowd(&server, world, (0..world - 1).rev()), STILL * 3);
    assert_eq!(lost, vec![vec![world - 1]; world - 1]);
}

#[test]
fn many_ranks_without_rank_0_wait_no_longer_than_for_any_other() {
    let (server, world) = (serve(), DIRECT + 8);
    let lost = arrive_together(crowd(&server, world, 1..world), STILL);
    assert_eq!(lost, vec![vec![0]; world - 1]);
}

#[test]
fn the_guide_of_many_ranks_knows_the_progress_of_each() {
    let (server, world) = (serve(), DIRECT + 8);
    let mut peers = crowd(&server, world, 0..world);
    for (rank, one) in peers.iter_mut().enumerate() {
        one.tell(&beat(rank as u64));
    }
    peers.iter_mut().for_each(Peers::read);
    let steps: Vec<u64> = peers[0].beats().map(|beat| beat.steps).collect();
    assert_eq!(steps, (0..world as u64).collect::<Vec<_>>());
    assert_eq!(peers[1].beats().count(), 0, "it reads the overview only");
}

#[test]
fn up_to_2048_ranks_have_a_heartbeat_each_second_and_no_rank_waits_for_long() {
    assert_eq!([1, 16, 2048].map(pace), [Duration::from_secs(1); 3]);
    assert_eq!(pace(4096), Duration::from_secs(2));
    assert_eq!(pace(16_384), Duration::from_secs(8));
    assert_eq!(pace(usize::MAX), Duration::from_secs(10));
}

#[test]
fn ranks_of_a_node_that_died_are_lost_in_a_small_overview() {
    let (world, start, minute) = (16_384, now(), Duration::from_secs(60));
    let (later, mut watch) = (start + minute * 2, Watch::new(world, start));
    for rank in 0..world - 64 {
        watch.on(rank, arrived(), later);
    }
    let overview = watch.overview(1, later, STILL);
    let bytes = serde_json::to_vec(&overview).unwrap().len();
    assert!(bytes < 2000, "each rank that waits reads its {bytes} bytes");
    let mut outlook = Outlook::new(later);
    outlook.on(overview, later);
    let lost = outlook.lost(later, minute);
    assert_eq!(lost, (world - 64..world).collect::<Vec<_>>());
    assert!(outlook.settled(world, later, minute));
}
