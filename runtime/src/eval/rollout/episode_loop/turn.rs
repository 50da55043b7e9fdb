//! The turn of a group: resets and steps, or an inference if no reset is due, and what follows from
//! the answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use jobs::episode::{End, Episode};
use jobs::job::Length;
use jobs::journal::{EnvLost, EpisodeStart, Line};
use jobs::latency;
use jobs::time::rfc3339;

use crate::clock::now;
use crate::env::{Answer, Command, EnvError, EnvIndex, Observation, Render, Step};
use crate::eval::Stop;
use crate::eval::monitor::Event;
use crate::eval::rollout::episode::{Ending, LiveEpisode};
use crate::eval::rollout::episode_loop::{EpisodeLoop, restart_messages};
use crate::eval::rollout::job::{GroupInferred, check_inputs};
use crate::eval::rollout::schedule::group::Answered;
use crate::eval::rollout::schedule::{self, DueStep, Turn};
use crate::policy::{Continuation, Inferred, Over, PolicyRow, RowAnswer, RowError, Window};
use crate::record::EpisodeEnd;

impl EpisodeLoop<'_> {
    /// Starts the next turn of a group.
    pub(super) fn start_turn(&mut self, index: usize) -> Result<(), Stop> {
        let starts = match self.is_decided() {
            true => Vec::new(),
            false => {
                let process = |env| self.envs.env.company(env);
                schedule::start(
                    &mut self.groups,
                    index,
                    &mut self.retries,
                    &mut self.out.leases,
                    process,
                )
            }
        };
        match self.groups[index].turn(starts) {
            Turn::Infer(needs_chunk) => self.infer(index, needs_chunk),
            Turn::Act { starts, due } => {
                let mut commands = Vec::with_capacity(starts.len() + due.len());
                for (env, episode) in starts {
                    commands.push((env, self.reset(env, episode)?));
                }
                commands.extend(due.iter().map(|due| self.step(due)));
                self.send(index, commands, due);
            }
        }
        Ok(())
    }

    /// Asks the policy for the chunks of `needs_chunk`.
    fn infer(&mut self, index: usize, needs_chunk: Vec<EnvIndex>) {
        let rows = needs_chunk.iter().filter_map(|env| self.row(index, *env));
        let rows = rows.collect();
        let (inbox, asked) = (Arc::clone(&self.envs.inbox), now());
        let give = move |result| {
            inbox.put(GroupInferred {
                group: index,
                result,
                waited: asked.elapsed(),
            });
        };
        self.active
            .inference
            .infer(rows, self.active.max_batch(), give);
        self.groups[index].thinking = needs_chunk;
        if self.active.policy.is_planner {
            self.out.totals.thinking.begin(1, now());
        }
    }

    fn row(&mut self, index: usize, env: EnvIndex) -> Option<PolicyRow> {
        let live = self.groups[index].live(env)?;
        let delay = self.active.latency.fixed;
        let delay = delay.unwrap_or(live.latency.max_steps) as usize;
        let steps = live.actions.age();
        Some(PolicyRow {
            env,
            episode: live.line.episode,
            seed: self.active.seed(live.line.episode),
            inference: live.line.infer_calls,
            window: live.window.clone(),
            continues: steps.map(|steps| Continuation { steps, delay }),
            noise: None,
        })
    }

    /// Notes the start of an episode, and returns the command for it.
    fn reset(&mut self, env: EnvIndex, episode: u64) -> Result<Command, Stop> {
        let seed = self.active.seed(episode);
        tracing::debug!(episode, env = env.0, seed, "reset");
        self.out.note(&Line::EpisodeStart(EpisodeStart {
            job: self.job().name.clone(),
            job_index: self.job().index,
            episode,
            rank: self.active.run.env.rank,
            env: env.0,
            alone: self.alone,
            started: rfc3339(SystemTime::now()),
        }))?;
        Ok(Command::Reset {
            seed,
            episode,
            render: self.render(self.active.policy.needs_video),
        })
    }

    /// Sends the commands of a turn, `due` among them.
    fn send(&mut self, index: usize, commands: Vec<(EnvIndex, Command)>, due: Vec<DueStep>) {
        let group = &mut self.groups[index];
        self.out.totals.costs.env_steps += due.len() as u64;
        self.out.monitor.on(Event::Stepped(due.len() as u64));
        for due in due.iter().filter(|due| due.is_held) {
            if let Some(live) = group.live(due.env) {
                live.latency.held += 1;
            }
        }
        group.sent(due, commands.len());
        if commands.is_empty() {
            return;
        }
        self.out.totals.sim_busy.begin(commands.len(), now());
        self.envs.env.send(commands);
    }

    fn step(&self, due: &DueStep) -> (EnvIndex, Command) {
        let policy = &self.active.policy;
        let is_looked_at = policy.needs_video && (policy.looks_back > 0 || due.last);
        let step = Command::Step {
            action: due.action.clone(),
            render: self.render(is_looked_at),
        };
        (due.env, step)
    }

    /// Returns whether images are rendered: where somebody looks at them, the recorder at all, the
    /// policy at those that it infers from.
    fn render(&self, is_looked_at: bool) -> Render {
        match self.recording.every_frame || is_looked_at {
            true => Render::Yes,
            false => Render::No,
        }
    }

    /// Gives the answers of an inference to the environments of a group.
    pub(super) fn on_inference(&mut self, inferred: GroupInferred) -> Result<(), Stop> {
        let (index, waited) = (inferred.group, inferred.waited);
        let Inferred {
            answers,
            took,
            shortage,
        } = inferred.result;
        self.out.totals.shortage = shortage;
        let answers = answers?;
        self.out.totals.infer.add(took);
        tracing::trace!(
            group = index,
            rows = answers.len(),
            ms = took.as_secs_f64() * 1e3,
            "inferred"
        );
        if self.active.policy.is_planner {
            self.out.totals.thinking.end(now());
        } else {
            self.out.totals.inferred += took;
        }
        let needs_chunk = std::mem::take(&mut self.groups[index].thinking);
        if !self.active.policy.is_planner {
            self.failures.count(&self.job().policy_type, &answers)?;
        }
        let delay = self.active.latency.steps(waited);
        for (env, answer) in needs_chunk.into_iter().zip(answers) {
            if let Some(live) = self.groups[index].live(env) {
                live.line.infer_calls += 1;
                if live.line.length > 0 {
                    live.latency.add(delay);
                }
            }
            match answer {
                RowAnswer::Failed(reason) => {
                    // A policy whose process was lost has read its program again.
                    check_inputs(self.active.run, self.job())?;
                    self.on_failed_row(index, env, reason)?;
                }
                RowAnswer::End => self.ended_by_policy(index, env)?,
                RowAnswer::Chunk(chunk) => {
                    if self.active.latency.fixed.is_some() {
                        let length = self.active.policy.chunk_length as u64;
                        latency::check(delay, length, chunk.horizon() as u64).map_err(Stop::job)?;
                    }
                    self.groups[index].add_chunk(env, chunk, delay as usize);
                }
            }
        }
        Ok(())
    }

    /// Ends an episode as an error, because the policy has no chunk for it.
    fn on_failed_row(
        &mut self,
        index: usize,
        env: EnvIndex,
        RowError(reason): RowError,
    ) -> Result<(), Stop> {
        self.recording.forget(env)?;
        let Some(live) = self.groups[index].end(env) else {
            return Ok(());
        };
        if live.line.length == 0 && matches!(self.job().length, Length::Steps(_)) {
            // The steps of the job would never be taken.
            let episode = live.line.episode;
            return Err(Stop::job(format_args!(
                "{reason}; this job counts steps, and episode {episode} has taken none: \
                 num_episodes is one way"
            )));
        }
        self.errored(live, env, reason)
    }

    /// Ends an episode because the policy says so.
    fn ended_by_policy(&mut self, index: usize, env: EnvIndex) -> Result<(), Stop> {
        let Some(live) = self.groups[index].live(env) else {
            return Ok(());
        };
        let (episode, success) = (live.line.episode, live.solved_once);
        if live.line.length == 0 && matches!(self.job().length, Length::Steps(_)) {
            let policy = &self.job().policy_type;
            return Err(Stop::job(format_args!(
                "policy `{policy}` ended episode {episode} before its first step: num_steps would \
                 never be reached, use num_episodes"
            )));
        }
        let end = match success {
            true => End::Success,
            false => End::Terminated,
        };
        let recorded = EpisodeEnd {
            success,
            terminated: true,
            truncated: false,
        };
        self.on_end(index, env, end, recorded)
    }

    /// Processes the answers of a group after all its environments have answered.
    pub(super) fn on_answers(&mut self, index: usize) -> Result<(), Stop> {
        for Answered {
            env,
            answer,
            action,
        } in self.groups[index].take_answers()
        {
            match answer {
                Answer::Reset(Ok(observation)) => self.on_reset(index, env, observation)?,
                Answer::Step(Ok(step)) => self.on_step(index, env, &action, step)?,
                Answer::Reset(Err(err)) | Answer::Step(Err(err)) => {
                    self.on_failure(index, env, err)?;
                }
            }
        }
        let name = &self.job().name;
        for text in restart_messages(name, &std::mem::take(&mut self.restarts)) {
            self.out.monitor.say(&text);
        }
        Ok(())
    }

    fn on_reset(
        &mut self,
        index: usize,
        env: EnvIndex,
        observation: Observation,
    ) -> Result<(), Stop> {
        let Some(live) = self.groups[index].live(env) else {
            return Ok(());
        };
        let episode = live.line.episode;
        self.out.totals.costs.frames += observation.video.len() as u64;
        if let Some(pictures) = &mut self.pictures {
            pictures.show(env, &observation, now());
        }
        if let Some(recorder) = &mut self.recording.recorder {
            let seed = self.active.seed(episode);
            recorder.begin(env, episode, seed, &observation)?;
        }
        live.window = Window::new(Arc::new(observation));
        Ok(())
    }

    /// Records a step, and ends the episode if it was the last one.
    fn on_step(
        &mut self,
        index: usize,
        env: EnvIndex,
        action: &[f32],
        step: Step,
    ) -> Result<(), Stop> {
        let ending = Ending::new(&self.job().rollout, self.envs.env.spec());
        let Some(live) = self.groups[index].live(env) else {
            return Ok(());
        };
        live.line.length += 1;
        live.reward(step.reward);
        self.out.totals.costs.frames += step.observation.video.len() as u64;
        if let Some(pictures) = &mut self.pictures {
            pictures.show(env, &step.observation, now());
        }
        let mut signs = EpisodeEnd {
            success: step.success || live.solved_once,
            terminated: step.terminated,
            truncated: step.truncated,
        };
        (live.solved_once, live.solved_now) = (signs.success, step.success);
        live.line.actions_out_of_bounds += u64::from(step.out_of_bounds);
        self.out.totals.out_of_bounds += u64::from(step.out_of_bounds);
        let end = ending.after(signs, live.line.length);
        signs.truncated |= end == Some(End::TimeLimit);
        if let Some(recorder) = &mut self.recording.recorder {
            recorder.step(env, action, &step)?;
        }
        let looks_back = self.active.policy.looks_back;
        live.window.push(Arc::new(step.observation), looks_back);
        end.map_or(Ok(()), |end| self.on_end(index, env, end, signs))
    }

    /// Hands a finished episode to the recorder, and from there to the journal, unless another rank
    /// has taken it over.
    fn on_end(
        &mut self,
        index: usize,
        env: EnvIndex,
        end: End,
        recorded: EpisodeEnd,
    ) -> Result<(), Stop> {
        let Some(live) = self.groups[index].end(env) else {
            return Ok(());
        };
        let metrics = match self.active.policy.is_planner {
            true => self.active.inference.end(Over {
                env,
                success: recorded.success,
                length: live.line.length,
                return_: live.line.return_,
                observation: Arc::clone(live.window.now()),
            })?,
            false => BTreeMap::new(),
        };
        let episode = Episode {
            metrics,
            ..self.line(live, env, end)
        };
        self.recording.end(env, episode, recorded, self.out)
    }

    /// Handles an error of one environment: its episode ends as an error, or starts again if the
    /// environment's process was lost.
    fn on_failure(&mut self, index: usize, env: EnvIndex, err: EnvError) -> Result<(), Stop> {
        let (reason, loss) = match err {
            EnvError::Episode { reason, .. } => (reason, None),
            EnvError::Lost {
                reason,
                stderr,
                blame,
                ..
            } => (reason, Some((stderr, blame))),
            other => return Err(Stop::job(other)),
        };
        self.recording.forget(env)?;
        let Some(live) = self.groups[index].end(env) else {
            return Ok(());
        };
        if let Some((stderr, blame)) = loss {
            let company = self.envs.env.company(env).len();
            let ruling = self.retries.on_loss(live.line.episode, blame, company);
            let lost = EnvLost {
                job: self.active.job().name.clone(),
                job_index: self.active.job().index,
                rank: self.active.run.env.rank,
                env: env.0,
                episode: live.line.episode,
                step: live.line.length,
                attempt: ruling.attempt,
                blame: ruling.blame,
                reason: reason.clone(),
                stderr,
                at: rfc3339(SystemTime::now()),
            };
            self.out.write(&Line::EnvLost(Box::new(lost.clone())))?;
            if ruling.again {
                // The next process reads the simulator again.
                check_inputs(self.active.run, self.job())?;
                self.out.totals.costs.env_restarts += 1;
                self.groups[index].again(env, live.line.episode);
                self.restarts.push(lost);
                return Ok(());
            }
        }
        self.errored(live, env, reason)
    }

    /// Returns the journal line of an episode that ended with `end`.
    pub(super) fn line(&self, live: LiveEpisode, env: EnvIndex, end: End) -> Episode {
        let (job, is_scored) = (self.job(), end != End::Error);
        Episode {
            job: job.name.clone(),
            job_index: job.index,
            seed: self.active.seed(live.line.episode),
            rank: self.active.run.env.rank,
            env: env.0,
            rebuild: self.envs.number,
            success: is_scored.then_some(end == End::Success),
            success_at_end: is_scored.then_some(live.solved_now),
            end,
            language_instruction: live.window.now().language.to_string(),
            wall_s: live.started.elapsed().as_secs_f64(),
            latency: job.latency.is_some().then_some(live.latency),
            ended: rfc3339(SystemTime::now()),
            ..live.line
        }
    }
}
