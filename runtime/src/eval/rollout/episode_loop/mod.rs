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
//! `turn` sends a group's commands or its inference, and processes what comes back.

mod turn;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use jobs::episode::{End, Episode};
use jobs::job::{Job, Length};
use jobs::journal::{Blame, EnvLost};

use crate::clock::now;
use crate::env::{Answer, EnvIndex};
use crate::eval::Stop;
use crate::eval::ledger::Ledger;
use crate::eval::monitor::Event;
use crate::eval::rollout::episode::LiveEpisode;
use crate::eval::rollout::job::EnvBuild;
use crate::eval::rollout::job::context::ActiveJob;
use crate::eval::rollout::pictures::LivePictures;
use crate::eval::rollout::recording::Recording;
use crate::eval::rollout::schedule::company::Retries;
use crate::eval::rollout::schedule::group::Group;
use crate::eval::rollout::schedule::{Episodes, Feed};
use crate::policy::FailedRows;

/// How often a waiting loop checks whether it has to stop.
const TICK: Duration = Duration::from_millis(200);

/// Runs the episodes of a job in its environments.
pub struct EpisodeLoop<'a> {
    /// The job and its policy.
    pub active: &'a ActiveJob<'a>,
    /// The environments, and where they and the policy answer.
    pub envs: EnvBuild,
    /// Where finished episodes go.
    pub recording: Recording,
    /// What the job changes in its rank.
    pub out: &'a mut Ledger,
    /// True if only one episode runs at a time, so that the cause of a death is known.
    pub alone: bool,
    groups: Vec<Group>,
    /// Rows that the policy has failed to answer.
    failures: FailedRows,
    /// Episodes that have lost their environments.
    retries: Retries,
    /// Those of them that start again and the user was not told about.
    restarts: Vec<EnvLost>,
    /// Pictures for the page of the run, if there is one.
    pictures: Option<LivePictures>,
}

impl<'a> EpisodeLoop<'a> {
    /// Creates a loop that has not started any episode.
    pub fn new(
        active: &'a ActiveJob<'a>,
        envs: EnvBuild,
        recording: Recording,
        out: &'a mut Ledger,
    ) -> Self {
        let pictures = match out.monitor.orders.has_page() {
            true => LivePictures::start(&active.run.folder, active.run.env.rank),
            false => None,
        };
        Self {
            active,
            envs,
            recording,
            out,
            alone: false,
            groups: Vec::new(),
            failures: FailedRows::default(),
            retries: Retries::default(),
            restarts: Vec::new(),
            pictures,
        }
    }

