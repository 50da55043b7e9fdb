//! The loop: environments that need a chunk get one, all running ones take a step, ended ones are recorded.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use jobs::episode::{End, Episode};
use jobs::job::{Job, Length};
use jobs::time::rfc3339;

use crate::env::{EnvError, EnvIndex, Observation, Render, Step, VectorEnv};
use crate::eval::beat::Beat;
use crate::eval::job::{Desk, JobError, Recording, Site, journal_error};
use crate::eval::latency::Latency;
use crate::eval::now;
use crate::eval::schedule::Schedule;
use crate::policy::{EpisodeStart, Made, PolicyError};
use crate::record::{EpisodeEnd, EpisodeMeta};

/// Counts of a job in a rank.
#[derive(Debug, Default)]
pub struct Totals {
    /// Steps of all environments.
    pub env_steps: u64,
    /// Pictures rendered.
    pub frames: u64,
    /// Time of a policy call.
    pub infer: Latency,
    /// Time of a step of all due environments.
    pub sim: Latency,
}

/// One build of the environments, from its first episode to its last.
pub struct Rollout<'a, 'b> {
    pub site: &'a Site<'a>,
    pub job: &'a Job,
    pub rebuild: u64,
    pub env: &'a mut dyn VectorEnv,
    pub policy: &'a mut Made,
    pub recording: &'a mut Recording<'b>,
    pub totals: &'a mut Totals,
    pub beat: &'a mut Beat,
}

/// An episode under way.
struct Live {
    episode: u64,
    seed: u64,
    observation: Observation,
    length: u64,
    return_: f64,
    started: Instant,
    infer_calls: u64,
}

impl Rollout<'_, '_> {
    /// Runs these episodes, or, for a job in steps, as many as that takes.
    pub fn run(&mut self, episodes: Vec<u64>, desk: &mut Desk) -> Result<(), JobError> {
        let (num_envs, chunk_length) = (self.env.num_envs(), self.policy.chunk_length);
        let mut live = BTreeMap::new();
        let result = match self.job.length {
            Length::Steps(steps) => {
                // Every step can end an episode at most, so no environment runs out of them.
                let enough = 0..steps.saturating_mul(num_envs as u64);
                let mut schedule = Schedule::new(enough, num_envs, chunk_length);
                (0..steps).try_for_each(|_| self.turn(&mut schedule, &mut live, desk))
            }
            _ => {
                let mut schedule = Schedule::new(episodes, num_envs, chunk_length);
                let mut result = Ok(());
                while result.is_ok() && !schedule.is_done() {
                    result = self.turn(&mut schedule, &mut live, desk);
                }
                result
            }
        };
        for env in live.into_keys() {
            if let Some(recorder) = self.recording.recorder() {
                recorder.discard(env)?;
            }
        }
        result
    }

    fn turn(
        &mut self,
        schedule: &mut Schedule,
        live: &mut BTreeMap<EnvIndex, Live>,
        desk: &mut Desk,
    ) -> Result<(), JobError> {
        if self.site.stop.asked() {
            return Err(JobError::Stopped);
        }
        self.start(schedule, live, desk)?;
        self.think(schedule, live)?;
        self.step(schedule, live, desk)?;
        self.recording.settle(desk, self.beat)?;
        desk.audience.on(self.beat, None);
        Ok(())
    }

    /// Gives idle environments their next episode. One that cannot be reset costs that episode only.
    fn start(
        &mut self,
        schedule: &mut Schedule,
        live: &mut BTreeMap<EnvIndex, Live>,
        desk: &mut Desk,
    ) -> Result<(), JobError> {
        loop {
            let starts = schedule.start();
            if starts.is_empty() {
                return Ok(());
            }
            let resets: Vec<_> = starts.iter().map(|(env, episode)| (*env, self.seed(*episode))).collect();
            let render = self.render(self.policy.policy.spec().needs_video);
            let observations = self.env.reset(&resets, render);
            for (((env, episode), (_, seed)), observation) in starts.into_iter().zip(resets).zip(observations) {
                match observation {
                    Ok(observation) => {
                        let started = self.begin(env, episode, seed, observation)?;
                        live.insert(env, started);
                    }
                    Err(EnvError::Episode { reason, .. }) => {
                        schedule.end(env);
                        let fresh = Live::new(episode, seed, Observation::empty(), now());
                        journal_error(self.errored(env, fresh, reason), desk, self.beat)?;
                    }
                    Err(other) => return Err(other.into()),
                }
            }
        }
    }

    fn begin(&mut self, env: EnvIndex, episode: u64, seed: u64, observation: Observation) -> Result<Live, JobError> {
        self.policy.policy.reset(&[EpisodeStart { env, episode, seed }]);
        self.policy.policy.observe(env, &observation);
        self.totals.frames += observation.video.len() as u64;
        if let Some(recorder) = self.recording.recorder() {
            recorder.begin(env, EpisodeMeta { episode, seed, language: observation.language.clone() }, &observation)?;
        }
        Ok(Live::new(episode, seed, observation, now()))
    }

