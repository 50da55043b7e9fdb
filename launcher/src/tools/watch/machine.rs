//! Decides which checkpoint is evaluated when. Pure: events and the time come in, actions go out.
//!
//! ```text
//!                      unchanged for `settle` and whole
//!   waiting ────────────────────────────────────────────────────────► ready ──► Running
//!      ▲ └──────────── disappears ──────────► Gone ◄── disappears ──────┘          │
//!      └─────────────── comes back ────────────┘ ▲                                 │
//!                                                └── fails, and is not there ──────┤
//!   ready ◄──── fails, with attempts left; Failed ◄──── fails, with none left ─────┤
//!                                          Evaluated ◄──── its report is complete ─┘
//! ```
//! One checkpoint is evaluated at a time. A checkpoint that failed before comes after those that
//! did not, so that it never blocks them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use report::curve::{Point, PointState};

/// Pause before a checkpoint whose run folder another launch holds is tried again.
const HELD: Duration = Duration::from_secs(30);

/// How often the evaluation of a checkpoint may fail.
const ATTEMPTS: u32 = 2;

/// Which checkpoint comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Order {
    /// The lowest step.
    #[default]
    Oldest,
    /// The highest step; the others come when there is nothing newer.
    Newest,
}

/// What the user wants.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct WatchRules {
    /// Seconds without a change after which a checkpoint is complete
    #[arg(long = "settle", value_name = "SECONDS", default_value_t = 30)]
    settle_s: u64,

    /// Which checkpoint comes next
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    order: Order,

    /// Evaluate what is there and end
    #[arg(long)]
    once: bool,

    /// End when a checkpoint of this step, or of a later one, has been evaluated and none is left
    #[arg(long, value_name = "STEP")]
    until: Option<u64>,
}

/// A checkpoint as a look at its folder shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) step: u64,
    /// Hash of the names, sizes and modification times of its files.
    pub(super) fingerprint: u64,
    /// What a loader would miss.
    pub(super) missing: Option<String>,
}

/// One look at the folder of the checkpoints: those that are there, by name.
pub(super) type Scan = BTreeMap<String, Found>;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The folder was looked at.
    Scanned(Scan),
    /// The folder could not be looked at, for this reason.
    Unreadable(String),
    /// The evaluation that runs has ended with a complete report.
    Evaluated,
    /// The evaluation that runs has ended without one.
    Failed(String),
    /// The evaluation could not begin, because another launch holds its run folder.
    Held(String),
    /// The user wants the watch to end.
    Stop,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Start the evaluation of this checkpoint.
    Evaluate(String),
    /// Tell the user.
    Say(String),
    /// End: nothing runs any more.
    Finish,
}

/// A checkpoint that was seen, now or earlier.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    /// What `watch.json` has of it.
    pub(super) point: Point,
    /// Whether it is complete as far as is known, and may be evaluated while it waits.
    is_ready: bool,
    /// What it was when it was last seen; `None` while it is not there.
    fingerprint: Option<u64>,
    /// Since when it has not changed.
    since: Instant,
    /// When it may be tried, if another launch held its run folder.
    not_before: Option<Instant>,
}

impl Checkpoint {
    /// Returns a checkpoint that is not there, or has just been found.
    fn new(point: Point, now: Instant) -> Self {
        Self {
            point,
            is_ready: false,
            fingerprint: None,
            since: now,
            not_before: None,
        }
    }

    fn is_ready(&self) -> bool {
        self.point.state == PointState::Waiting && self.is_ready
    }
}

/// The watch over a folder of checkpoints.
#[derive(Debug, Default)]
pub(super) struct Machine {
    rules: WatchRules,
    checkpoints: BTreeMap<String, Checkpoint>,
    is_scanned: bool,
    /// Whether the last look at the folder failed.
    is_unreadable: bool,
    is_stopping: bool,
}

impl Machine {
    pub(super) fn new(rules: WatchRules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// Adds a checkpoint of an earlier watch.
    pub(super) fn remember(&mut self, mut point: Point, now: Instant) {
        let is_over = match point.state {
            PointState::Evaluated | PointState::Gone => true,
            PointState::Failed => point.failures >= ATTEMPTS,
            PointState::Waiting | PointState::Running => false,
        };
        if !is_over {
            point.state = PointState::Waiting;
        }
        let name = point.name.clone();
        self.checkpoints.insert(name, Checkpoint::new(point, now));
    }

    /// Returns what is known about all checkpoints, by step.
    pub(super) fn points(&self) -> Vec<Point> {
        let all = self.checkpoints.values();
        let mut points: Vec<_> = all.map(|one| one.point.clone()).collect();
        points.sort_by(|one, other| (one.step, &one.name).cmp(&(other.step, &other.name)));
        points
    }

    /// Returns the checkpoint whose evaluation runs.
    pub(super) fn running(&mut self) -> Option<&mut Checkpoint> {
        let mut all = self.checkpoints.values_mut();
        all.find(|one| one.point.state == PointState::Running)
    }

    /// Handles an event.
    pub(super) fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut said = Vec::new();
        match event {
            Event::Scanned(scan) => self.scanned(scan, now, &mut said),
            Event::Unreadable(reason) => said.extend(self.unreadable(&reason)),
            Event::Evaluated => self.evaluated(),
            Event::Failed(reason) => said.extend(self.failed(reason)),
            Event::Held(reason) => said.extend(self.held(reason, now)),
            Event::Stop => self.is_stopping = true,
        }
        let said = said.into_iter().map(Action::Say);
        said.chain(self.next(now)).collect()
    }