    /// Returns the job whose episodes run.
    pub fn job(&self) -> &'a Job {
        let active = self.active;
        active.job()
    }

    /// Returns whether no more episodes are to begin.
    pub fn is_decided(&mut self) -> bool {
        let job = self.job().index;
        self.out.monitor.begins_no_more(job)
    }

    /// Runs these episodes to their end.
    ///
    /// # Errors
    /// Returns the first [`Stop`]; it ends the job.
    pub fn run(&mut self, episodes: &Episodes) -> Result<(), Stop> {
        self.groups = self.groups(episodes);
        self.retries = Retries::new(self.active.run.args.env_restarts);
        let result = self.turns();
        self.groups.clear();
        // What follows may take long without an answer: another build, or the end of the files.
        self.out.monitor.on(Event::Between);
        self.out.report();
        for env in 0..self.envs.env.num_envs() {
            self.recording.forget(EnvIndex(env))?;
        }
        result
    }

    /// Records an episode that has killed its rank too often as an error.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub fn give_up(&mut self, episode: u64, deaths: u32) -> Result<(), Stop> {
        let reason = format!("its rank died {deaths} times while it was under way");
        self.errored(LiveEpisode::new(episode), EnvIndex(0), reason)
    }

    /// Writes the journal line of an episode that an error ended.
    fn errored(&mut self, live: LiveEpisode, env: EnvIndex, reason: String) -> Result<(), Stop> {
        let job = &self.job().name;
        let text = format!("{job} episode {}: {reason}", live.line.episode);
        self.out.monitor.say(&text);
        self.out.episode(Episode {
            error: Some(reason),
            ..self.line(live, env, End::Error)
        })
    }

    /// Closes the files of the job, after its last episode.
    ///
    /// # Errors
    /// Returns an error if an episode or a file is not complete.
    pub fn finish(self) -> Result<(), Stop> {
        // Sample the memory now: the processes are at their largest, and end with the build.
        self.out.monitor.meter.look();
        let (steps, wild) = (
            self.out.totals.costs.env_steps,
            self.out.totals.out_of_bounds,
        );
        if wild > 0 {
            self.say(&format!(
                "{steps} actions, of which {wild} were out of bounds (docs/own_simulator.md, \
                 `clip_actions`)"
            ));
        }
        self.recording.finish(self.out)
    }

    fn groups(&self, episodes: &Episodes) -> Vec<Group> {
        let (active, num_envs) = (self.active, self.envs.env.num_envs());
        let steps = match self.job().length {
            Length::Steps(steps) => Some(steps),
            Length::Episodes(_) | Length::Policy => None,
        };
        let (share, chunk_length) = (active.task.work.share, active.policy.chunk_length);
        let group = |envs: Range<usize>| {
            let feed = Feed::new(episodes, envs.clone(), num_envs, share);
            let mut group = Group::new(feed, envs, chunk_length, steps);
            group.hold = active.latency.hold;
            group.steps_together = self.envs.env.steps_together();
            group
        };
        let groups = self.envs.groups(active.stages());
        groups.into_iter().map(group).collect()
    }

    /// Starts the turns of all groups, and waits for events until no group waits for anything.
    fn turns(&mut self) -> Result<(), Stop> {
        (0..self.groups.len()).try_for_each(|group| self.start_turn(group))?;
        // When something moved last; `None` if the user knows that nothing has since.
        let mut moved = Some(now());
        while self.groups.iter().any(Group::is_waiting) {
            if self.out.monitor.stop.asked() {
                return Err(Stop::Asked);
            }
            self.wait(&mut moved)?;
            for text in self.active.inference.said() {
                self.say(&text);
            }
            self.recording.settle(self.out)?;
            self.out.report();
        }
        Ok(())
    }

    /// Waits for events for at most a tick, and processes them.
    fn wait(&mut self, moved: &mut Option<Instant>) -> Result<(), Stop> {
        let patience = self.out.patience(TICK);
        let (inferred, answers) = self.envs.wait(patience);
        if inferred.is_empty() && answers.is_empty() {
            let limit = self.active.run.args.stall_timeout;
            if let Some(since) = moved.take_if(|since| since.elapsed().as_secs() >= limit) {
                self.say_stalled(since.elapsed());
            }
            return Ok(());
        }
        *moved = Some(now());
        for inferred in inferred {
            self.out.monitor.on(Event::Answered);
            let group = inferred.group;
            self.on_inference(inferred)?;
            self.next_turn(group)?;
        }
        if !answers.is_empty() {
            self.out.monitor.on(Event::Answered);
        }
        answers
            .into_iter()
            .try_for_each(|(env, answer)| self.on_answer(env, answer))
    }

    /// Takes an answer, and starts the next turn of its group if it is the last of this one.
    fn on_answer(&mut self, env: EnvIndex, answer: Answer) -> Result<(), Stop> {
        self.out.totals.sim_busy.end(now());
        let mut groups = self.groups.iter();
        let Some(index) = groups.position(|group| group.envs.contains(&env.0)) else {
            return Ok(());
        };
        let group = &mut self.groups[index];
        if !group.answered(env, answer) {
            return Ok(());
        }
        self.out.totals.sim.add(group.since.elapsed());
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

    fn say(&self, text: &str) {
        self.out.say_about(&self.job().name, text);
    }

    fn say_stalled(&self, waited: Duration) {
        let waiting = self.groups.iter().filter(|group| group.is_waiting());
        let waiting: Vec<_> = waiting.map(|group| group.waits_for()).collect();
        let (seconds, waiting) = (waited.as_secs(), waiting.join("; "));
        self.say(&format!("no progress for {seconds} s: {waiting}"));
    }
}

/// Returns what the user is told about episodes that start again: one message for each that is to
/// blame itself, and one for all that another episode has stopped, or may have.
fn restart_messages(job: &str, restarts: &[EnvLost]) -> Vec<String> {
    let mut own = Vec::new();
    let mut shared: BTreeMap<(bool, &str), Vec<String>> = BTreeMap::new();
    for restart in restarts {
        let (env, episode, reason) = (restart.env, restart.episode, &restart.reason);
        match restart.blame {
            Blame::Own | Blame::Start => own.push(format!(
                "{job} episode {episode} starts again: environment {env}: {reason}"
            )),
            Blame::Neighbour | Blame::Unknown => shared
                .entry((restart.blame == Blame::Unknown, reason.as_str()))
                .or_default()
                .push(episode.to_string()),
        }
    }
    let shared = shared.into_iter().map(|((is_suspect, reason), episodes)| {
        let who = match episodes.as_slice() {
            [one] => format!("episode {one} starts"),
            several => format!("episodes {} start", several.join(", ")),
        };
        let why = match is_suspect {
            true => {
                "with fewer neighbours, because it is not known which episode of the process is to \
                 blame"
            }
            false => "uncounted, because another episode of the process is to blame",
        };
        format!("{job} {who} again, {why}: {reason}")
    });
    own.extend(shared);
    own
}

#[cfg(test)]
mod tests {
    use jobs::job::JobIndex;

    use super::*;

    fn restart(episode: u64, blame: Blame, reason: &str) -> EnvLost {
        EnvLost {
            job: "reach".to_owned(),
            job_index: JobIndex(0),
            rank: 0,
            env: 0,
            episode,
            step: 1,
            attempt: 1,
            blame,
            reason: reason.to_owned(),
            stderr: Vec::new(),
            at: String::new(),
        }
    }

    #[test]
    fn neighbours_are_told_together_and_culprits_one_by_one() {
        let restarts = [
            restart(4, Blame::Neighbour, "it died"),
            restart(5, Blame::Own, "it died"),
            restart(6, Blame::Neighbour, "it died"),
            restart(8, Blame::Unknown, "it ended"),
        ];
        let expected = [
            "reach episode 5 starts again: environment 0: it died",
            "reach episodes 4, 6 start again, uncounted, because another episode of the process is to blame: it died",
            "reach episode 8 starts again, with fewer neighbours, because it is not known which episode of the process is to blame: it ended",
        ];
        assert_eq!(restart_messages("reach", &restarts), expected);
    }
}
