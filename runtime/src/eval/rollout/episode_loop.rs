//! The evaluation loop: environments without an action chunk get one, all running ones take a step,
//! and finished ones are recorded.
//!
//! Environments are in groups, two by default. While the policy infers for one group, another
//! steps:
//!
//! ```text
//! group 0   infer │ step step step … │ infer │ step …
//! group 1         │ infer            │ step step step …
//! ```
//! A group waits either for chunks, or for the resets and steps of all its environments. Answers
//! are processed in the order of the environments, so that a run is reproducible.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

use jobs::episode::{End, Episode};
use jobs::job::{Job, Length};
use jobs::journal::{EnvLost, EpisodeStart, Line};
use jobs::time::rfc3339;

use crate::clock::now;
use crate::env::{Answer, Command, EnvError, EnvIndex, Observation, Render, Step, VectorEnv};
use crate::eval::lease::Leases;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::rollout::busy::Busy;
use crate::eval::rollout::episode::ending::{Ending, Signs};
use crate::eval::rollout::episode::{Live, Where};
use crate::eval::rollout::inference::{Acted, Held, PolicyThread};
use crate::eval::rollout::job::{EpisodeSink, JobContext, JobError};
use crate::eval::rollout::recording::{Recording, journal_error};
use crate::eval::rollout::schedule::group::Group;
use crate::eval::rollout::schedule::{Due, Numbers, Schedule, Waiting, deal, groups};
use crate::latency::Latency;
use crate::policy::{self, Account, Chunk, PolicyError, Shortage};
use crate::record::{EpisodeEnd, EpisodeMeta};

/// How often a waiting loop checks whether it has to stop.
const TICK: Duration = Duration::from_millis(200);

/// Counters of one job in one rank.
#[derive(Debug, Default)]
pub struct Totals {
    /// Steps of all environments.
    pub env_steps: u64,
    /// Number of those steps whose action had a value out of bounds.
    pub out_of_bounds: u64,
    /// Number of rendered images.
    pub frames: u64,
    /// Duration of a policy call.
    pub infer: Latency,
    /// Duration of a group's turn: that of its slowest step, including its wait for a CPU core.
    pub sim: Latency,
    /// Time in which the policy ran inference; see [`Totals::infer_busy`].
    inferred: Duration,
    /// Time in which a planner had at least one question.
    thinking: Busy,
    /// Time in which at least one environment was at work.
    pub sim_busy: Busy,
    /// Number of episodes that were started again because the process of their environment was
    /// lost.
    pub env_restarts: u64,
    /// How often the loop waited for files.
    pub record_waits: u64,
    /// How long the loop waited for files.
    pub record_wait: Duration,
    /// Memory shortages that the policy reported.
    pub shortage: Shortage,
}

impl Totals {
    /// Returns the time in which the policy ran inference, or a planner had at least one question.
    pub fn infer_busy(&self) -> Duration {
        self.inferred + self.thinking.total()
    }
}

/// An event that the loop waits for.
pub enum Event {
    /// An environment has answered a command.
    Env(EnvIndex, Answer),
    /// The policy has finished an inference for a group.
    Acted(usize, Acted),
}

/// The episodes of one build of the environments.
pub enum Source {
    /// A fixed list of episodes.
    These(Vec<u64>),
    /// As many episodes as fit into the job's steps.
    Steps,
    /// The episodes that the rank gets leases for.
    Leased(Leases),
}

/// One build of the environments, from its first episode to its last.
pub struct Rollout<'a, 'b> {
    pub context: &'a JobContext<'a>,
    pub job: &'a Job,
    pub rebuild: u64,
    pub env: &'a mut dyn VectorEnv,
    pub policy: &'a PolicyThread,
    pub held: &'a Held,
    /// Both ends of the channel for the answers of environments and policy.
    pub events: (&'a Sender<Event>, &'a Receiver<Event>),
    pub recording: &'a mut Recording<'b>,
    pub totals: &'a mut Totals,
    pub beat: &'a mut Heartbeat,
    /// True if only one episode runs at a time, so that the cause of a death is known.
    pub alone: bool,
}

/// The state of all groups.
struct State {
    groups: Vec<Group>,
    live: BTreeMap<EnvIndex, Live>,
    /// How often each episode was started again.
    attempts: BTreeMap<u64, u32>,
}