    fn seed(&self, episode: u64) -> u64 {
        let planned = || jobs::seed::episode(self.site.seed, self.job, episode);
        self.policy.policy.episode_seed(episode).unwrap_or_else(planned)
    }

    /// Only the rows that need a chunk go to the policy.
    fn think(&mut self, schedule: &mut Schedule, live: &mut BTreeMap<EnvIndex, Live>) -> Result<(), JobError> {
        let hungry = schedule.hungry();
        if hungry.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = hungry.iter().filter_map(|env| Some((*env, &live.get(env)?.observation))).collect();
        let started = now();
        let chunks = self.policy.policy.act(&rows)?;
        self.totals.infer.add(started.elapsed());
        let dim = self.env.spec().action.names.len();
        if chunks.len() != rows.len() || chunks.iter().any(|chunk| chunk.action(0).is_none_or(|row| row.len() != dim)) {
            let reason = format!(
                "policy `{}` gave {} chunks for {} rows of {dim} actions",
                self.job.policy_type,
                chunks.len(),
                rows.len()
            );
            return Err(PolicyError::Inference(reason).into());
        }
        for (env, chunk) in hungry.into_iter().zip(chunks) {
            schedule.feed(env, chunk);
            if let Some(live) = live.get_mut(&env) {
                live.infer_calls += 1;
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        schedule: &mut Schedule,
        live: &mut BTreeMap<EnvIndex, Live>,
        desk: &mut Desk,
    ) -> Result<(), JobError> {
        let spec = self.policy.policy.spec();
        let render = self.render(spec.needs_video && (spec.looks_back > 0 || schedule.hungry_next()));
        let actions = schedule.actions();
        let started = now();
        let steps = self.env.step(&actions, render);
        self.totals.sim.add(started.elapsed());
        self.totals.env_steps += actions.len() as u64;
        self.beat.steps += actions.len() as u64;
        for ((env, action), step) in actions.into_iter().zip(steps) {
            let over = match step {
                Ok(step) => self.stepped(env, &action, step, live)?,
                Err(EnvError::Episode { reason, .. }) => {
                    if let Some(recorder) = self.recording.recorder() {
                        recorder.discard(env)?;
                    }
                    if let Some(live) = live.remove(&env) {
                        journal_error(self.errored(env, live, reason), desk, self.beat)?;
                    }
                    schedule.end(env);
                    None
                }
                Err(other) => return Err(other.into()),
            };
            if let Some(end) = over
                && let Some(live) = live.remove(&env)
            {
                schedule.end(env);
                let episode = self.episode(env, live, end);
                self.recording.ended(env, episode, desk, self.beat)?;
            }
        }
        Ok(())
    }

    /// Records a step; how the episode ended, if it did.
    fn stepped(
        &mut self,
        env: EnvIndex,
        action: &[f32],
        step: Step,
        live: &mut BTreeMap<EnvIndex, Live>,
    ) -> Result<Option<End>, JobError> {
        let Some(live) = live.get_mut(&env) else { return Ok(None) };
        live.length += 1;
        live.return_ += f64::from(step.reward);
        self.totals.frames += step.observation.video.len() as u64;
        let end = match (step.success, step.terminated, step.truncated) {
            (true, _, _) => Some(End::Success),
            (false, true, _) => Some(End::Terminated),
            (false, false, true) => Some(End::TimeLimit),
            (false, false, false) => None,
        };
        if let Some(recorder) = self.recording.recorder() {
            recorder.step(env, action, None, &step)?;
            if end.is_some() {
                let Step { success, terminated, truncated, .. } = step;
                recorder.end(env, EpisodeEnd { success, terminated, truncated })?;
            }
        }
        if end.is_none() {
            self.policy.policy.observe(env, &step.observation);
        }
        live.observation = step.observation;
        Ok(end)
    }

    fn render(&self, policy_looks: bool) -> Render {
        if self.recording.every_frame || policy_looks { Render::Yes } else { Render::No }
    }

    fn episode(&self, env: EnvIndex, live: Live, end: End) -> Episode {
        Episode {
            job: self.job.name.clone(),
            job_index: self.job.index,
            episode: live.episode,
            seed: live.seed,
            rank: self.site.env.rank,
            env: env.0,
            rebuild: self.rebuild,
            success: (end != End::Error).then_some(end == End::Success),
            end,
            length: live.length,
            return_: live.return_,
            language_instruction: live.observation.language.to_string(),
            wall_s: live.started.elapsed().as_secs_f64(),
            infer_calls: live.infer_calls,
            ended: rfc3339(SystemTime::now()),
            error: None,
            dataset: None,
            video: None,
        }
    }

    fn errored(&self, env: EnvIndex, live: Live, reason: String) -> Episode {
        Episode { error: Some(reason), ..self.episode(env, live, End::Error) }
    }
}

impl Live {
    fn new(episode: u64, seed: u64, observation: Observation, started: Instant) -> Self {
        Self { episode, seed, observation, length: 0, return_: 0.0, started, infer_calls: 0 }
    }
}
