//! A group of environments that step and infer together: a stage of the pipeline.

use std::ops::Range;
use std::time::Instant;

use jobs::episode::Episode;
use jobs::latency::Hold;

use crate::clock::now;
use crate::env::{Answer, EnvIndex};
use crate::eval::lease::Leases;
use crate::eval::rollout::episode::LiveEpisode;
use crate::eval::rollout::schedule::company::Occupant;
use crate::eval::rollout::schedule::{DueStep, Feed, Turn};
use crate::policy::Chunk;

/// A group of environments that step and infer together.
pub struct Group {
    /// Indices of the group's environments.
    pub envs: Range<usize>,
    /// Environments for which the policy runs inference.
    pub thinking: Vec<EnvIndex>,
    /// Number of answers of environments that have not arrived yet.
    pub outstanding: usize,
    /// Time at which the commands were sent.
    pub since: Instant,
    /// What an environment does without an action.
    pub hold: Hold,
    /// Whether the environments of a process step together.
    pub steps_together: bool,
    feed: Feed,
    slots: Vec<Slot>,
    chunk_length: usize,
}

/// The state of one environment.
struct Slot {
    env: EnvIndex,
    /// The episode that it runs.
    live: Option<LiveEpisode>,
    /// The episode that it has to start again.
    again: Option<u64>,
    /// Remaining steps, for a job in steps.
    left: Option<u64>,
    /// The action that was sent to it, until its answer is processed.
    action: Option<Vec<f32>>,
    /// Its answer to the command of this turn.
    answer: Option<Answer>,
}

/// An answer of an environment.
pub struct Answered {
    /// The environment.
    pub env: EnvIndex,
    /// Its answer.
    pub answer: Answer,
    /// The action that it answers; empty for a reset.
    pub action: Vec<f32>,
}

impl Slot {
    fn has_steps(&self) -> bool {
        self.left != Some(0)
    }
}

impl Group {
    /// Creates a group in which nothing runs, and in which an inference begins every `chunk_length`
    /// steps, or when its chunk is used up if that is shorter. With `steps`, each environment stops
    /// after that many.
    pub fn new(feed: Feed, envs: Range<usize>, chunk_length: usize, steps: Option<u64>) -> Self {
        let slot = |env| Slot {
            env: EnvIndex(env),
            live: None,
            again: None,
            left: steps,
            action: None,
            answer: None,
        };
        Self {
            slots: envs.clone().map(slot).collect(),
            envs,
            thinking: Vec::new(),
            outstanding: 0,
            since: now(),
            hold: Hold::default(),
            steps_together: false,
            feed,
            chunk_length,
        }
    }

    /// Returns the episode that an environment runs.
    pub fn live(&mut self, env: EnvIndex) -> Option<&mut LiveEpisode> {
        self.slot(env)?.live.as_mut()
    }

    fn slot(&mut self, env: EnvIndex) -> Option<&mut Slot> {
        self.slots.get_mut(env.0.checked_sub(self.envs.start)?)
    }

    /// Returns whether the policy or an environment still has to answer.
    pub fn is_waiting(&self) -> bool {
        self.outstanding > 0 || !self.thinking.is_empty()
    }

    /// Takes note of the steps that are sent to environments, and of the number of commands.
    pub fn sent(&mut self, due: Vec<DueStep>, commands: usize) {
        self.slots.iter_mut().for_each(|slot| slot.action = None);
        for due in due {
            if let Some(slot) = self.slot(due.env) {
                slot.action = Some(due.action);
            }
        }
        self.since = now();
        self.outstanding += commands;
    }

    /// Takes an answer. Returns true if it was the last of the turn.
    pub fn answered(&mut self, env: EnvIndex, answer: Answer) -> bool {
        self.outstanding = self.outstanding.saturating_sub(1);
        if let Some(slot) = self.slot(env) {
            slot.answer = Some(answer);
        }
        self.outstanding == 0
    }

    /// Removes the answers of a turn, in the order of the environments.
    pub fn take_answers(&mut self) -> Vec<Answered> {
        let slots = self.slots.iter_mut();
        let answered = slots.filter_map(|slot| {
            let action = slot.action.take().unwrap_or_default();
            Some(Answered {
                env: slot.env,
                answer: slot.answer.take()?,
                action,
            })
        });
        answered.collect()
    }

    /// Returns a description of what the group waits for, for the message about a stall.
    pub fn waits_for(&self) -> String {
        if !self.thinking.is_empty() {
            let envs: Vec<_> = self.thinking.iter().map(|env| env.0.to_string()).collect();
            return format!("the policy infers for environments {}", envs.join(", "));
        }
        let silent = self.slots.iter().filter(|slot| slot.answer.is_none());
        let silent = silent.filter_map(|slot| {
            let Episode {
                episode, length, ..
            } = &slot.live.as_ref()?.line;
            let (env, doing) = (slot.env.0, slot.action.as_ref());
            let doing = doing.map_or("is reset", |_| "steps");
            Some(format!(
                "environment {env} {doing} (episode {episode}, step {length})"
            ))
        });
        silent.collect::<Vec<_>>().join(", ")
    }

