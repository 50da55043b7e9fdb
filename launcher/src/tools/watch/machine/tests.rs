//! Tests of the watch without a clock, a file system or an evaluation.

use super::*;

/// A watch, and the time that it is told.
struct Watch {
    machine: Machine,
    now: Instant,
    scan: Scan,
    said: Vec<String>,
}

const RULES: WatchRules = WatchRules {
    settle: Duration::from_secs(10),
    order: Order::Oldest,
    once: false,
    until: None,
};

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn new(rules: WatchRules) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new(rules),
            now,
            scan: Scan::default(),
            said: Vec::new(),
        }
    }

    /// Puts a checkpoint there, or changes it.
    fn put(&mut self, step: u64, fingerprint: u64) -> &mut Self {
        let found = Found {
            step,
            fingerprint,
            missing: None,
        };
        self.scan.insert(format!("step_{step}"), found);
        self
    }

    fn remove(&mut self, step: u64) -> &mut Self {
        self.scan.remove(&format!("step_{step}"));
        self
    }

    /// Sends an event, and returns what is to be done but for messages.
    fn on(&mut self, event: Event) -> Vec<Action> {
        let mut actions = self.machine.on(event, self.now);
        actions.retain(|action| match action {
            Action::Say(text) => {
                self.said.push(text.clone());
                false
            }
            Action::Evaluate(_) | Action::Finish => true,
        });
        actions
    }

    /// Looks at the folder some seconds later.
    fn after(&mut self, seconds: u64) -> Vec<Action> {
        self.now += Duration::from_secs(seconds);
        let scan = self.scan.clone();
        self.on(Event::Scanned(scan))
    }

    fn state(&self, step: u64) -> State {
        self.machine.checkpoints[&format!("step_{step}")].state
    }
}

fn evaluate(step: u64) -> Vec<Action> {
    vec![Action::Evaluate(format!("step_{step}"))]
}

#[test]
fn a_checkpoint_is_evaluated_once_when_it_has_not_changed_for_a_while() {
    let mut watch = Watch::new(RULES);
    assert_eq!(watch.put(1, 1).after(0), []);
    assert_eq!(watch.put(1, 2).after(9), [], "it still grows");
    assert_eq!(watch.after(9), []);
    assert_eq!(watch.after(1), evaluate(1));
    assert_eq!(watch.after(60), [], "it runs");
    assert_eq!(watch.on(Event::Evaluated), []);
    assert_eq!(watch.put(1, 3).after(60), [], "a change comes too late");
    assert_eq!(watch.state(1), State::Evaluated);
}

#[test]
fn an_incomplete_checkpoint_waits_and_says_why_once() {
    let mut watch = Watch::new(RULES);
    watch.put(1, 1).put(2, 1);
    let one = watch.scan.get_mut("step_1").unwrap();
    one.missing = Some("config.json is not there".to_owned());
    watch.after(0);
    assert_eq!(watch.after(10), evaluate(2), "it does not block the others");
    watch.after(60);
    assert_eq!(
        watch.said,
        ["step_1 is not complete: config.json is not there"]
    );
    watch.on(Event::Evaluated);
    watch.put(1, 2).after(0);
    assert_eq!(watch.after(10), evaluate(1));
}

#[test]
fn the_order_is_that_of_steps_from_either_end() {
    for (order, wanted) in [(Order::Oldest, [5, 10, 20]), (Order::Newest, [20, 10, 5])] {
        let mut watch = Watch::new(WatchRules { order, ..RULES });
        watch.put(10, 1).put(5, 1).put(20, 1).after(0);
        assert_eq!(watch.after(10), evaluate(wanted[0]));
        assert_eq!(watch.on(Event::Evaluated), evaluate(wanted[1]));
        assert_eq!(watch.on(Event::Evaluated), evaluate(wanted[2]));
    }
    let mut watch = Watch::new(WatchRules {
        order: Order::Newest,
        ..RULES
    });
    watch.put(10, 1).put(20, 1).after(0);
    assert_eq!(watch.after(10), evaluate(20));
    watch.put(30, 1).after(0);
    watch.after(10);
    assert_eq!(
        watch.on(Event::Evaluated),
        evaluate(30),
        "a newer one comes before the rest"
    );
}