    /// A file server may be away for a moment, and a trainer may replace the folder.
    fn unreadable(&mut self, reason: &str) -> Option<String> {
        let was_unreadable = std::mem::replace(&mut self.is_unreadable, true);
        (!was_unreadable).then(|| format!("{reason}; it is tried again"))
    }

    fn scanned(&mut self, scan: Scan, now: Instant, said: &mut Vec<String>) {
        if std::mem::replace(&mut self.is_unreadable, false) {
            said.push("the folder of the checkpoints can be read again".to_owned());
        }
        self.is_scanned = true;
        for (name, checkpoint) in &mut self.checkpoints {
            if !scan.contains_key(name) {
                checkpoint.fingerprint = None;
                if checkpoint.point.state == PointState::Waiting {
                    let reason = "it disappeared before it was evaluated";
                    said.push(format!("{name}: {reason}"));
                    checkpoint.point.state = PointState::Gone;
                    checkpoint.point.reason = Some(reason.to_owned());
                }
            }
        }
        for (name, found) in scan {
            said.extend(self.seen(&name, found, now));
        }
    }

    fn seen(&mut self, name: &str, found: Found, now: Instant) -> Option<String> {
        let new = || Point {
            name: name.to_owned(),
            step: found.step,
            run: name.to_owned(),
            ..Point::default()
        };
        let checkpoint = self.checkpoints.entry(name.to_owned());
        let checkpoint = checkpoint.or_insert_with(|| Checkpoint::new(new(), now));
        let is_gone = checkpoint.point.state == PointState::Gone;
        let fingerprint = Some(found.fingerprint);
        if std::mem::replace(&mut checkpoint.fingerprint, fingerprint) != fingerprint {
            checkpoint.since = now;
            if checkpoint.is_ready() || is_gone {
                checkpoint.is_ready = false;
                checkpoint.point.state = PointState::Waiting;
                checkpoint.point.reason = None;
            }
        }
        let is_waiting = checkpoint.point.state == PointState::Waiting;
        let settle = Duration::from_secs(self.rules.settle_s);
        let is_settled = now.duration_since(checkpoint.since) >= settle;
        if !is_waiting || checkpoint.is_ready || !is_settled {
            return None;
        }
        checkpoint.is_ready = found.missing.is_none();
        let is_known = found.missing == checkpoint.point.reason;
        let missing = found.missing.as_ref().filter(|_| !is_known);
        let said = missing.map(|missing| format!("{name} is not complete: {missing}"));
        checkpoint.point.reason = found.missing;
        said
    }

    fn evaluated(&mut self) {
        if let Some(Checkpoint { point, .. }) = self.running() {
            point.state = PointState::Evaluated;
            point.reason = None;
        }
    }

    fn failed(&mut self, reason: String) -> Option<String> {
        let (is_stopping, is_unreadable) = (self.is_stopping, self.is_unreadable);
        let checkpoint = self.running()?;
        let (is_present, point) = (checkpoint.fingerprint.is_some(), &mut checkpoint.point);
        let name = &point.name;
        if is_stopping || is_unreadable {
            // One that was stopped continues where it was at the next start.
            point.state = PointState::Waiting;
            point.reason = None;
            let again = "evaluated again when its folder can be read";
            return (!is_stopping).then(|| format!("{name}: {again}: {reason}"));
        }
        if !is_present {
            let reason = "it disappeared while it was evaluated";
            point.state = PointState::Gone;
            point.reason = Some(reason.to_owned());
            return Some(format!("{name}: {reason}"));
        }
        point.failures += 1;
        let failures = point.failures;
        let rest;
        (point.state, rest) = match failures < ATTEMPTS {
            true => (PointState::Waiting, "it is tried again"),
            false => (PointState::Failed, "it is given up"),
        };
        let said = format!("{name}: evaluation {failures} of {ATTEMPTS} failed, {rest}: {reason}");
        point.reason = Some(reason);
        Some(said)
    }

    fn held(&mut self, reason: String, now: Instant) -> Option<String> {
        let checkpoint = self.running()?;
        checkpoint.not_before = Some(now + HELD);
        let point = &mut checkpoint.point;
        point.state = PointState::Waiting;
        let is_news = point.reason.as_ref() != Some(&reason);
        let said = format!("{} has to wait: {reason}", point.name);
        point.reason = Some(reason);
        is_news.then_some(said)
    }

