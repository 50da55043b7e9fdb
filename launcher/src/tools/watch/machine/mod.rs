//! Decides which checkpoint is evaluated when. Pure: events and the time come in, actions go out.
//!
//! ```text
//!                      unchanged for `settle` and whole
//!   Settling ───────────────────────────────────────────────────────► Ready ──► Running
//!      ▲ └──────────── disappears ──────────► Gone ◄── disappears ──────┘          │
//!      └─────────────── comes back ────────────┘ ▲                                 │
//!                                                └── fails, and is not there ──────┤
//!   Ready ◄──── fails, with attempts left; Failed ◄──── fails, with none left ─────┤
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
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchRules {
    /// Time without a change after which a checkpoint is complete.
    pub(super) settle: Duration,
    pub(super) order: Order,
    /// End when everything that is there was evaluated.
    pub(super) once: bool,
    /// End when a checkpoint of at least this step was evaluated.
    pub(super) until: Option<u64>,
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
    pub(super) step: u64,
    pub(super) state: State,
    pub(super) failures: u32,
    /// Why it waits, failed or was skipped.
    pub(super) reason: Option<String>,
    fingerprint: u64,
    is_present: bool,
    /// Since when it has not changed.
    since: Instant,
    /// When it may be tried, if another launch held its run folder.
    not_before: Option<Instant>,
}

/// State of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is being written, as far as is known.
    Settling,
    Ready,
    Running,
    Evaluated,
    Failed,
    Gone,
}

impl State {
    /// Returns the state as `watch.json` has it.
    pub(super) fn of_point(self) -> PointState {
        match self {
            Self::Settling | Self::Ready => PointState::Waiting,
            Self::Running => PointState::Running,
            Self::Evaluated => PointState::Evaluated,
            Self::Failed => PointState::Failed,
            Self::Gone => PointState::Gone,
        }
    }
}