#[test]
fn a_failure_is_tried_again_behind_the_others_and_then_given_up() {
    let mut watch = Watch::new(RULES);
    watch.put(1, 1).put(2, 1).after(0);
    assert_eq!(watch.after(10), evaluate(1));
    assert_eq!(watch.on(Event::Failed("no memory".to_owned())), evaluate(2));
    assert_eq!(watch.on(Event::Evaluated), evaluate(1));
    assert_eq!(watch.on(Event::Failed("no memory".to_owned())), []);
    assert_eq!(watch.state(1), State::Failed);
    assert_eq!(
        watch.said,
        [
            "step_1: evaluation 1 of 2 failed, it is tried again: no memory",
            "step_1: evaluation 2 of 2 failed, it is given up: no memory"
        ]
    );
}

#[test]
fn a_checkpoint_that_disappears_is_skipped_and_may_come_back() {
    let mut watch = Watch::new(RULES);
    watch.put(1, 1).put(2, 1).put(3, 1).after(0);
    assert_eq!(watch.after(10), evaluate(1));
    watch.remove(1).remove(2).after(1);
    assert_eq!(
        watch.said,
        ["step_2: it disappeared before it was evaluated"]
    );
    assert_eq!(watch.on(Event::Failed("no file".to_owned())), evaluate(3));
    assert_eq!((watch.state(1), watch.state(2)), (State::Gone, State::Gone));
    assert_eq!(
        watch.said[1],
        "step_1: it disappeared while it was evaluated"
    );
    watch.on(Event::Evaluated);
    watch.put(2, 1).after(0);
    assert_eq!(watch.after(10), evaluate(2));
    watch.remove(2).after(1);
    watch.on(Event::Evaluated);
    assert_eq!(
        watch.state(2),
        State::Evaluated,
        "its weights were in memory"
    );
}

#[test]
fn a_run_folder_that_is_held_is_tried_later() {
    let mut watch = Watch::new(RULES);
    watch.put(1, 1).put(2, 1).after(0);
    assert_eq!(watch.after(10), evaluate(1));
    assert_eq!(
        watch.on(Event::Held("rrun 77 uses it".to_owned())),
        evaluate(2)
    );
    assert_eq!(watch.on(Event::Evaluated), []);
    assert_eq!(watch.after(29), []);
    assert_eq!(watch.after(1), evaluate(1));
    watch.on(Event::Held("rrun 77 uses it".to_owned()));
    assert_eq!(watch.said, ["step_1 has to wait: rrun 77 uses it"]);
    assert_eq!(watch.machine.checkpoints["step_1"].failures, 0);
}

#[test]
fn what_an_earlier_watch_did_is_not_done_again() {
    let mut watch = Watch::new(RULES);
    let earlier = [
        (1, PointState::Evaluated, 0),
        (2, PointState::Failed, 2),
        (3, PointState::Failed, 1),
        (4, PointState::Running, 0),
        (5, PointState::Gone, 0),
    ];
    for (step, state, failures) in earlier {
        let point = Point {
            name: format!("step_{step}"),
            step,
            state,
            failures,
            ..Point::default()
        };
        watch.machine.remember(&point, watch.now);
    }
    for step in 1..=5 {
        watch.put(step, 1);
    }
    watch.after(0);
    assert_eq!(watch.after(10), evaluate(4), "it is resumed");
    assert_eq!(watch.on(Event::Evaluated), evaluate(5), "it came back");
    assert_eq!(
        watch.on(Event::Evaluated),
        evaluate(3),
        "an attempt is left"
    );
    assert_eq!(watch.on(Event::Evaluated), []);
    assert_eq!(
        (watch.state(1), watch.state(2)),
        (State::Evaluated, State::Failed)
    );
}