impl Rollout<'_, '_> {
    /// Runs the episodes of a source to their end.
    pub fn run(&mut self, source: Source, sink: &mut EpisodeSink) -> Result<(), JobError> {
        let mut state = State {
            groups: self.groups(&source),
            live: BTreeMap::new(),
            attempts: BTreeMap::new(),
        };
        let result = self.turns(&mut state, sink);
        for env in state.live.into_keys() {
            if let Some(recorder) = self.recording.recorder() {
                recorder.forget(env)?;
            }
        }
        result
    }

    fn groups(&self, source: &Source) -> Vec<Group> {
        let num_envs = self.env.num_envs();
        let group = |envs: Range<usize>| {
            let steps = if let Length::Steps(steps) = self.job.length {
                Some(steps)
            } else {
                None
            };
            let waiting = self.waiting(source, envs.clone());
            let schedule = Schedule::new(waiting, envs.clone(), self.held.chunk_length, steps);
            Group::new(envs, schedule)
        };
        groups(num_envs, self.context.stages(self.job, self.held))
            .into_iter()
            .map(group)
            .collect()
    }

    /// Returns the episodes of a group. Those of a shared job belong to environments, so that each
    /// environment has the same ones at any number of ranks. Those of another job go to any free
    /// environment.
    fn waiting(&self, source: &Source, envs: Range<usize>) -> Waiting {
        let (share, num_envs) = (self.context.work.share, self.env.num_envs());
        match (source, share) {
            (Source::Leased(leases), _) => Waiting::Anyone(Box::new(leases.numbers())),
            (Source::Steps, None) => Waiting::Anyone(Box::new(deal(0.., num_envs, envs))),
            (Source::These(episodes), None) => {
                Waiting::Anyone(Box::new(deal(episodes.clone(), num_envs, envs)))
            }
            (Source::Steps, Some(share)) => {
                let own = |slot| -> Numbers { Box::new(share.numbers(slot)) };
                Waiting::Own(envs.map(own).collect())
            }
            (Source::These(episodes), Some(share)) => {
                let own = |slot| -> Numbers {
                    let is_own = |episode: &u64| share.slot(*episode) == Some(slot);
                    let own: Vec<_> = episodes.iter().copied().filter(is_own).collect();
                    Box::new(own.into_iter())
                };
                Waiting::Own(envs.map(own).collect())
            }
        }
    }

    /// Records an episode that has killed its rank too often as an error.
    pub fn give_up(
        &mut self,
        episode: u64,
        deaths: u32,
        sink: &mut EpisodeSink,
    ) -> Result<(), JobError> {
        let reason = format!("its rank died {deaths} times while it was under way");
        let at = Where {
            rank: self.context.env.rank,
            env: EnvIndex(0),
            rebuild: self.rebuild,
        };
        journal_error(
            Live::new(episode, self.seed(episode)).errored(self.job, at, reason),
            sink,
            self.beat,
        )
    }

    fn seed(&self, episode: u64) -> u64 {
        let own = self.held.seeds.get(episode as usize).copied().flatten();
        own.unwrap_or_else(|| jobs::seed::episode(self.context.seed, self.job, episode))
    }