/// The watch over a folder of checkpoints.
#[derive(Debug)]
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
            checkpoints: BTreeMap::new(),
            is_scanned: false,
            is_unreadable: false,
            is_stopping: false,
        }
    }

    /// Adds a checkpoint of an earlier watch.
    pub(super) fn remember(&mut self, point: &Point, now: Instant) {
        let state = match point.state {
            PointState::Evaluated => State::Evaluated,
            PointState::Failed if point.failures >= ATTEMPTS => State::Failed,
            PointState::Gone => State::Gone,
            PointState::Failed | PointState::Waiting | PointState::Running => State::Settling,
        };
        let checkpoint = Checkpoint {
            step: point.step,
            state,
            failures: point.failures,
            reason: point.reason.clone(),
            fingerprint: 0,
            is_present: false,
            since: now,
            not_before: None,
        };
        self.checkpoints.insert(point.name.clone(), checkpoint);
    }

    /// Returns all checkpoints by name.
    pub(super) fn checkpoints(&self) -> impl Iterator<Item = (&str, &Checkpoint)> {
        let checkpoints = self.checkpoints.iter();
        checkpoints.map(|(name, checkpoint)| (name.as_str(), checkpoint))
    }

    /// Handles an event.
    pub(super) fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Scanned(scan) => self.scanned(scan, now, &mut actions),
            Event::Unreadable(reason) => self.unreadable(&reason, &mut actions),
            Event::Evaluated => self.ended(State::Evaluated, None),
            Event::Failed(reason) => self.failed(reason, &mut actions),
            Event::Held(reason) => self.held(reason, now, &mut actions),
            Event::Stop => self.is_stopping = true,
        }
        actions.extend(self.next(now));
        actions
    }

    /// A file server may be away for a moment, and a trainer may replace the folder.
    fn unreadable(&mut self, reason: &str, actions: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.is_unreadable, true) {
            actions.push(Action::Say(format!("{reason}; it is tried again")));
        }
    }

    fn scanned(&mut self, scan: Scan, now: Instant, actions: &mut Vec<Action>) {
        if std::mem::replace(&mut self.is_unreadable, false) {
            let text = "the folder of the checkpoints can be read again".to_owned();
            actions.push(Action::Say(text));
        }
        self.is_scanned = true;
        for (name, checkpoint) in &mut self.checkpoints {
            if !scan.contains_key(name) {
                checkpoint.is_present = false;
                if matches!(checkpoint.state, State::Settling | State::Ready) {
                    checkpoint.state = State::Gone;
                    let reason = "it disappeared before it was evaluated".to_owned();
                    actions.push(Action::Say(format!("{name}: {reason}")));
                    checkpoint.reason = Some(reason);
                }
            }
        }
        for (name, found) in scan {
            self.seen(&name, found, now, actions);
        }
    }

    fn seen(&mut self, name: &str, found: Found, now: Instant, actions: &mut Vec<Action>) {
        let new = || Checkpoint {
            step: found.step,
            state: State::Settling,
            failures: 0,
            reason: None,
            fingerprint: found.fingerprint,
            is_present: true,
            since: now,
            not_before: None,
        };
        let is_new = !self.checkpoints.contains_key(name);
        let checkpoint = self.checkpoints.entry(name.to_owned()).or_insert_with(new);
        let is_back = !checkpoint.is_present && checkpoint.state == State::Gone;
        let has_changed = checkpoint.fingerprint != found.fingerprint;
        checkpoint.is_present = true;
        if is_new || is_back || has_changed {
            checkpoint.since = now;
            checkpoint.fingerprint = found.fingerprint;
            if matches!(checkpoint.state, State::Ready | State::Gone) {
                checkpoint.state = State::Settling;
                checkpoint.reason = None;
            }
        }
        if checkpoint.state != State::Settling {
            return;
        }
        let is_settled = now.duration_since(checkpoint.since) >= self.rules.settle;
        match found.missing {
            None if is_settled => {
                checkpoint.state = State::Ready;
                checkpoint.reason = None;
            }
            Some(missing) if is_settled && checkpoint.reason.as_ref() != Some(&missing) => {
                actions.push(Action::Say(format!("{name} is not complete: {missing}")));
                checkpoint.reason = Some(missing);
            }
            None | Some(_) => {}
        }
    }

    fn running(&mut self) -> Option<(&String, &mut Checkpoint)> {
        self.checkpoints
            .iter_mut()
            .find(|(_, checkpoint)| checkpoint.state == State::Running)
    }

    /// Sets the state of the checkpoint whose evaluation has ended.
    fn ended(&mut self, state: State, reason: Option<String>) {
        if let Some((_, checkpoint)) = self.running() {
            checkpoint.state = state;
            checkpoint.reason = reason;
        }
    }

    fn failed(&mut self, reason: String, actions: &mut Vec<Action>) {
        let (is_stopping, is_unreadable) = (self.is_stopping, self.is_unreadable);
        let Some((name, checkpoint)) = self.running() else {
            return;
        };
        let name = name.clone();
        if is_stopping {
            // It was stopped, and continues where it was at the next start.
            return self.ended(State::Ready, None);
        }
        if is_unreadable {
            let text = format!("{name}: evaluated again when its folder can be read: {reason}");
            actions.push(Action::Say(text));
            return self.ended(State::Ready, None);
        }
        if !checkpoint.is_present {
            let reason = "it disappeared while it was evaluated".to_owned();
            actions.push(Action::Say(format!("{name}: {reason}")));
            return self.ended(State::Gone, Some(reason));
        }
        checkpoint.failures += 1;
        let failures = checkpoint.failures;
        let state = if failures < ATTEMPTS {
            State::Ready
        } else {
            State::Failed
        };
        let rest = match state {
            State::Ready => "it is tried again",
            _ => "it is given up",
        };
        let text = format!("{name}: evaluation {failures} of {ATTEMPTS} failed, {rest}: {reason}");
        actions.push(Action::Say(text));
        self.ended(state, Some(reason));
    }

    fn held(&mut self, reason: String, now: Instant, actions: &mut Vec<Action>) {
        let Some((name, checkpoint)) = self.running() else {
            return;
        };
        checkpoint.state = State::Ready;
        checkpoint.not_before = Some(now + HELD);
        if checkpoint.reason.as_ref() != Some(&reason) {
            actions.push(Action::Say(format!("{name} has to wait: {reason}")));
            checkpoint.reason = Some(reason);
        }
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
        let rank = |checkpoint: &Checkpoint| match order {
            Order::Oldest => (checkpoint.failures, checkpoint.step),
            Order::Newest => (checkpoint.failures, u64::MAX - checkpoint.step),
        };
        let may_run = |checkpoint: &Checkpoint| {
            checkpoint.state == State::Ready && checkpoint.not_before.is_none_or(|at| at <= now)
        };
        let is_unreadable = self.is_unreadable;
        let ready = self
            .checkpoints
            .iter_mut()
            .filter(|(_, one)| !is_unreadable && may_run(one));
        if let Some((name, checkpoint)) = ready.min_by_key(|(_, one)| rank(one)) {
            checkpoint.state = State::Running;
            return Some(Action::Evaluate(name.clone()));
        }
        self.is_over().then_some(Action::Finish)
    }

    /// Returns whether the watch ends, when nothing runs.
    fn is_over(&self) -> bool {
        let all = || self.checkpoints.values();
        if !self.is_scanned || all().any(|one| one.state == State::Ready) {
            return false;
        }
        let has_reached = |until| {
            let is_done = |one: &&Checkpoint| matches!(one.state, State::Evaluated | State::Failed);
            all().filter(is_done).any(|one| one.step >= until)
        };
        let is_settling = |one: &Checkpoint| one.state == State::Settling && one.reason.is_none();
        (self.rules.once && !all().any(is_settling)) || self.rules.until.is_some_and(has_reached)
    }
}

#[cfg(test)]
mod tests;
