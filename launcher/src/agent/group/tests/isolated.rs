//! Ranks that fail and restart independently of each other.

use super::*;
use crate::supervision::Restart;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const FINAL: i32 = 3;

fn started(size: usize, max_restarts: u32, now: Instant) -> WorkerGroup {
    let mut group = WorkerGroup::new(size, max_restarts, GRACE).isolated(vec![FINAL, 127]);
    assert_eq!(group.on(GroupEvent::Ready, now), [GroupAction::Join]);
    assert_eq!(group.on(GroupEvent::Joined { attempt: 0 }, now), [START]);
    group
}

fn killed(rank: usize) -> GroupEvent {
    GroupEvent::Exited(rank, Exit::Signal(libc::SIGKILL))
}

fn swept(rank: usize) -> GroupEvent {
    GroupEvent::Swept(Scope::One(rank))
}

fn sweep(rank: usize) -> GroupAction {
    GroupAction::Sweep {
        scope: Scope::One(rank),
        groups_know: false,
        is_success: false,
    }
}

fn promise(rank: usize, number: u32, of: u32, seconds: u64) -> GroupAction {
    let restart = Restart {
        number,
        of,
        attempt: number,
        after: Duration::from_secs(seconds),
    };
    GroupAction::Promise { rank, restart }
}

fn restart(rank: usize) -> GroupAction {
    GroupAction::Start(Scope::One(rank))
}

fn lose(rank: usize, why: LossReason) -> GroupAction {
    GroupAction::Lose { rank, why }
}

/// Feeds events to the group at times after `start`, and checks the actions that each returns.
#[track_caller]
fn play(
    group: &mut WorkerGroup,
    start: Instant,
    steps: impl IntoIterator<Item = (Duration, GroupEvent, Vec<GroupAction>)>,
) {
    for (after, event, expected) in steps {
        assert_eq!(
            group.on(event, start + after),
            expected,
            "{event:?} after {after:?}"
        );
    }
}

#[test]
fn a_rank_that_fails_is_started_again_alone_after_its_pause() {
    let now = Instant::now();
    let mut group = started(3, 3, now);
    let steps = [
        (SECOND, killed(1), vec![promise(1, 1, 3, 1), sweep(1)]),
        (SECOND, swept(1), vec![]),
        (2 * SECOND, GroupEvent::Deadline, vec![restart(1)]),
        (3 * SECOND, exited(0, 0), vec![]),
        (3 * SECOND, exited(1, 0), vec![]),
        (3 * SECOND, exited(2, 0), vec![SWEEP_SUCCESS]),
        (3 * SECOND, SWEPT, vec![GroupAction::Part]),
        (
            3 * SECOND,
            GroupEvent::Over(LaunchEnd::Succeeded),
            vec![SUCCEEDED],
        ),
    ];
    play(&mut group, now, steps);
    assert_eq!([0, 1, 2].map(|rank| group.attempt(rank)), [0, 1, 0]);
}

#[test]
fn the_end_of_a_pause_is_the_deadline() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    group.on(killed(0), now);
    assert_eq!(
        group.deadline(),
        Some(now + LEFTOVER_GRACE),
        "leftovers are waited for first"
    );
    group.on(swept(0), now);
    assert_eq!(group.deadline(), Some(now + SECOND));
    group.on(GroupEvent::Deadline, now + SECOND);
    assert_eq!(group.deadline(), None);
}

#[test]
fn pauses_double_and_ranks_have_a_budget_each() {
    let now = Instant::now();
    let mut group = started(2, 2, now);
    let steps = [
        (SECOND, exited(0, 1), vec![promise(0, 1, 2, 1), sweep(0)]),
        (SECOND, exited(1, 1), vec![promise(1, 1, 2, 1), sweep(1)]),
        (SECOND, swept(0), vec![]),
        (SECOND, swept(1), vec![]),
        (
            2 * SECOND,
            GroupEvent::Deadline,
            vec![restart(0), restart(1)],
        ),
        (
            2 * SECOND,
            exited(0, 1),
            vec![promise(0, 2, 2, 2), sweep(0)],
        ),
        (2 * SECOND, swept(0), vec![]),
        (3 * SECOND, GroupEvent::Deadline, vec![]),
        (4 * SECOND, GroupEvent::Deadline, vec![restart(0)]),
        (
            4 * SECOND,
            exited(0, 1),
            vec![lose(0, LossReason::Spent), sweep(0)],
        ),
        (5 * SECOND, exited(1, 0), vec![SWEEP]),
        (5 * SECOND, SWEPT, vec![GroupAction::Part]),
        (
            5 * SECOND,
            GroupEvent::Over(LaunchEnd::Succeeded),
            vec![FAILED],
        ),
    ];
    play(&mut group, now, steps);
    assert_eq!([0, 1].map(|rank| group.attempt(rank)), [2, 1]);
}