    fn turns(&mut self, state: &mut State, sink: &mut EpisodeSink) -> Result<(), JobError> {
        (0..state.groups.len()).try_for_each(|group| self.advance(state, group, sink))?;
        let busy_before = (
            self.beat.sim_s - self.totals.sim_busy.total().as_secs_f64(),
            self.beat.infer_s - self.totals.infer_busy().as_secs_f64(),
        );
        let mut moved = now();
        let mut told = false;
        while state.groups.iter().any(Group::is_waiting) {
            if self.context.stop.asked() {
                return Err(JobError::Stopped);
            }
            match self.events.1.recv_timeout(TICK) {
                Ok(event) => {
                    (moved, told) = (now(), false);
                    self.on(event, state, sink)?;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if !told && moved.elapsed() >= self.context.stall_timeout() {
                        told = true;
                        sink.observer.say(&self.stalled(state, moved.elapsed()));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the loop holds a sender itself")
                }
            }
            for text in self.policy.said() {
                sink.observer.say(&format!("{}: {text}", self.job.name));
            }
            self.recording.settle(sink, self.beat)?;
            self.beat.sim_s = busy_before.0 + self.totals.sim_busy.total().as_secs_f64();
            self.beat.infer_s = busy_before.1 + self.totals.infer_busy().as_secs_f64();
            sink.observer.on(self.beat, None);
        }
        Ok(())
    }

    fn on(
        &mut self,
        event: Event,
        state: &mut State,
        sink: &mut EpisodeSink,
    ) -> Result<(), JobError> {
        match event {
            Event::Acted(index, acted) => {
                self.feed(state, index, acted, sink)?;
                self.advance(state, index, sink)?;
            }
            Event::Env(env, answer) => {
                self.totals.sim_busy.end(now());
                let found = state
                    .groups
                    .iter()
                    .position(|group| group.envs.contains(&env.0));
                let Some(index) = found else { return Ok(()) };
                let group = &mut state.groups[index];
                group.outstanding = group.outstanding.saturating_sub(1);
                group.answers.insert(env, answer);
                if group.outstanding == 0 {
                    self.totals.sim.add(group.since.elapsed());
                    self.work_off(state, index, sink)?;
                    self.advance(state, index, sink)?;
                }
            }
        }
        Ok(())
    }

    /// Starts the next turn of a group: resets and steps, or an inference if no reset is due.
    fn advance(
        &mut self,
        state: &mut State,
        index: usize,
        sink: &mut EpisodeSink,
    ) -> Result<(), JobError> {
        let State { groups, live, .. } = state;
        let group = &mut groups[index];
        let starts = group.schedule.start();
        let needs_chunk = if starts.is_empty() {
            group.schedule.needs_chunk()
        } else {
            Vec::new()
        };
        if !needs_chunk.is_empty() {
            let rows = needs_chunk
                .iter()
                .filter_map(|env| Some((*env, Arc::clone(&live.get(env)?.observation))));
            let (rows, events) = (rows.collect(), self.events.0.clone());
            // The receiver is gone after the loop was stopped.
            let give = move |acted| drop(events.send(Event::Acted(index, acted)));
            self.policy
                .act(rows, self.context.max_batch(self.held), give);
            group.thinking = needs_chunk;
            if self.held.is_planner {
                self.totals.thinking.begin(1, now());
            }
            return Ok(());
        }
        let mut resets = Vec::new();
        for (env, episode) in starts {
            let seed = self.seed(episode);
            live.insert(env, Live::new(episode, seed));
            tracing::debug!(episode, env = env.0, seed, "reset");
            resets.push((env, Command::Reset { seed, episode }));
            sink.note(&Line::EpisodeStart(EpisodeStart {
                job_index: self.job.index,
                episode,
                rank: self.context.env.rank,
                env: env.0,
                alone: self.alone,
                started: rfc3339(SystemTime::now()),
            }))?;
        }
        let due = group.schedule.due();
        self.totals.env_steps += due.len() as u64;
        self.beat.steps += due.len() as u64;
        group.actions = due
            .iter()
            .map(|due| (due.env, due.action.clone()))
            .collect();
        let spec = &self.held.spec;
        let (seen, unseen): (Vec<Due>, Vec<Due>) = due
            .into_iter()
            .partition(|due| spec.needs_video && (spec.looks_back > 0 || due.last));
        let steps = |due: Vec<Due>| {
            due.into_iter()
                .map(|Due { env, action, .. }| (env, Command::Step { action }))
        };
        let (seen, unseen): (Vec<_>, Vec<_>) = (steps(seen).collect(), steps(unseen).collect());
        group.since = now();
        for (work, looks) in [(resets, spec.needs_video), (seen, true), (unseen, false)] {
            if !work.is_empty() {
                group.outstanding += work.len();
                self.totals.sim_busy.begin(work.len(), now());
                self.env.send(
                    work,
                    if self.recording.every_frame || looks {
                        Render::Yes
                    } else {
                        Render::No
                    },
                );
            }
        }
        Ok(())
    }

    fn feed(
        &mut self,
        state: &mut State,
        index: usize,
        acted: Acted,
        sink: &mut EpisodeSink,
    ) -> Result<(), JobError> {
        let Acted {
            chunks,
            took,
            shortage,
        } = acted;
        self.totals.shortage = shortage;
        let chunks = chunks?;
        self.totals.infer.add(took);
        tracing::trace!(
            group = index,
            rows = chunks.len(),
            ms = took.as_secs_f64() * 1e3,
            "inferred"
        );
        if self.held.is_planner {
            self.totals.thinking.end(now());
        } else {
            self.totals.inferred += took;
        }
        let needs_chunk = std::mem::take(&mut state.groups[index].thinking);
        self.check(&chunks, needs_chunk.len())?;
        for (env, chunk) in needs_chunk.into_iter().zip(chunks) {
            if let Some(live) = state.live.get_mut(&env) {
                live.infer_calls += 1;
            }
            if chunk.is_end() {
                self.ended_by_policy(env, state, index, sink)?;
            } else {
                state.groups[index].schedule.set_chunk(env, chunk);
            }
        }
        Ok(())
    }

    /// Ends an episode because the policy says so.
    fn ended_by_policy(
        &mut self,
        env: EnvIndex,
        state: &mut State,
        index: usize,
        sink: &mut EpisodeSink,
    ) -> Result<(), JobError> {
        state.groups[index].schedule.end(env);
        let Some(live) = state.live.remove(&env) else {
            return Ok(());
        };
        if live.length == 0 && matches!(self.job.length, Length::Steps(_)) {
            let (policy, episode) = (&self.job.policy_type, live.episode);
            let reason = format!(
                "policy `{policy}` ended episode {episode} before its first step: num_steps would never be taken, num_episodes is one way"
            );
            return Err(PolicyError::Inference(reason).into());
        }
        let end = if live.solved_once {
            End::Success
        } else {
            End::Terminated
        };
        let recorded = EpisodeEnd {
            success: live.solved_once,
            terminated: true,
            truncated: false,
        };
        self.ended(env, live, end, recorded, sink)
    }

    fn check(&self, chunks: &[Chunk], rows: usize) -> Result<(), JobError> {
        let dim = self.env.spec().action.names.len();
        if chunks.len() == rows
            && chunks
                .iter()
                .all(|chunk| chunk.action(0).is_some_and(|row| row.len() == dim))
        {
            return Ok(());
        }
        let (policy, found) = (&self.job.policy_type, chunks.len());
        let reason =
            format!("policy `{policy}` gave {found} chunks for {rows} rows of {dim} actions");
        Err(PolicyError::Inference(reason).into())
    }

    /// Processes the answers of a group after all its environments have answered.
    fn work_off(
        &mut self,
        state: &mut State,
        index: usize,
        sink: &mut EpisodeSink,
    ) -> Result<(), JobError> {
        let answers = std::mem::take(&mut state.groups[index].answers);
        let mut actions = std::mem::take(&mut state.groups[index].actions);
        for (env, answer) in answers {
            let failed = match answer {
                Answer::Reset(Ok(observation)) => {
                    self.begin(env, observation, &mut state.live)?;
                    None
                }
                Answer::Step(Ok(step)) => {
                    let action = actions.remove(&env).unwrap_or_default();
                    if let Some((end, recorded)) =
                        self.stepped(env, &action, step, &mut state.live)?
                        && let Some(live) = state.live.remove(&env)
                    {
                        state.groups[index].schedule.end(env);
                        self.ended(env, live, end, recorded, sink)?;
                    }
                    None
                }
                Answer::Reset(Err(err)) | Answer::Step(Err(err)) => Some(err),
            };
            if let Some(err) = failed {
                self.failed(env, err, state, index, sink)?;
            }
        }
        Ok(())
    }

    /// Hands a finished episode to the recorder, and from there to the journal, unless another rank
    /// has taken it over.
    fn ended(
        &mut self,
        env: EnvIndex,
        live: Live,
        how: End,
        end: EpisodeEnd,
        sink: &mut EpisodeSink,
    ) -> Result<(), JobError> {
        let account = if self.held.is_planner {
            self.policy.end(live.over(env, end.success))?
        } else {
            Account::default()
        };
        account
            .notes
            .iter()
            .for_each(|note| sink.observer.say(&format!("{}: {note}", self.job.name)));
        let episode = Episode {
            metrics: account.metrics,
            ..live.ended(self.job, self.at(env), how)
        };
        if let Some(recorder) = self.recording.recorder() {
            if !sink.may_write(&episode)? {
                return Ok(recorder.forget(env)?);
            }
            recorder.end(env, end)?;
        }
        self.recording.ended(env, episode, sink, self.beat)
    }

    /// Handles an error of one environment: its episode ends as an error, or starts again if the
    /// environment's process was lost.
    fn failed(
        &mut self,
        env: EnvIndex,
        err: EnvError,
        state: &mut State,
        index: usize,
        sink: &mut EpisodeSink,
    ) -> Result<(), JobError> {
        let (reason, stderr) = match err {
            EnvError::Episode { reason, .. } => (reason, None),
            EnvError::Lost { reason, stderr, .. } => (reason, Some(stderr)),
            other => return Err(other.into()),
        };
        if let Some(recorder) = self.recording.recorder() {
            recorder.forget(env)?;
        }
        let Some(live) = state.live.remove(&env) else {
            return Ok(());
        };
        let attempt = state.attempts.entry(live.episode).or_insert(0);
        let again = stderr.is_some() && *attempt < self.context.env_restarts();
        if let Some(stderr) = stderr {
            *attempt += 1;
            let lost = EnvLost {
                job_index: self.job.index,
                rank: self.context.env.rank,
                env: env.0,
                episode: live.episode,
                step: live.length,
                attempt: *attempt,
                reason: reason.clone(),
                stderr,
                at: rfc3339(SystemTime::now()),
            };
            sink.write(&Line::EnvLost(Box::new(lost)))?;
        }
        if again {
            self.totals.env_restarts += 1;
            let text = format!(
                "{} episode {} begins again: environment {}: {reason}",
                self.job.name, live.episode, env.0
            );
            sink.observer.say(&text);
            state.groups[index].schedule.again(env);
            return Ok(());
        }
        state.groups[index].schedule.end(env);
        journal_error(
            live.errored(self.job, self.at(env), reason),
            sink,
            self.beat,
        )
    }

    fn begin(
        &mut self,
        env: EnvIndex,
        observation: Observation,
        live: &mut BTreeMap<EnvIndex, Live>,
    ) -> Result<(), JobError> {
        let Some(live) = live.get_mut(&env) else {
            return Ok(());
        };
        let (episode, seed) = (live.episode, live.seed);
        self.totals.frames += observation.video.len() as u64;
        if let Some(recorder) = self.recording.recorder() {
            recorder.begin(
                env,
                EpisodeMeta {
                    episode,
                    seed,
                    language: observation.language.clone(),
                },
                &observation,
            )?;
        }
        live.observation = Arc::new(observation);
        self.policy
            .reset(policy::EpisodeStart { env, episode, seed });
        self.show(env, &live.observation);
        Ok(())
    }

    /// Records a step; returns how the episode ended, if it did.
    fn stepped(
        &mut self,
        env: EnvIndex,
        action: &[f32],
        step: Step,
        live: &mut BTreeMap<EnvIndex, Live>,
    ) -> Result<Option<(End, EpisodeEnd)>, JobError> {
        let Some(live) = live.get_mut(&env) else {
            return Ok(None);
        };
        live.length += 1;
        live.reward(step.reward);
        self.totals.frames += step.observation.video.len() as u64;
        let signs = Signs::of(&step, live.length, live.solved_once);
        (live.solved_once, live.solved_now) = (signs.success, step.success);
        let spec = self.env.spec();
        live.out_of_bounds += u64::from(step.out_of_bounds);
        self.totals.out_of_bounds += u64::from(step.out_of_bounds);
        let end = Ending::new(&self.job.rollout, spec).after(signs);
        if let Some(recorder) = self.recording.recorder() {
            recorder.step(env, action, Some(&step.processed_action), &step)?;
        }
        let terminated = step.terminated;
        let ended = end.map(|end| {
            let truncated = step.truncated || end == End::TimeLimit;
            (
                end,
                EpisodeEnd {
                    success: end == End::Success,
                    terminated,
                    truncated,
                },
            )
        });
        live.observation = Arc::new(step.observation);
        if end.is_none() {
            self.show(env, &live.observation);
        }
        Ok(ended)
    }

    /// Shows an observation to a policy that looks back. Most policies see only the observations
    /// they are asked about.
    fn show(&self, env: EnvIndex, observation: &Arc<Observation>) {
        if self.held.spec.looks_back > 0 {
            self.policy.observe(env, Arc::clone(observation));
        }
    }

    fn at(&self, env: EnvIndex) -> Where {
        Where {
            rank: self.context.env.rank,
            env,
            rebuild: self.rebuild,
        }
    }

    fn stalled(&self, state: &State, waited: Duration) -> String {
        let waiting = state.groups.iter().filter(|group| group.is_waiting());
        let waiting: Vec<_> = waiting.map(|group| group.waits_for(&state.live)).collect();
        format!(
            "{}: nothing has moved for {} s: {}",
            self.job.name,
            waited.as_secs(),
            waiting.join("; ")
        )
    }
}
