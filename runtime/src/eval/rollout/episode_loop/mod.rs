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
//!
//! `turn` sends a group's commands or its inference, `answers` processes what comes back.

mod answers;
mod restart;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use jobs::job::{Job, Length};

use crate::clock::now;
use crate::env::{Answer, EnvIndex};
use crate::eval::rollout::episode::{EpisodePlace, LiveEpisode};
use crate::eval::rollout::episode_loop::restart::Restart;
use crate::eval::rollout::job::builds::{EnvBuild, LoopEvent};
use crate::eval::rollout::job::context::ActiveJob;
use crate::eval::rollout::pictures::LivePictures;
use crate::eval::rollout::recording::Recording;
use crate::eval::rollout::schedule::Schedule;
use crate::eval::rollout::schedule::company::Retries;
use crate::eval::rollout::schedule::env_group::EnvGroup;
use crate::eval::rollout::schedule::source::EpisodeSource;
use crate::eval::rollout::totals::Totals;
use crate::eval::stop::Stop;
use crate::policy::FailedRows;

/// How often a waiting loop checks whether it has to stop.
const TICK: Duration = Duration::from_millis(200);

/// Runs the episodes of a job in its environments.
pub struct EpisodeLoop<'a, 'l> {
    active: &'a ActiveJob<'a>,
    /// The environments, and the channel on which they and the policy answer.
    pub envs: EnvBuild,
    /// Where finished episodes go.
    pub recording: Recording<'a, 'l>,
    totals: &'a mut Totals,
    /// True if only one episode runs at a time, so that the cause of a death is known.
    pub alone: bool,
    groups: Vec<EnvGroup<'l>>,
    live: BTreeMap<EnvIndex, LiveEpisode>,
    /// Rows that the policy has failed to answer.
    failures: FailedRows,
    /// Episodes that have lost their environments.
    retries: Retries,
    /// Those of them that start again and the user was not told about.
    restarts: Vec<Restart>,
    /// Episodes that were offered to an environment, whose starts are in the journal, and that have
    /// not begun.
    announced: BTreeSet<u64>,
    /// Pictures for the page of the run, if there is one.
    pictures: Option<LivePictures>,
}

/// Seconds of work that the heartbeat had counted before this run of the loop.
struct BusyBefore {
    sim_s: f64,
    infer_s: f64,
}

/// When something moved last, and whether the user knows that nothing has since.
struct StallWatch {
    moved: Instant,
    is_told: bool,
}

impl<'a, 'l> EpisodeLoop<'a, 'l> {
    /// Creates a loop that has not started any episode.
    pub fn new(
        active: &'a ActiveJob<'a>,
        envs: EnvBuild,
        recording: Recording<'a, 'l>,
        totals: &'a mut Totals,
    ) -> Self {
        Self {
            active,
            envs,
            recording,
            totals,
            alone: false,
            groups: Vec::new(),
            live: BTreeMap::new(),
            failures: FailedRows::default(),
            retries: Retries::default(),
            restarts: Vec::new(),
            announced: BTreeSet::new(),
            pictures: active.context.pictures(),
        }
    }