#[test]
fn a_rank_that_has_lived_ten_minutes_begins_anew() {
    let now = Instant::now();
    let mut group = started(2, 1, now);
    group.on(killed(0), now);
    group.on(swept(0), now);
    group.on(GroupEvent::Deadline, now + SECOND);
    let later = now + SECOND + 10 * MINUTE;
    let again = Restart {
        number: 1,
        of: 1,
        attempt: 2,
        after: SECOND,
    };
    assert_eq!(
        group.on(killed(0), later),
        [
            GroupAction::Promise {
                rank: 0,
                restart: again
            },
            sweep(0)
        ]
    );
    group.on(swept(0), later);
    group.on(GroupEvent::Deadline, later + SECOND);
    assert_eq!(
        group.on(killed(0), later + SECOND + 9 * MINUTE)[0],
        lose(0, LossReason::Spent)
    );
}

#[test]
fn a_rank_that_says_so_is_lost_at_once() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    assert_eq!(
        group.on(exited(1, FINAL), now),
        [lose(1, LossReason::Final), sweep(1)]
    );
    assert_eq!(
        group.on(exited(0, 127), now),
        [lose(0, LossReason::Final), SWEEP]
    );
    group.on(SWEPT, now);
    assert_eq!(
        group.on(GroupEvent::Over(LaunchEnd::Succeeded), now),
        [FAILED]
    );
}

#[test]
fn a_foreign_program_may_exit_with_any_code() {
    let now = Instant::now();
    let mut group = WorkerGroup::new(1, 1, GRACE).isolated(Vec::new());
    group.on(GroupEvent::Joined { attempt: 0 }, now);
    assert_eq!(
        group.on(exited(0, FINAL), now),
        [promise(0, 1, 1, 1), sweep(0)]
    );
}

#[test]
fn the_launch_ends_when_every_rank_is_lost() {
    let now = Instant::now();
    let mut group = started(2, 0, now);
    assert_eq!(
        group.on(killed(0), now),
        [lose(0, LossReason::Spent), sweep(0)]
    );
    assert_eq!(
        group.on(killed(1), now),
        [lose(1, LossReason::Spent), SWEEP],
        "all is swept together"
    );
    assert_eq!(group.on(SWEPT, now), [GroupAction::Part]);
}

#[test]
fn leftovers_hold_a_rank_back_and_are_killed_in_the_end() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    let kill = GroupAction::KillLeftovers(Scope::One(0));
    group.on(killed(0), now);
    let steps = [
        (SECOND, GroupEvent::Deadline, vec![]),
        (LEFTOVER_GRACE, GroupEvent::Deadline, vec![kill]),
        (LEFTOVER_GRACE, swept(0), vec![restart(0)]),
    ];
    play(&mut group, now, steps);
}

#[test]
fn leftovers_that_survive_sigkill_are_not_waited_for_without_limit() {
    let now = Instant::now();
    let mut group = started(1, 3, now);
    group.on(killed(0), now);
    group.on(GroupEvent::Deadline, now + LEFTOVER_GRACE);
    let at = group.deadline().expect("the wait has a limit");
    assert_eq!(at, now + LEFTOVER_GRACE + UNINTERRUPTIBLE_GRACE);
    assert_eq!(group.on(GroupEvent::Deadline, at), [restart(0)]);
}

