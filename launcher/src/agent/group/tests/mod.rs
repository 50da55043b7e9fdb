mod isolated;

use super::*;
use crate::agent::group::stopping::LAST_GRACE;

const GRACE: Duration = Duration::from_secs(30);
const START: GroupAction = GroupAction::Start(Scope::All);
const TERM: GroupAction = send(libc::SIGTERM);
const KILL: GroupAction = send(libc::SIGKILL);
const SWEEP: GroupAction = sweep_all(false, false);
const SWEEP_SUCCESS: GroupAction = sweep_all(false, true);
const SWEEP_TOLD: GroupAction = sweep_all(true, false);
const SWEPT: GroupEvent = GroupEvent::Swept(Scope::All);
const SUCCEEDED: GroupAction = GroupAction::Finish(LaunchEnd::Succeeded);
const FAILED: GroupAction = GroupAction::Finish(LaunchEnd::Failed);

const fn send(signal: i32) -> GroupAction {
    GroupAction::Send { signal }
}

const fn sweep_all(groups_know: bool, is_success: bool) -> GroupAction {
    GroupAction::Sweep {
        scope: Scope::All,
        groups_know,
        is_success,
    }
}

fn stopped(signal: i32) -> GroupAction {
    GroupAction::Finish(LaunchEnd::Stopped { signal })
}

fn started(size: usize, max_restarts: u32, now: Instant) -> WorkerGroup {
    let mut group = WorkerGroup::new(size, max_restarts, GRACE);
    assert_eq!(group.on(GroupEvent::Ready, now), [GroupAction::Join]);
    assert_eq!(group.on(GroupEvent::Joined { attempt: 0 }, now), [START]);
    group
}

fn tell(rank: usize, restarts: bool) -> GroupAction {
    GroupAction::Tell { rank, restarts }
}

fn exited(rank: usize, code: i32) -> GroupEvent {
    GroupEvent::Exited(rank, Exit::Code(code))
}

const fn listed(number: i32) -> ReceivedSignal {
    ReceivedSignal {
        number,
        is_listed: true,
    }
}

fn received(number: i32) -> GroupEvent {
    GroupEvent::Received(listed(number))
}

fn not_started(first: usize) -> GroupEvent {
    GroupEvent::NotStarted { first, told: None }
}

fn unlisted(number: i32) -> GroupEvent {
    GroupEvent::Received(ReceivedSignal {
        number,
        is_listed: false,
    })
}

#[test]
fn all_exits_with_zero_are_success() {
    let now = Instant::now();
    let mut group = started(2, 0, now);
    assert_eq!(group.on(exited(1, 0), now), []);
    assert_eq!(group.on(exited(0, 0), now), [SWEEP_SUCCESS]);
    assert_eq!(group.on(SWEPT, now), [GroupAction::Part]);
    assert_eq!(
        group.on(GroupEvent::Over(LaunchEnd::Succeeded), now),
        [SUCCEEDED]
    );
}

#[test]
fn a_failure_terminates_the_others_and_fails_the_launch() {
    let now = Instant::now();
    let mut group = started(3, 0, now);
    assert_eq!(group.on(exited(1, 7), now), [tell(1, false), TERM]);
    assert_eq!(group.deadline(), Some(now + GRACE));
    assert_eq!(group.on(exited(0, 0), now), []);
    assert_eq!(group.on(exited(2, 1), now), [SWEEP_TOLD]);
    assert_eq!(group.on(SWEPT, now), [FAILED]);
}

#[test]
fn the_failure_of_the_last_rank_tells_the_groups_and_sweeps() {
    let now = Instant::now();
    let mut group = started(1, 0, now);
    assert_eq!(
        group.on(exited(0, 1), now),
        [tell(0, false), TERM, SWEEP_TOLD]
    );
}

#[test]
fn who_outlives_the_grace_is_killed() {
    let now = Instant::now();
    let mut group = started(2, 0, now);
    group.on(exited(0, 1), now);
    assert_eq!(group.on(GroupEvent::Deadline, now + GRACE), [KILL]);
    assert_eq!(group.on(exited(1, 0), now + GRACE), [SWEEP_TOLD]);
}

#[test]
fn who_survives_even_sigkill_is_abandoned_without_restart() {
    let now = Instant::now();
    let mut group = started(2, 1, now);
    group.on(exited(0, 1), now);
    group.on(GroupEvent::Deadline, now + GRACE);
    let at = group.deadline().expect("the wait has a limit");
    assert_eq!(
        group.on(GroupEvent::Deadline, at),
        [GroupAction::Abandon(1), SWEEP_TOLD]
    );
    assert_eq!(group.on(SWEPT, at), [FAILED]);
}