    /// Returns the job whose episodes run.
    pub fn job(&self) -> &'a Job {
        let active = self.active;
        active.job()
    }

    /// Returns whether no more episodes are to begin.
    pub fn is_decided(&self) -> bool {
        self.active.context.begins_no_more()
    }

    /// Runs the episodes of a source to their end.
    ///
    /// # Errors
    /// Returns the first [`Stop`]; it ends the job.
    pub fn run(&mut self, source: &EpisodeSource<'l>) -> Result<(), Stop> {
        self.groups = self.groups(source);
        self.retries = Retries::new(self.active.env_restarts());
        self.announced.clear();
        let result = self.turns();
        self.groups.clear();
        for env in std::mem::take(&mut self.live).into_keys() {
            self.recording.forget(env)?;
        }
        result
    }

    /// Records an episode that has killed its rank too often as an error.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub fn give_up(&mut self, episode: u64, deaths: u32) -> Result<(), Stop> {
        let reason = format!("its rank died {deaths} times while it was under way");
        let errored = LiveEpisode::new(episode, self.active.seed(episode)).errored(
            self.job(),
            self.place(EnvIndex(0)),
            reason,
        );
        self.recording.log.errored_episode(errored)
    }

    /// Closes the files of the job, after its last episode.
    ///
    /// # Errors
    /// Returns an error if an episode or a file is not complete.
    pub fn finish(self) -> Result<(), Stop> {
        let Self {
            active,
            envs,
            recording,
            totals,
            ..
        } = self;
        // Sample the memory now: the processes are at their largest, and end with `envs`.
        active.context.meter.look();
        if totals.out_of_bounds > 0 {
            let text = format!(
                "{} actions, of which {} were out of bounds (docs/own_simulator.md, `clip_actions`)",
                totals.env_steps, totals.out_of_bounds
            );
            recording.log.say_about(&active.job().name, &text);
        }
        let settled = recording.finish(totals);
        drop(envs);
        settled
    }

    fn groups(&self, source: &EpisodeSource<'l>) -> Vec<EnvGroup<'l>> {
        let num_envs = self.envs.num_envs();
        let steps = match self.job().length {
            Length::Steps(steps) => Some(steps),
            Length::Episodes(_) | Length::Policy => None,
        };
        let group = |envs: Range<usize>| {
            let waiting = source.waiting(envs.clone(), num_envs, self.active.context.work.share);
            let length = self.active.policy.chunk_length;
            let schedule = Schedule::new(waiting, envs.clone(), length, steps);
            let schedule = schedule
                .holding(self.active.latency.hold)
                .stepping_together(self.envs.steps_together());
            EnvGroup::new(envs, schedule)
        };
        let groups = self.envs.groups(self.active.stages());
        groups.into_iter().map(group).collect()
    }

    /// Waits for events until no group waits for anything.
    fn turns(&mut self) -> Result<(), Stop> {
        (0..self.groups.len()).try_for_each(|group| self.start_turn(group))?;
        let before = BusyBefore {
            sim_s: self.recording.log.beat.sim_s - self.totals.sim_busy.total().as_secs_f64(),
            infer_s: self.recording.log.beat.infer_s - self.totals.infer_busy().as_secs_f64(),
        };
        let mut watch = StallWatch {
            moved: now(),
            is_told: false,
        };
        let result = self.wait_for_all(&before, &mut watch);
        // What follows may take long without an answer: another build, or the end of the files.
        self.recording.log.beat.is_stepping = false;
        self.recording.log.report();
        result
    }

    fn wait_for_all(&mut self, before: &BusyBefore, watch: &mut StallWatch) -> Result<(), Stop> {
        while self.groups.iter().any(EnvGroup::is_waiting) {
            if self.active.context.stop.asked() {
                return Err(Stop::Asked);
            }
            self.wait(watch)?;
            for text in self.active.context.inference.said() {
                self.say(&text);
            }
            self.recording.settle()?;
            self.report(before);
        }
        Ok(())
    }

    /// Waits for one event for at most a tick, and processes it.
    fn wait(&mut self, watch: &mut StallWatch) -> Result<(), Stop> {
        let patience = self.recording.log.patience(TICK);
        match self.envs.inbox.recv_timeout(patience) {
            Ok(event) => {
                *watch = StallWatch {
                    moved: now(),
                    is_told: false,
                };
                let beat = &mut self.recording.log.beat;
                (beat.moves, beat.is_stepping) = (beat.moves + 1, true);
                self.on(event)?;
            }
            Err(RecvTimeoutError::Timeout) => {
                let waited = watch.moved.elapsed();
                if !watch.is_told && waited >= self.active.stall_timeout() {
                    watch.is_told = true;
                    self.say_stalled(waited);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("the loop holds a sender itself")
            }
        }
        Ok(())
    }

    fn on(&mut self, event: LoopEvent) -> Result<(), Stop> {
        match event {
            LoopEvent::Inference {
                group,
                result,
                waited,
            } => {
                self.on_inference(group, result, waited)?;
                self.next_turn(group)
            }
            LoopEvent::Envs(batch) => batch
                .into_iter()
                .try_for_each(|(env, answer)| self.on_answer(env, answer)),
        }
    }

    /// Takes an answer, and starts the next turn of its group if it is the last of this one.
    fn on_answer(&mut self, env: EnvIndex, answer: Answer) -> Result<(), Stop> {
        if !matches!(answer, Answer::Last { .. }) {
            self.totals.sim_busy.end(now());
        }
        let mut groups = self.groups.iter();
        let Some(index) = groups.position(|group| group.envs.contains(&env.0)) else {
            return Ok(());
        };
        let group = &mut self.groups[index];
        if !group.answered(env, answer) {
            return Ok(());
        }
        self.totals.sim.add(group.since.elapsed());
        self.on_answers(index)?;
        self.next_turn(index)
    }

    /// Starts the next turn of a group, and those of idle groups whose episodes may have waited for
    /// it: environments of several groups may share a process.
    fn next_turn(&mut self, index: usize) -> Result<(), Stop> {
        let is_restricting = self.retries.is_restricting();
        self.start_turn(index)?;
        for other in 0..self.groups.len() {
            if is_restricting && !self.groups[other].is_waiting() {
                self.start_turn(other)?;
            }
        }
        Ok(())
    }

    /// Reports the heartbeat with the seconds of work so far.
    fn report(&mut self, before: &BusyBefore) {
        let log = &mut *self.recording.log;
        log.beat.sim_s = before.sim_s + self.totals.sim_busy.total().as_secs_f64();
        log.beat.infer_s = before.infer_s + self.totals.infer_busy().as_secs_f64();
        log.report();
    }

    fn place(&self, env: EnvIndex) -> EpisodePlace {
        EpisodePlace {
            rank: self.active.context.env.rank,
            env,
            rebuild: self.envs.number,
        }
    }

    fn say(&mut self, text: &str) {
        let job = self.job();
        self.recording.log.say_about(&job.name, text);
    }

    fn say_stalled(&mut self, waited: Duration) {
        let waiting = self.groups.iter().filter(|group| group.is_waiting());
        let waiting: Vec<_> = waiting.map(|group| group.waits_for(&self.live)).collect();
        let (seconds, waiting) = (waited.as_secs(), waiting.join("; "));
        self.say(&format!("no progress for {seconds} s: {waiting}"));
    }
}
