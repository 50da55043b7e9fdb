//! A group of environments that step and infer together: a stage of the pipeline.

use std::ops::Range;
use std::time::Instant;

use jobs::latency::Hold;

use crate::clock::now;
use crate::env::{Answer, EnvIndex};
use crate::eval::lease::Leases;
use crate::eval::rollout::schedule::action_queue::ActionQueue;
use crate::eval::rollout::schedule::company::Occupant;
use crate::eval::rollout::schedule::feed::Feed;
use crate::eval::rollout::schedule::{DueStep, Turn};
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
    feed: Feed,
    slots: Vec<Slot>,
    chunk_length: usize,
    hold: Hold,
    steps_together: bool,
}

/// The state of one environment.
#[derive(Default)]
struct Slot {
    doing: SlotState,
    /// Remaining steps, for a job in steps.
    left: Option<u64>,
    /// The action that was sent to it, until its answer is processed.
    action: Option<Vec<f32>>,
    /// Its answer to the command of this turn.
    answer: Option<Answer>,
    /// The first observation of an episode that it has begun by itself.
    first: Option<Answer>,
}

#[derive(Default)]
enum SlotState {
    #[default]
    Nothing,
    /// Has to start this episode again.
    Again(u64),
    /// Runs an episode.
    Episode { number: u64, actions: ActionQueue },
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

impl SlotState {
    fn episode(number: u64) -> Self {
        Self::Episode {
            number,
            actions: ActionQueue::default(),
        }
    }
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
        let slot = |_| Slot {
            left: steps,
            ..Slot::default()
        };
        Self {
            slots: envs.clone().map(slot).collect(),
            envs,
            thinking: Vec::new(),
            outstanding: 0,
            since: now(),
            feed,
            chunk_length,
            hold: Hold::default(),
            steps_together: false,
        }
    }

    /// Says what an environment does without an action.
    pub fn holding(self, hold: Hold) -> Self {
        Self { hold, ..self }
    }