#[test]
fn leftovers_that_survive_sigkill_are_not_waited_for_without_limit() {
    let now = Instant::now();
    let mut group = started(1, 0, now);
    group.on(exited(0, 0), now);
    group.on(GroupEvent::Deadline, now + LEFTOVER_GRACE);
    let at = group.deadline().expect("the wait has a limit");
    assert_eq!(group.on(GroupEvent::Deadline, at), [GroupAction::Part]);
}

#[test]
fn leftovers_that_outlive_their_grace_are_killed() {
    let now = Instant::now();
    let mut group = started(1, 0, now);
    group.on(exited(0, 0), now);
    assert_eq!(group.deadline(), Some(now + LEFTOVER_GRACE));
    assert_eq!(
        group.on(GroupEvent::Deadline, now + LEFTOVER_GRACE),
        [GroupAction::KillLeftovers(Scope::All)]
    );
    assert_eq!(group.on(SWEPT, now), [GroupAction::Part]);
}

#[test]
fn a_restart_comes_after_everything_ended_and_counts() {
    let now = Instant::now();
    let mut group = started(2, 1, now);
    assert_eq!(group.on(exited(0, 3), now), [tell(0, true), TERM]);
    assert_eq!(group.on(exited(1, 3), now), [SWEEP_TOLD]);
    assert_eq!(group.on(SWEPT, now), [GroupAction::Join]);
    assert_eq!(group.on(GroupEvent::Joined { attempt: 1 }, now), [START]);
    assert_eq!(group.attempt(0), 1);
    assert_eq!(group.on(exited(0, 3), now), [tell(0, false), TERM]);
    group.on(exited(1, 3), now);
    assert_eq!(group.on(SWEPT, now), [FAILED]);
}

#[test]
fn a_signal_is_forwarded_and_ends_without_restart() {
    let now = Instant::now();
    let mut group = started(1, 5, now);
    assert_eq!(
        group.on(received(libc::SIGUSR1), now),
        [send(libc::SIGUSR1)]
    );
    assert_eq!(group.on(exited(0, 0), now), [SWEEP_TOLD]);
    assert_eq!(group.on(SWEPT, now), [stopped(libc::SIGUSR1)]);
}

#[test]
fn second_interrupt_kills_at_once() {
    let now = Instant::now();
    let mut group = started(2, 0, now);
    assert_eq!(group.on(received(libc::SIGINT), now), [send(libc::SIGINT)]);
    assert_eq!(group.on(received(libc::SIGINT), now), [KILL]);
}

#[test]
fn second_sigterm_is_forwarded_with_little_grace_and_a_third_kills() {
    let now = Instant::now();
    let mut group = started(2, 0, now);
    group.on(received(libc::SIGTERM), now);
    assert_eq!(group.on(received(libc::SIGTERM), now), [TERM]);
    assert_eq!(group.deadline(), Some(now + LAST_GRACE));
    assert_eq!(group.on(received(libc::SIGTERM), now), [KILL]);
}

#[test]
fn a_signal_during_the_stop_before_a_restart_cancels_the_restart() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    group.on(exited(0, 1), now);
    let later = now + Duration::from_secs(10);
    assert_eq!(group.on(received(libc::SIGTERM), later), [TERM]);
    assert_eq!(
        group.deadline(),
        Some(now + GRACE),
        "the grace does not start again"
    );
    group.on(exited(1, 0), later);
    assert_eq!(group.on(SWEPT, later), [stopped(libc::SIGTERM)]);
}

#[test]
fn a_signal_while_sweeping_cancels_the_restart_but_not_success() {
    let now = Instant::now();
    let mut restarting = started(1, 1, now);
    restarting.on(exited(0, 1), now);
    assert_eq!(
        restarting.on(received(libc::SIGTERM), now),
        [GroupAction::KillLeftovers(Scope::All)]
    );
    assert_eq!(restarting.on(SWEPT, now), [stopped(libc::SIGTERM)]);
    let mut succeeded = started(1, 1, now);
    succeeded.on(exited(0, 0), now);
    assert_eq!(
        succeeded.on(received(libc::SIGTERM), now),
        [GroupAction::KillLeftovers(Scope::All)]
    );
    assert_eq!(succeeded.on(SWEPT, now), [GroupAction::Part]);
}

