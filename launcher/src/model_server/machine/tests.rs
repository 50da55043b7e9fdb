use proptest::prelude::*;

use super::*;

const LIMITS: ServerLimits = ServerLimits {
    start_timeout: Duration::from_secs(600),
    max_restarts: 2,
    stop_timeout: Duration::from_secs(30),
};

const CRASH: ServerEvent = ServerEvent::Exited(Exit::Code(1));

/// A server and its clock.
struct ServerLife {
    machine: ServerMachine,
    start: Instant,
    now: Instant,
}

fn life(role: ServerRole) -> ServerLife {
    let now = Instant::now();
    ServerLife {
        machine: ServerMachine::new(role, LIMITS),
        start: now,
        now,
    }
}

impl ServerLife {
    /// Returns the actions after an event that follows `seconds` after the previous one.
    fn on(&mut self, seconds: u64, event: ServerEvent) -> Vec<ServerAction> {
        self.now += Duration::from_secs(seconds);
        self.machine.on(event, self.now)
    }

    /// Waits for the next deadline. Returns its time in seconds since the beginning, and the
    /// actions.
    fn wait(&mut self) -> (u64, Vec<ServerAction>) {
        self.now = self.machine.deadline().expect("it waits for something");
        (
            (self.now - self.start).as_secs(),
            self.machine.on(ServerEvent::Deadline, self.now),
        )
    }
}

fn healthy() -> ServerLife {
    let mut life = life(ServerRole::Host);
    life.on(0, ServerEvent::Begin);
    life.on(10, ServerEvent::Answered);
    life
}

const EXITED: ServerFailure = ServerFailure::Exited(Exit::Code(1));
const SILENT: ServerFailure = ServerFailure::Silent(LIMITS.start_timeout);
const TERM: ServerAction = ServerAction::Send(libc::SIGTERM);
const KILL: ServerAction = ServerAction::Send(libc::SIGKILL);

/// A restart of two is promised.
fn promise(cause: ServerFailure, number: u32, after: u64) -> ServerAction {
    let restart = Restart {
        number,
        of: 2,
        attempt: number,
        after: Duration::from_secs(after),
    };
    ServerAction::Promise(cause, restart)
}

fn never_worked(cause: ServerFailure) -> ServerAction {
    ServerAction::GiveUp(cause, GiveUpReason::NeverWorked)
}

#[test]
fn a_server_is_started_and_works_when_it_answers() {
    let mut life = life(ServerRole::Host);
    assert_eq!(life.on(0, ServerEvent::Begin), [ServerAction::Start]);
    assert!(life.machine.starting().is_some() && !life.machine.is_healthy());
    assert_eq!(
        life.on(10, ServerEvent::Answered),
        [ServerAction::Ready(Duration::from_secs(10))]
    );
    assert!(life.machine.is_healthy() && life.machine.deadline().is_none());
}

#[test]
fn one_that_has_never_worked_is_not_tried_again() {
    let begun = |event: ServerEvent| {
        let mut life = life(ServerRole::Host);
        life.on(0, ServerEvent::Begin);
        (life.on(1, event), life.machine.is_over())
    };
    let well = Exit::Code(0);
    for (event, cause) in [
        (CRASH, EXITED),
        (ServerEvent::Exited(well), ServerFailure::Exited(well)),
        (ServerEvent::NotStarted, ServerFailure::NotStarted),
    ] {
        assert_eq!(begun(event), (vec![never_worked(cause)], true));
    }
}

#[test]
fn one_that_never_answers_is_ended_and_the_launch_fails() {
    let mut life = life(ServerRole::Host);
    life.on(0, ServerEvent::Begin);
    assert_eq!(life.wait(), (600, vec![TERM]));
    assert_eq!(life.wait(), (630, vec![KILL]));
    let ended = ServerEvent::Exited(Exit::Signal(9));
    assert_eq!(life.on(0, ended), [never_worked(SILENT)]);
}

#[test]
fn one_that_crashes_is_started_again_after_pauses_until_no_restart_is_left() {
    let mut life = healthy();
    assert_eq!(life.on(5, CRASH), [promise(EXITED, 1, 1)]);
    assert_eq!(life.wait(), (16, vec![ServerAction::Start]));
    // A crash during a start counts like one of a healthy server.
    assert_eq!(life.on(0, CRASH), [promise(EXITED, 2, 2)]);
    assert_eq!(life.wait(), (18, vec![ServerAction::Start]));
    life.on(0, ServerEvent::Answered);
    let spent = ServerAction::GiveUp(EXITED, GiveUpReason::Spent);
    assert_eq!(life.on(0, CRASH), [spent]);
    assert!(life.machine.is_over());
}