#[test]
fn a_stop_ends_the_watch_when_nothing_runs() {
    let mut watch = Watch::new(RULES);
    watch.put(1, 1).put(2, 1).after(0);
    assert_eq!(watch.after(10), evaluate(1));
    assert_eq!(watch.on(Event::Stop), []);
    assert_eq!(
        watch.on(Event::Failed("stopped".to_owned())),
        [Action::Finish]
    );
    assert_eq!(watch.state(1), State::Ready, "a stop is no failure");
    assert!(watch.said.is_empty());
    assert_eq!(Watch::new(RULES).on(Event::Stop), [Action::Finish]);
}

#[test]
fn once_ends_when_everything_there_is_done() {
    let mut watch = Watch::new(WatchRules {
        once: true,
        ..RULES
    });
    watch.put(1, 1).put(2, 1);
    watch.scan.get_mut("step_2").unwrap().missing = Some("a shard".to_owned());
    assert_eq!(watch.after(0), []);
    assert_eq!(watch.after(10), evaluate(1));
    assert_eq!(watch.on(Event::Evaluated), [Action::Finish]);
    assert_eq!(watch.said, ["step_2 is not complete: a shard"]);
    let mut empty = Watch::new(WatchRules {
        once: true,
        ..RULES
    });
    assert_eq!(empty.after(0), [Action::Finish]);
}

#[test]
fn until_ends_when_that_step_and_all_before_it_are_done() {
    let mut watch = Watch::new(WatchRules {
        until: Some(20),
        order: Order::Newest,
        ..RULES
    });
    watch.put(10, 1).put(25, 1).after(0);
    assert_eq!(watch.after(10), evaluate(25));
    assert_eq!(watch.on(Event::Evaluated), evaluate(10));
    assert_eq!(watch.on(Event::Evaluated), [Action::Finish]);
}

const AWAY: &str = "cannot read the folder of the checkpoints, `runs`: No such file or directory";

impl Watch {
    /// Fails to look at the folder some seconds later.
    fn away(&mut self, seconds: u64) -> Vec<Action> {
        self.now += Duration::from_secs(seconds);
        self.on(Event::Unreadable(AWAY.to_owned()))
    }
}

#[test]
fn a_folder_that_cannot_be_read_is_said_once_and_nothing_starts_until_it_is_back() {
    let mut watch = Watch::new(WatchRules {
        once: true,
        ..RULES
    });
    watch.put(1, 1).put(2, 1).after(0);
    assert_eq!(watch.after(10), evaluate(1));
    assert_eq!(watch.away(5), []);
    assert_eq!(watch.on(Event::Evaluated), [], "step_2 may not be there");
    assert_eq!(watch.away(5), []);
    assert_eq!(watch.after(5), evaluate(2), "it is as it was");
    assert_eq!(
        watch.said,
        [
            format!("{AWAY}; it is tried again"),
            "the folder of the checkpoints can be read again".to_owned()
        ]
    );
    assert_eq!(watch.on(Event::Evaluated), [Action::Finish]);
}

#[test]
fn a_failure_while_the_folder_cannot_be_read_is_not_counted() {
    let mut watch = Watch::new(RULES);
    watch.put(1, 1).after(0);
    assert_eq!(watch.after(10), evaluate(1));
    watch.away(5);
    assert_eq!(watch.on(Event::Failed("no config.json".to_owned())), []);
    assert_eq!(watch.after(5), evaluate(1));
    assert_eq!(watch.machine.checkpoints["step_1"].failures, 0);
}

#[test]
fn a_watch_over_a_folder_that_stays_away_ends_when_it_is_stopped() {
    let mut watch = Watch::new(RULES);
    assert_eq!(watch.away(1000), []);
    assert_eq!(watch.on(Event::Stop), [Action::Finish]);
}
