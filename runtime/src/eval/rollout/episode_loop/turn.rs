//! The turn of a group: resets and steps, or an inference if no reset is due.

use std::sync::Arc;
use std::time::SystemTime;

use jobs::journal::{EpisodeStart, Line};
use jobs::time::rfc3339;

use crate::clock::now;
use crate::env::{Command, EnvIndex, NextEpisode, Render};
use crate::eval::monitor::Event;
use crate::eval::rollout::episode_loop::EpisodeLoop;
use crate::eval::rollout::job::builds::GroupInferred;
use crate::eval::rollout::schedule::{self, DueStep, Turn};
use crate::eval::stop::Stop;
use crate::policy::{Continuation, PolicyRow};

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
            Turn::Act { starts, mut due } => {
                let mut commands = Vec::with_capacity(starts.len() + due.len());
                for (env, episode) in starts {
                    commands.push((env, self.reset(index, env, episode)?));
                }
                self.offer(index, &mut due)?;
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
            episode: live.episode,
            seed: live.seed,
            inference: live.infer_calls,
            window: live.window.clone(),
            continues: steps.map(|steps| Continuation { steps, delay }),
            noise: None,
        })
    }

    /// Notes the start of an episode, and returns the command for it.
    fn reset(&mut self, index: usize, env: EnvIndex, episode: u64) -> Result<Command, Stop> {
        let seed = self.active.seed(episode);
        self.groups[index].seed(env, seed);
        tracing::debug!(episode, env = env.0, seed, "reset");
        if !self.announced.remove(&episode) {
            self.note_start(env, episode)?;
        }
        let render = self.render(self.active.policy.needs_video);
        Ok(Command::Reset {
            seed,
            episode,
            render,
        })
    }

    /// Notes that an episode begins, or may begin.
    fn note_start(&mut self, env: EnvIndex, episode: u64) -> Result<(), Stop> {
        self.out.note(&Line::EpisodeStart(EpisodeStart {
            job: self.job().name.clone(),
            job_index: self.job().index,
            episode,
            rank: self.active.run.env.rank,
            env: env.0,
            alone: self.alone,
            started: rfc3339(SystemTime::now()),
        }))
    }

    /// Offers the next episodes to the environments that step, so that each may begin one by
    /// itself. Their starts are noted before: if the rank dies of one, it has to be in the journal.
    ///
    /// Nothing is offered where the first observation has images, which cost more than a command,
    /// and as long as an episode waits for its neighbours to end.
    fn offer(&mut self, index: usize, due: &mut [DueStep]) -> Result<(), Stop> {
        let has_images = self.recording.every_frame || self.active.policy.needs_video;
        let ignores_ends = self.job().rollout.ignore_terminations;
        let takes_offers = self.envs.env.takes_offers();
        let waits = self.retries.is_restricting();
        if has_images || ignores_ends || waits || !takes_offers || self.is_decided() {
            return Ok(());
        }
        self.groups[index].offer(due, &mut self.out.leases);
        for due in due {
            if let Some(episode) = due.next
                && self.announced.insert(episode)
            {
                self.note_start(due.env, episode)?;
            }
        }
        Ok(())
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
        let next = |episode| NextEpisode {
            seed: self.active.seed(episode),
            episode,
        };
        let policy = &self.active.policy;
        let is_looked_at = policy.needs_video && (policy.looks_back > 0 || due.last);
        let step = Command::Step {
            action: due.action.clone(),
            next: due.next.map(next),
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
}