    /// Starts the next evaluation, or ends the watch.
    fn next(&mut self, now: Instant) -> Option<Action> {
        if self.running().is_some() {
            return None;
        }
        if self.is_stopping {
            return Some(Action::Finish);
        }
        let order = self.rules.order;
        let rank = |point: &Point| match order {
            Order::Oldest => (point.failures, point.step),
            Order::Newest => (point.failures, u64::MAX - point.step),
        };
        let is_unreadable = self.is_unreadable;
        let may_run = |one: &&mut Checkpoint| {
            !is_unreadable && one.is_ready() && one.not_before.is_none_or(|at| at <= now)
        };
        let ready = self.checkpoints.values_mut().filter(may_run);
        if let Some(Checkpoint { point, .. }) = ready.min_by_key(|one| rank(&one.point)) {
            point.state = PointState::Running;
            return Some(Action::Evaluate(point.name.clone()));
        }
        self.is_over().then_some(Action::Finish)
    }

    /// Returns whether the watch ends, when nothing runs.
    fn is_over(&self) -> bool {
        let all = || self.checkpoints.values();
        if !self.is_scanned || all().any(Checkpoint::is_ready) {
            return false;
        }
        let has_reached = |until| {
            let mut points = all().map(|one| &one.point);
            points.any(|point| {
                let is_done = matches!(point.state, PointState::Evaluated | PointState::Failed);
                is_done && point.step >= until
            })
        };
        // None is ready; one that lacks something is not waited for.
        let is_settling =
            |one: &Checkpoint| one.point.state == PointState::Waiting && one.point.reason.is_none();
        (self.rules.once && !all().any(is_settling)) || self.rules.until.is_some_and(has_reached)
    }
}

#[cfg(test)]
mod tests {
    use jobs::time::now;

    use super::*;
    use crate::tests::cases;
    use jobs::format::word;

    /// Plays a watch whose checkpoints settle in 10 s, without a clock, a file system or an
    /// evaluation. Returns the events with what follows from each, and how the checkpoints end.
    ///
    /// ```text
    /// newest, once, until STEP       rules, before anything else
    /// earlier STEP STATE FAILURES    an earlier watch has left this
    /// put STEP [FINGERPRINT]         a checkpoint is there, or changes
    /// lacks STEP FILE, remove STEP   it lacks a file, or is gone
    /// look SECONDS, away SECONDS     the folder is looked at that much later, or cannot be read
    /// evaluated, failed WHY, held WHY, stop
    /// ```
    fn played(script: &str) -> String {
        let mut machine = Machine::new(WatchRules {
            settle_s: 10,
            ..WatchRules::default()
        });
        let (mut now, mut there, mut told) = (now(), Scan::new(), String::new());
        for line in script.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
            let number = || first.parse::<u64>().unwrap();
            let name = format!("step_{first}");
            let event = match word {
                "newest" => {
                    machine.rules.order = Order::Newest;
                    continue;
                }
                "once" => {
                    machine.rules.once = true;
                    continue;
                }
                "until" => {
                    machine.rules.until = Some(number());
                    continue;
                }
                "earlier" => {
                    let (state, failures) = more.split_once(' ').unwrap();
                    let point = Point {
                        name,
                        step: number(),
                        state: serde_json::from_value(state.into()).unwrap(),
                        failures: failures.parse().unwrap(),
                        ..Point::default()
                    };
                    machine.remember(point, now);
                    continue;
                }
                "put" => {
                    let found = Found {
                        step: number(),
                        fingerprint: more.parse().unwrap_or(1),
                        missing: None,
                    };
                    there.insert(name, found);
                    continue;
                }
                "lacks" => {
                    there.get_mut(&name).unwrap().missing = Some(more.to_owned());
                    continue;
                }
                "remove" => {
                    there.remove(&name);
                    continue;
                }
                "look" | "away" => {
                    now += Duration::from_secs(number());
                    match word {
                        "look" => Event::Scanned(there.clone()),
                        _ => Event::Unreadable("cannot read `runs`".to_owned()),
                    }
                }
                "evaluated" => Event::Evaluated,
                "failed" => Event::Failed(rest.to_owned()),
                "held" => Event::Held(rest.to_owned()),
                "stop" => Event::Stop,
                _ => panic!("{line}"),
            };
            let actions = machine
                .on(event, now)
                .into_iter()
                .map(|action| match action {
                    Action::Evaluate(name) => format!("evaluate {name}"),
                    Action::Say(text) => format!("say \"{text}\""),
                    Action::Finish => "finish".to_owned(),
                });
            let actions: Vec<_> = actions.collect();
            told += &format!("{line}: {}\n", actions.join(", "));
        }
        let state = |point: &Point| match (word(point.state), point.failures) {
            (state, 0) => format!("{} {state}", point.name),
            (state, failures) => format!("{} {state} {failures}", point.name),
        };
        let states: Vec<_> = machine.points().iter().map(state).collect();
        told + &states.join(", ")
    }

    #[test]
    fn checkpoints_are_evaluated_in_turn() {
        rig::cases::check(cases("tools/watch/machine.txt"), played);
    }
}