#[test]
fn a_restart_that_stays_silent_is_ended_and_counts() {
    let mut life = healthy();
    life.on(0, CRASH);
    life.wait();
    assert_eq!(life.wait().1, [TERM]);
    assert_eq!(life.on(0, CRASH), [promise(SILENT, 2, 2)]);
}

#[test]
fn a_long_life_gives_the_restarts_back() {
    let mut life = healthy();
    for _ in 0..5 {
        assert!(matches!(
            life.on(3600, CRASH)[..],
            [ServerAction::Promise(_, Restart { number: 1, .. })]
        ));
        life.wait();
        life.on(10, ServerEvent::Answered);
    }
}

#[test]
fn it_is_told_to_end_and_killed_when_it_does_not() {
    let mut life = healthy();
    assert_eq!(life.on(0, ServerEvent::Stop), [TERM]);
    assert_eq!(life.wait(), (40, vec![KILL]));
    assert_eq!(life.wait(), (70, vec![ServerAction::Abandon]));
    assert!(life.machine.is_over());
}

#[test]
fn a_second_signal_kills_it_at_once() {
    let mut life = healthy();
    life.on(0, ServerEvent::Stop);
    assert_eq!(life.on(0, ServerEvent::Kill), [KILL]);
    assert_eq!(life.on(0, ServerEvent::Exited(Exit::Signal(9))), []);
    assert!(life.machine.is_over());
}

#[test]
fn its_end_is_none_to_speak_of_when_the_launch_is_ending() {
    let mut life = healthy();
    life.on(0, ServerEvent::EndIsNear);
    assert_eq!(life.on(0, ServerEvent::Exited(Exit::Signal(15))), []);
    assert!(life.machine.is_over());
    let mut life = healthy();
    life.on(0, CRASH);
    assert_eq!(life.on(0, ServerEvent::EndIsNear), []);
    assert!(life.machine.is_over(), "no restart is begun any more");
}

#[test]
fn a_silent_one_that_is_not_needed_any_more_is_not_tried_again() {
    let mut life = life(ServerRole::Host);
    life.on(0, ServerEvent::Begin);
    life.wait();
    life.on(0, ServerEvent::Stop);
    assert_eq!((life.on(0, CRASH), life.machine.is_over()), (vec![], true));
}

#[test]
fn a_guest_waits_and_neither_starts_nor_ends_it() {
    let mut guest = life(ServerRole::Guest);
    assert_eq!(guest.on(0, ServerEvent::Begin), []);
    assert_eq!(
        guest.on(3, ServerEvent::Answered),
        [ServerAction::Ready(Duration::from_secs(3))]
    );
    assert_eq!(
        (guest.on(0, ServerEvent::Stop), guest.machine.is_over()),
        (vec![], true)
    );
    let mut guest = life(ServerRole::Guest);
    guest.on(0, ServerEvent::Begin);
    assert_eq!(guest.wait(), (600, vec![never_worked(SILENT)]));
}

fn event() -> impl Strategy<Value = ServerEvent> {
    prop_oneof![
        Just(ServerEvent::Begin),
        Just(ServerEvent::Answered),
        Just(CRASH),
        Just(ServerEvent::NotStarted),
        Just(ServerEvent::Deadline),
        Just(ServerEvent::EndIsNear),
        Just(ServerEvent::Stop),
        Just(ServerEvent::Kill)
    ]
}

proptest! {
    /// For any events: there is at most one process at a time, none is started after a stop, and
    /// the server comes to an end.
    #[test]
    fn no_order_of_events_starts_two_or_leaves_one(events in prop::collection::vec((0_u64..700, event()), 0..60)) {
        let mut life = life(ServerRole::Host);
        let mut is_running = false;
        let mut stopped = false;
        for (seconds, event) in events {
            // Events that cannot happen: the exit, or the failed start, of a process that does not
            // run.
            if matches!(event, ServerEvent::Exited(_) | ServerEvent::NotStarted) && !is_running {
                continue;
            }
            is_running &= !matches!(event, ServerEvent::Exited(_) | ServerEvent::NotStarted);
            stopped |= matches!(event, ServerEvent::Stop);
            for action in life.on(seconds, event) {
                if action == ServerAction::Start {
                    prop_assert!(!is_running && !stopped);
                    is_running = true;
                }
            }
        }
        life.on(0, ServerEvent::Stop);
        while life.machine.deadline().is_some() {
            let (_, actions) = life.wait();
            prop_assert!(!actions.contains(&ServerAction::Start));
        }
        prop_assert!(life.machine.is_over());
    }
}