#[test]
fn an_unlisted_signal_kills_the_ranks() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    assert_eq!(group.on(unlisted(libc::SIGUSR1), now), [KILL]);
    group.on(exited(0, 0), now);
    group.on(exited(1, 0), now);
    assert_eq!(
        group.on(SWEPT, now),
        [GroupAction::Finish(LaunchEnd::Killed {
            signal: libc::SIGUSR1
        })]
    );
}

#[test]
fn a_signal_before_the_start_finishes() {
    let now = Instant::now();
    let mut group = WorkerGroup::new(1, 0, GRACE);
    assert_eq!(
        group.on(received(libc::SIGTERM), now),
        [stopped(libc::SIGTERM)]
    );
}

#[test]
fn a_rank_that_cannot_start_stops_those_before_it() {
    let now = Instant::now();
    let mut group = started(3, 3, now);
    assert_eq!(group.on(not_started(1), now), [tell(1, false), TERM]);
    assert_eq!(group.on(exited(0, 0), now), [SWEEP_TOLD]);
    assert_eq!(
        group.on(SWEPT, now),
        [GroupAction::Finish(LaunchEnd::NotStarted)]
    );
}

#[test]
fn the_first_rank_that_cannot_start_leaves_nothing_to_wait_for() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    assert_eq!(
        group.on(not_started(0), now),
        [tell(0, false), TERM, SWEEP_TOLD]
    );
}

#[test]
fn another_round_stops_the_ranks_and_costs_no_restart() {
    let now = Instant::now();
    let mut group = started(1, 0, now);
    assert_eq!(group.on(GroupEvent::Changed, now), [TERM]);
    assert_eq!(group.on(exited(0, 143), now), [SWEEP_TOLD]);
    assert_eq!(group.on(SWEPT, now), [GroupAction::Join]);
    assert_eq!(group.on(GroupEvent::Joined { attempt: 0 }, now), [START]);
}

#[test]
fn restarts_on_other_nodes_count_too() {
    let now = Instant::now();
    let mut group = started(1, 1, now);
    group.on(GroupEvent::Changed, now);
    group.on(exited(0, 143), now);
    group.on(SWEPT, now);
    assert_eq!(group.on(GroupEvent::Joined { attempt: 1 }, now), [START]);
    assert_eq!(group.attempt(0), 1);
    assert_eq!(group.on(exited(0, 3), now)[0], tell(0, false));
}

#[test]
fn the_end_of_the_launch_elsewhere_ends_the_ranks() {
    let now = Instant::now();
    let mut group = started(1, 5, now);
    assert_eq!(group.on(GroupEvent::Over(LaunchEnd::Failed), now), [TERM]);
    group.on(exited(0, 143), now);
    assert_eq!(group.on(SWEPT, now), [FAILED]);
}

#[test]
fn the_end_of_the_launch_elsewhere_cancels_a_restart() {
    let now = Instant::now();
    let mut group = started(1, 5, now);
    group.on(exited(0, 1), now);
    assert_eq!(group.on(GroupEvent::Over(LaunchEnd::Failed), now), []);
    assert_eq!(group.on(SWEPT, now), [FAILED]);
}

#[test]
fn who_has_succeeded_joins_a_new_round_of_the_others() {
    let now = Instant::now();
    let mut group = started(1, 0, now);
    group.on(exited(0, 0), now);
    group.on(SWEPT, now);
    assert_eq!(group.on(GroupEvent::Changed, now), [GroupAction::Join]);
}

#[test]
fn a_node_that_is_not_needed_ends_without_ranks() {
    let now = Instant::now();
    let mut group = WorkerGroup::new(1, 0, GRACE);
    group.on(GroupEvent::Ready, now);
    assert_eq!(
        group.on(GroupEvent::Over(LaunchEnd::Succeeded), now),
        [SUCCEEDED]
    );
}

#[test]
fn a_signal_while_ranks_are_started_waits_for_those_that_run_alone() {
    let now = Instant::now();
    let mut group = started(500, 0, now);
    let interrupted = GroupEvent::NotStarted {
        first: 2,
        told: Some(listed(libc::SIGTERM)),
    };
    assert_eq!(group.on(interrupted, now), [TERM]);
    assert_eq!(group.on(exited(0, 143), now), []);
    assert_eq!(group.on(exited(1, 143), now), [SWEEP_TOLD]);
}
