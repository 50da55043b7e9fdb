use std::str::FromStr as _;

use jobs::time::now;
use nix::sys::signal::Signal;

use super::*;

/// A group, and when it is.
struct Played {
    group: WorkerGroup,
    start: Instant,
    now: Instant,
}

impl Played {
    /// Makes a group that has been started, unless it is `new`: `together RANKS RESTARTS` share
    /// their fate, and ranks `alone` restart one by one, whose codes of a `foreign` program mean
    /// nothing.
    fn new(kind: &str, ranks: &str, restarts: &str) -> Played {
        let [ranks, restarts] =
            [ranks, restarts].map(|text| text.parse::<u32>().expect("a number"));
        let isolated = match kind {
            "alone" => Some(vec![3, 127]),
            "foreign" => Some(Vec::new()),
            _ => None,
        };
        let grace = Duration::from_secs(30);
        let group = WorkerGroup::new(ranks as usize, restarts, grace, isolated);
        let start = now();
        let mut played = Played {
            group,
            start,
            now: start,
        };
        if kind != "new" {
            assert_eq!(played.on(GroupEvent::Ready), [GroupAction::Join]);
            let started = played.on(GroupEvent::Joined { attempt: 0 });
            assert_eq!(started, [GroupAction::Start(Scope::All)]);
        }
        played
    }

    fn on(&mut self, event: GroupEvent) -> Vec<GroupAction> {
        self.group.on(event, self.now)
    }

    /// Lets an event happen, perhaps at a time after the start: `2s exit RANK CODE`. Returns it
    /// with the actions that follow, and when the group has its next deadline. A deadline without a
    /// time is due.
    fn play(&mut self, line: &str) -> String {
        let timed = line.split_once("s ").and_then(|(seconds, event)| {
            Some((Duration::from_secs_f64(seconds.parse().ok()?), event))
        });
        let event = match (timed, self.group.deadline()) {
            (Some((after, event)), _) => {
                self.now = self.start + after;
                event
            }
            (None, Some(due)) if line == "deadline" => {
                self.now = due;
                line
            }
            _ => line,
        };
        let actions = self.on(event_of(event));
        let actions: Vec<String> = actions.iter().map(|action| format!("{action:?}")).collect();
        let deadline = self.group.deadline().map(|at| {
            let seconds = (at - self.start).as_secs_f64();
            format!(" | until {seconds} s")
        });
        let deadline = deadline.unwrap_or_default();
        format!("{line}: {}{deadline}", actions.join(", "))
    }
}

fn event_of(text: &str) -> GroupEvent {
    let number = |word: &str| word.parse().expect("a number");
    let received = |name: &str, is_listed| ReceivedSignal {
        number: Signal::from_str(name).expect("a signal") as i32,
        is_listed,
    };
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["ready"] => GroupEvent::Ready,
        ["joined", attempt] => GroupEvent::Joined {
            attempt: attempt.parse().expect("a number"),
        },
        ["changed"] => GroupEvent::Changed,
        ["over", "Succeeded"] => GroupEvent::Over(LaunchEnd::Succeeded),
        ["over", "Failed"] => GroupEvent::Over(LaunchEnd::Failed),
        ["not-started", first, ref told @ ..] => GroupEvent::NotStarted {
            first: number(first),
            told: told.first().map(|name| received(name, true)),
        },
        ["not-restarted", rank] => GroupEvent::NotRestarted(number(rank)),
        ["exit", rank, code] => {
            GroupEvent::Exited(number(rank), Exit::Code(code.parse().expect("a code")))
        }
        ["killed", rank] => GroupEvent::Exited(number(rank), Exit::Signal(libc::SIGKILL)),
        ["signal", name] => GroupEvent::Received(received(name, true)),
        ["unlisted", name] => GroupEvent::Received(received(name, false)),
        ["deadline"] => GroupEvent::Deadline,
        ["swept"] => GroupEvent::Swept(Scope::All),
        ["swept", rank] => GroupEvent::Swept(Scope::One(number(rank))),
        ["end-announced"] => GroupEvent::EndAnnounced,
        _ => panic!("`{text}` is no event"),
    }
}

/// The answer ends with the restart counts of the first ranks, if one was restarted.
#[test]
fn events_lead_to_actions() {
    rig::cases::check(crate::tests::cases("agent/group/cases.txt"), |given| {
        let (group, events) = given.split_once('\n').expect("a group, and events");
        let words: Vec<&str> = group.split(' ').collect();
        let mut played = Played::new(words[0], words[1], words[2]);
        let mut said: Vec<String> = events.lines().map(|line| played.play(line)).collect();
        let ranks = 0..played.group.members.len().min(3);
        let attempts: Vec<u32> = ranks.map(|rank| played.group.attempt(rank)).collect();
        if attempts.iter().any(|attempt| *attempt > 0) {
            said.push(format!("attempts: {attempts:?}"));
        }
        said.join("\n")
    });
}