    /// Says whether the environments of a process step together.
    pub fn stepping_together(self, steps_together: bool) -> Self {
        Self {
            steps_together,
            ..self
        }
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
        // The reset of an episode that the environment begins by itself is answered, too.
        if !matches!(answer, Answer::Last { .. }) {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        if let Some(slot) = self.slot(env) {
            match slot.answer {
                None => slot.answer = Some(answer),
                Some(_) => slot.first = Some(answer),
            }
        }
        self.outstanding == 0
    }

    /// Removes the answers of a turn, in the order in which they are processed: first those to
    /// commands, then the first observations of episodes that environments have begun by
    /// themselves.
    pub fn take_answers(&mut self) -> Vec<Answered> {
        let envs = self.envs.clone().map(EnvIndex);
        let slots = envs.clone().zip(&mut self.slots);
        let answers = slots.filter_map(|(env, slot)| {
            let action = slot.action.take().unwrap_or_default();
            let answer = slot.answer.take()?;
            Some(Answered {
                env,
                answer,
                action,
            })
        });
        let mut answers: Vec<_> = answers.collect();
        answers.extend(envs.zip(&mut self.slots).filter_map(|(env, slot)| {
            Some(Answered {
                env,
                answer: slot.first.take()?,
                action: Vec::new(),
            })
        }));
        answers
    }

    /// Returns a description of what the group waits for, for the message about a stall.
    /// `under_way` returns the episode of an environment and its steps so far.
    pub fn waits_for(&self, under_way: impl Fn(EnvIndex) -> Option<(u64, u64)>) -> String {
        if !self.thinking.is_empty() {
            let envs: Vec<_> = self.thinking.iter().map(|env| env.0.to_string()).collect();
            return format!("the policy infers for environments {}", envs.join(", "));
        }
        let silent = self
            .envs
            .clone()
            .zip(&self.slots)
            .filter_map(|(env, slot)| {
                let (doing, episode, step) = match (&slot.answer, &slot.first) {
                    (Some(Answer::Last { next, .. }), None) => ("is reset", *next, 0),
                    (Some(_), _) => return None,
                    (None, _) => {
                        let (episode, step) = under_way(EnvIndex(env))?;
                        let steps = slot.action.is_some();
                        (if steps { "steps" } else { "is reset" }, episode, step)
                    }
                };
                Some(format!(
                    "environment {env} {doing} (episode {episode}, step {step})"
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
        let slot = self.slots.get_mut(index).filter(|slot| slot.has_steps())?;
        let number = match slot.doing {
            SlotState::Episode { .. } => return None,
            SlotState::Again(episode) => episode,
            SlotState::Nothing => self.feed.next(index, leases)?,
        };
        slot.doing = SlotState::episode(number);
        Some(number)
    }

    /// Returns the episodes that belong to the environments, of those that still take steps.
    pub fn occupants(&self) -> impl Iterator<Item = Occupant> {
        let slots = self.envs.clone().zip(&self.slots);
        slots
            .filter(|(_, slot)| slot.has_steps())
            .filter_map(|(env, slot)| {
                let (episode, is_running) = match slot.doing {
                    SlotState::Nothing => return None,
                    SlotState::Again(episode) => (episode, false),
                    SlotState::Episode { number, .. } => (number, true),
                };
                Some(Occupant {
                    env: EnvIndex(env),
                    episode,
                    is_running,
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
        let needs_chunk = |slot: &Slot| {
            slot.has_steps()
                && matches!(&slot.doing, SlotState::Episode { actions, .. } if actions.needs_chunk())
        };
        let slots = self.envs.clone().zip(&self.slots);
        let hungry = slots.filter(|(_, slot)| needs_chunk(slot));
        hungry.map(|(env, _)| EnvIndex(env)).collect()
    }

    /// Returns the number of steps since the observation of an environment's newest chunk; `None`
    /// before the first of its episode.
    pub fn age(&self, env: EnvIndex) -> Option<usize> {
        let slot = self.slots.get(env.0.checked_sub(self.envs.start)?)?;
        match &slot.doing {
            SlotState::Episode { actions, .. } => actions.age(),
            SlotState::Nothing | SlotState::Again(_) => None,
        }
    }

    /// Adds the next action chunk of an environment, which arrives `delay` steps later, see
    /// [`ActionQueue::add`].
    pub fn add_chunk(&mut self, env: EnvIndex, chunk: Chunk, delay: usize) {
        let interval = self.chunk_length;
        if let Some(Slot {
            doing: SlotState::Episode { actions, .. },
            ..
        }) = self.slot(env)
        {
            actions.add(chunk, delay, interval);
        }
    }

    /// Returns the next step of each running environment with an action, and advances past it.
    pub fn due(&mut self) -> Vec<DueStep> {
        let hold = self.hold;
        let slots = self.envs.clone().zip(&mut self.slots);
        let running = slots.filter(|(_, slot)| slot.has_steps());
        let due = running.filter_map(|(env, slot)| {
            let SlotState::Episode { actions, .. } = &mut slot.doing else {
                return None;
            };
            let next = actions.next(hold)?;
            slot.left = slot.left.map(|left| left - 1);
            Some(DueStep {
                env: EnvIndex(env),
                action: next.values,
                last: actions.needs_chunk(),
                is_held: next.is_held,
                next: None,
            })
        });
        due.collect()
    }

    /// Offers the waiting episodes to the environments that step, both in ascending order. An offer
    /// is good for this step.
    pub fn offer(&mut self, due: &mut [DueStep], leases: &mut Option<Leases>) {
        let first = self.envs.start;
        let mut due: Vec<_> = due
            .iter_mut()
            .filter(|due| self.slots[due.env.0 - first].has_steps())
            .collect();
        let slots: Vec<_> = due.iter().map(|due| due.env.0 - first).collect();
        let offers = self.feed.offer(&slots, leases);
        for (due, offer) in due.iter_mut().zip(offers) {
            due.next = offer;
        }
    }

    /// Starts the episode that an environment has begun by itself, after the end of the one before.
    pub fn begin(&mut self, env: EnvIndex, number: u64) {
        self.feed.take(number);
        if let Some(slot) = self.slot(env) {
            slot.doing = SlotState::episode(number);
        }
    }

    /// Ends the episode of an environment and drops its actions.
    pub fn end(&mut self, env: EnvIndex) {
        if let Some(slot) = self.slot(env) {
            slot.doing = SlotState::Nothing;
        }
    }

    /// Starts the episode of an environment again, because it was lost.
    pub fn again(&mut self, env: EnvIndex) {
        if let Some(slot) = self.slot(env)
            && let SlotState::Episode { number, .. } = slot.doing
        {
            slot.doing = SlotState::Again(number);
        }
    }

    fn slot(&mut self, env: EnvIndex) -> Option<&mut Slot> {
        self.slots.get_mut(env.0.checked_sub(self.envs.start)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{EnvError, Observation};
    use crate::eval::rollout::schedule::feed::Episodes;

    #[test]
    fn whoever_has_not_answered_is_named_with_its_step() {
        let feed = Feed::new(&Episodes::These(vec![0, 1]), 0..2, 2, None);
        let mut group = Group::new(feed, 2..4, 1, None);
        let under_way = |env: EnvIndex| [(0, 0), (1, 17)].get(env.0 - 2).copied();
        assert!(!group.is_waiting());
        let step = DueStep {
            env: EnvIndex(3),
            action: vec![0.0],
            last: false,
            is_held: false,
            next: None,
        };
        group.sent(vec![step], 2);
        let observation = Ok::<Observation, EnvError>(Observation::empty());
        assert!(!group.answered(EnvIndex(2), Answer::Reset(observation)));
        assert!(group.is_waiting());
        assert_eq!(
            group.waits_for(under_way),
            "environment 3 steps (episode 1, step 17)"
        );
        let step = Err(EnvError::Setup("x".to_owned()));
        assert!(!group.answered(EnvIndex(3), Answer::Last { step, next: 9 }));
        assert_eq!(
            group.waits_for(under_way),
            "environment 3 is reset (episode 9, step 0)"
        );
        assert!(group.answered(EnvIndex(3), Answer::Reset(Ok(Observation::empty()))));
        let order = group.take_answers().into_iter();
        let order: Vec<_> = order.map(|from| (from.env.0, from.action.len())).collect();
        assert_eq!(order, [(2, 0), (3, 1), (3, 0)]);
        group.thinking = vec![EnvIndex(2), EnvIndex(3)];
        assert_eq!(
            group.waits_for(under_way),
            "the policy infers for environments 2, 3"
        );
    }
}