    /// Starts waiting episodes in idle environments, both in ascending order.
    pub fn start(&mut self, leases: &mut Option<Leases>) -> Vec<(EnvIndex, u64)> {
        let envs = self.envs.clone().map(EnvIndex);
        envs.filter_map(|env| Some((env, self.start_in(env, leases)?)))
            .collect()
    }

    /// Starts a waiting episode in an environment if it is idle.
    pub fn start_in(&mut self, env: EnvIndex, leases: &mut Option<Leases>) -> Option<u64> {
        let index = env.0.checked_sub(self.envs.start)?;
        let slot = self.slots.get_mut(index)?;
        if slot.live.is_some() || !slot.has_steps() {
            return None;
        }
        let next = || self.feed.next(index, leases);
        let number = slot.again.take().or_else(next)?;
        slot.live = Some(LiveEpisode::new(number));
        Some(number)
    }

    /// Returns the episodes that belong to the environments, of those that still take steps.
    pub fn occupants(&self) -> impl Iterator<Item = Occupant> {
        let slots = self.slots.iter().filter(|slot| slot.has_steps());
        slots.filter_map(|slot| {
            let live = slot.live.as_ref();
            Some(Occupant {
                env: slot.env,
                episode: live.map(|live| live.line.episode).or(slot.again)?,
                is_running: live.is_some(),
            })
        })
    }

    /// Returns the turn in which these episodes start. It does not wait for an inference that
    /// others need, so these cannot step: nor can those that only step together with them.
    pub fn turn(&mut self, starts: Vec<(EnvIndex, u64)>) -> Turn {
        if starts.is_empty() {
            let needs_chunk = self.needs_chunk();
            if !needs_chunk.is_empty() {
                return Turn::Infer(needs_chunk);
            }
        }
        let due = match self.steps_together && !starts.is_empty() {
            true => Vec::new(),
            false => self.due(),
        };
        Turn::Act { starts, due }
    }

    /// Returns the environments for which an inference begins before their next step.
    pub fn needs_chunk(&self) -> Vec<EnvIndex> {
        let is_hungry = |live: &LiveEpisode| live.actions.needs_chunk();
        let slots = self.slots.iter().filter(|slot| slot.has_steps());
        let hungry = slots.filter(|slot| slot.live.as_ref().is_some_and(is_hungry));
        hungry.map(|slot| slot.env).collect()
    }

    /// Adds the next action chunk of an environment, which arrives `delay` steps later, see
    /// [`crate::eval::rollout::schedule::action_queue::ActionQueue::add`].
    pub fn add_chunk(&mut self, env: EnvIndex, chunk: Chunk, delay: usize) {
        let interval = self.chunk_length;
        if let Some(live) = self.live(env) {
            live.actions.add(chunk, delay, interval);
        }
    }

    /// Returns the next step of each running environment with an action, and advances past it.
    pub fn due(&mut self) -> Vec<DueStep> {
        let hold = self.hold;
        let slots = self.slots.iter_mut().filter(|slot| slot.has_steps());
        let due = slots.filter_map(|slot| {
            let actions = &mut slot.live.as_mut()?.actions;
            let next = actions.next(hold)?;
            slot.left = slot.left.map(|left| left - 1);
            Some(DueStep {
                env: slot.env,
                action: next.values,
                last: actions.needs_chunk(),
                is_held: next.is_held,
            })
        });
        due.collect()
    }

    /// Ends the episode of an environment, and drops its actions with it.
    pub fn end(&mut self, env: EnvIndex) -> Option<LiveEpisode> {
        self.slot(env)?.live.take()
    }

    /// Has an environment start an episode again, which was lost.
    pub fn again(&mut self, env: EnvIndex, episode: u64) {
        if let Some(slot) = self.slot(env) {
            (slot.live, slot.again) = (None, Some(episode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{EnvError, Observation};
    use crate::eval::rollout::schedule::Episodes;

    #[test]
    fn whoever_has_not_answered_is_named_with_its_step() {
        let feed = Feed::new(&Episodes::These(vec![0, 1]), 0..2, 2, None);
        let mut group = Group::new(feed, 2..4, 1, None);
        group.start(&mut None);
        group.live(EnvIndex(3)).unwrap().line.length = 17;
        assert!(!group.is_waiting());
        let step = DueStep {
            env: EnvIndex(3),
            action: vec![0.0],
            last: false,
            is_held: false,
        };
        group.sent(vec![step], 2);
        let observation = Ok::<Observation, EnvError>(Observation::default());
        assert!(!group.answered(EnvIndex(2), Answer::Reset(observation)));
        assert!(group.is_waiting());
        assert_eq!(
            group.waits_for(),
            "environment 3 steps (episode 1, step 17)"
        );
        let step = Err(EnvError::Setup("x".to_owned()));
        assert!(group.answered(EnvIndex(3), Answer::Step(step)));
        let order = group.take_answers().into_iter();
        let order: Vec<_> = order.map(|from| (from.env.0, from.action.len())).collect();
        assert_eq!(order, [(2, 0), (3, 1)]);
        group.thinking = vec![EnvIndex(2), EnvIndex(3)];
        assert_eq!(group.waits_for(), "the policy infers for environments 2, 3");
    }
}