#[test]
fn a_rank_that_cannot_be_started_again_has_failed_once_more() {
    let now = Instant::now();
    let mut group = started(2, 2, now);
    group.on(killed(0), now);
    group.on(swept(0), now);
    let not_restarted = GroupEvent::NotRestarted(0);
    let steps = [
        (SECOND, GroupEvent::Deadline, vec![restart(0)]),
        (SECOND, not_restarted, vec![promise(0, 2, 2, 2)]),
        (3 * SECOND, GroupEvent::Deadline, vec![restart(0)]),
        (3 * SECOND, not_restarted, vec![lose(0, LossReason::Spent)]),
        (4 * SECOND, exited(1, 0), vec![SWEEP]),
    ];
    play(&mut group, now, steps);
}

#[test]
fn a_signal_during_a_pause_ends_the_launch_and_nothing_is_started() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    group.on(killed(0), now);
    let steps = [
        (SECOND / 2, received(libc::SIGTERM), vec![TERM]),
        (SECOND / 2, swept(0), vec![]),
        (SECOND, exited(1, 143), vec![SWEEP_TOLD]),
        (SECOND, SWEPT, vec![stopped(libc::SIGTERM)]),
    ];
    play(&mut group, now, steps);
}

#[test]
fn a_signal_while_the_only_rank_pauses_has_nobody_to_wait_for() {
    let now = Instant::now();
    let mut group = started(1, 3, now);
    group.on(killed(0), now);
    assert_eq!(
        group.on(received(libc::SIGINT), now),
        [send(libc::SIGINT), SWEEP_TOLD]
    );
}

#[test]
fn after_the_end_was_announced_nothing_is_started_any_more() {
    let now = Instant::now();
    let mut group = started(3, 3, now);
    group.on(killed(0), now);
    let steps = [
        (
            SECOND / 2,
            GroupEvent::EndAnnounced,
            vec![lose(0, LossReason::Ending)],
        ),
        (SECOND / 2, swept(0), vec![]),
        (SECOND, GroupEvent::Deadline, vec![]),
        (
            SECOND,
            exited(1, 1),
            vec![lose(1, LossReason::Ending), sweep(1)],
        ),
        (SECOND, exited(2, 0), vec![SWEEP]),
    ];
    play(&mut group, now, steps);
}

#[test]
fn a_new_round_starts_all_ranks_and_each_keeps_its_count() {
    let now = Instant::now();
    let mut group = started(2, 1, now);
    group.on(killed(0), now);
    group.on(swept(0), now);
    group.on(GroupEvent::Deadline, now + SECOND);
    group.on(killed(0), now + SECOND);
    let steps = [
        (SECOND, GroupEvent::Changed, vec![TERM]),
        (SECOND, exited(1, 143), vec![SWEEP_TOLD]),
        (SECOND, SWEPT, vec![GroupAction::Join]),
        (SECOND, GroupEvent::Joined { attempt: 0 }, vec![START]),
    ];
    play(&mut group, now, steps);
    assert_eq!([0, 1].map(|rank| group.attempt(rank)), [1, 0]);
    assert_eq!(group.on(exited(1, 0), now), []);
    assert_eq!(
        group.on(exited(0, 0), now),
        [SWEEP_SUCCESS],
        "who was lost before has made good for it"
    );
    group.on(SWEPT, now);
    assert_eq!(
        group.on(GroupEvent::Over(LaunchEnd::Succeeded), now),
        [SUCCEEDED]
    );
}

#[test]
fn a_node_that_has_lost_ranks_waits_for_the_others() {
    let now = Instant::now();
    let mut group = started(1, 0, now);
    group.on(killed(0), now);
    assert_eq!(group.on(SWEPT, now), [GroupAction::Part]);
    assert_eq!(
        group.on(GroupEvent::Changed, now),
        [GroupAction::Join],
        "and joins a new round of theirs"
    );
}

#[test]
fn the_failure_of_the_launch_elsewhere_ends_ranks_and_pauses() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    group.on(killed(0), now);
    assert_eq!(group.on(GroupEvent::Over(LaunchEnd::Failed), now), [TERM]);
    assert_eq!(group.on(exited(1, 143), now), [SWEEP_TOLD]);
    assert_eq!(group.on(SWEPT, now), [FAILED]);
}

#[test]
fn a_rank_that_cannot_start_at_all_ends_the_launch() {
    let now = Instant::now();
    let mut group = started(2, 3, now);
    assert_eq!(group.on(not_started(1), now), [tell(1, false), TERM]);
}
