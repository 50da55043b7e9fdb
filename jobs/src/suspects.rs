//! Finds the episodes that may have killed a rank: those that were running when it
//! died. It is pure.
//!
//! ```text
//! deaths while it was running     0 ─► as usual
//!                                 1 ─► alone, so that the next death names the culprit
//!                        2 alone, 3 ─► an error, so that the rank can continue with the rest
//! ```
//! If a rank reports that its hardware failed, no episode is to blame.
//!
//! Only deaths within the current launch count, because the launcher saw them and restarted the
//! rank. A power failure, or a user who kills everything, says nothing about an episode.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::job::JobIndex;
use crate::journal::Line;

/// Number of deaths after which an episode is given up.
const DEATHS: u32 = 3;

/// Number of deaths while the episode ran alone after which it is given up.
const DEATHS_ALONE: u32 = 2;

/// How an episode is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Together with other episodes.
    Usual,
    /// With no other episode running.
    Alone,
    /// Not again, after this many deaths.
    GivenUp(u32),
}

/// An episode that may have killed its rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// Job of the episode.
    pub job_index: JobIndex,
    /// Number of the episode within the job.
    pub episode: u64,
    /// Number of deaths while it was running.
    pub deaths: u32,
    /// Number of those while it ran alone.
    pub deaths_alone: u32,
}

/// The deaths that each episode is suspected of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    suspects: BTreeMap<(JobIndex, u64), Suspect>,
}

impl Suspects {
    /// Adds the lines of one journal, in their order.
    pub fn add<'a>(&mut self, journal: impl IntoIterator<Item = &'a Line>) {
        let mut launch = Suspects::default();
        let mut under_way: BTreeMap<(JobIndex, u64), bool> = BTreeMap::new();
        let mut has_ended = true;
        for line in journal {
            match line {
                Line::Rank(start) => {
                    let before = std::mem::take(&mut under_way);
                    if start.restart == 0 {
                        launch = Suspects::default();
                    } else if !has_ended {
                        for ((job, episode), alone) in before {
                            let suspect = launch.suspect(job, episode);
                            suspect.deaths += 1;
                            suspect.deaths_alone += u32::from(alone);
                        }
                    }
                    has_ended = false;
                }
                Line::RankEnd(end) => has_ended = end.failure.is_none() || end.is_hardware,
                Line::EpisodeStart(start) => {
                    under_way.insert((start.job_index, start.episode), start.alone);
                }
                Line::Episode(episode) => {
                    under_way.remove(&(episode.job_index, episode.episode));
                }
                Line::EnvLost(lost) => {
                    under_way.remove(&(lost.job_index, lost.episode));
                }
                Line::JobEnd(end) => under_way.retain(|(job, _), _| *job != end.job_index),
                Line::JobStart(_) | Line::PolicyFiles(_) | Line::Decision(_) => {}
            }
        }
        self.include(&launch);
    }

    /// Adds the deaths of other journals.
    pub fn include(&mut self, others: &Self) {
        for other in others.suspects.values() {
            let known = self.suspect(other.job_index, other.episode);
            known.deaths = known.deaths.saturating_add(other.deaths);
            known.deaths_alone = known.deaths_alone.saturating_add(other.deaths_alone);
        }
    }

    /// Returns the episodes with their deaths, to send them to another rank.
    pub fn list(&self) -> Vec<Suspect> {
        self.suspects.values().copied().collect()
    }

    /// Reads what [`Suspects::list`] has returned.
    pub fn from_list(suspects: &[Suspect]) -> Self {
        let entry = |suspect: &Suspect| ((suspect.job_index, suspect.episode), *suspect);
        Self {
            suspects: suspects.iter().map(entry).collect(),
        }
    }

    /// Returns how an episode is to be run.
    pub fn standing(&self, job: JobIndex, episode: u64) -> Treatment {
        match self.suspects.get(&(job, episode)) {
            None => Treatment::Usual,
            Some(one) if one.deaths >= DEATHS || one.deaths_alone >= DEATHS_ALONE => {
                Treatment::GivenUp(one.deaths)
            }
            Some(_) => Treatment::Alone,
        }
    }

    /// Returns the episodes of a job that are not to be run as usual.
    pub fn of(&self, job: JobIndex) -> BTreeSet<u64> {
        self.suspects
            .keys()
            .filter(|(other, _)| *other == job)
            .map(|(_, episode)| *episode)
            .collect()
    }

    /// Returns the suspect that an episode is, without deaths if it was none so far.
    fn suspect(&mut self, job_index: JobIndex, episode: u64) -> &mut Suspect {
        let none = Suspect {
            job_index,
            episode,
            ..Suspect::default()
        };
        self.suspects.entry((job_index, episode)).or_insert(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{EpisodeStart, RankEnd, RankStart};

    const JOB: JobIndex = JobIndex(0);

    fn life(restart: u32) -> Line {
        Line::Rank(Box::new(RankStart {
            restart,
            ..RankStart::default()
        }))
    }

    fn began(episode: u64, alone: bool) -> Line {
        Line::EpisodeStart(EpisodeStart {
            episode,
            alone,
            ..EpisodeStart::default()
        })
    }

    fn standing(lines: &[Line]) -> [Treatment; 2] {
        let mut suspects = Suspects::default();
        suspects.add(lines);
        [0, 1].map(|episode| suspects.standing(JOB, episode))
    }

    #[test]
    fn who_was_under_way_at_a_death_runs_alone() {
        let lines = [life(0), began(0, false), began(1, false), life(1)];
        assert_eq!(standing(&lines), [Treatment::Alone, Treatment::Alone]);
        assert_eq!(
            standing(&lines[..3]),
            [Treatment::Usual, Treatment::Usual],
            "nobody has died yet"
        );
    }

    #[test]
    fn two_deaths_alone_or_three_in_all_are_enough() {
        let alone = [life(0), began(0, true), life(1), began(0, true), life(2)];
        assert_eq!(standing(&alone)[0], Treatment::GivenUp(2));
        let beside = [
            life(0),
            began(0, false),
            life(1),
            began(0, false),
            life(2),
            began(0, false),
            life(3),
        ];
        assert_eq!(standing(&beside)[0], Treatment::GivenUp(3));
        assert_eq!(standing(&beside[..5])[0], Treatment::Alone);
    }

    #[test]
    fn an_orderly_end_and_another_launch_say_nothing() {
        let end = || Line::RankEnd(RankEnd::default());
        let found = standing(&[life(0), began(0, false), end(), life(1)])[0];
        assert_eq!(found, Treatment::Usual);
        let shown = standing(&[life(0), began(0, false), life(1), began(0, false), life(0)])[0];
        assert_eq!(shown, Treatment::Usual);
    }

    #[test]
    fn a_gpu_that_fails_blames_no_episode_but_a_kernel_that_fails_does() {
        let end = |is_hardware| {
            let failure = Some("cuda:0 is lost to this process".to_owned());
            Line::RankEnd(RankEnd {
                failure,
                is_hardware,
                ..RankEnd::default()
            })
        };
        let found = standing(&[life(0), began(0, false), end(true), life(1)])[0];
        assert_eq!(found, Treatment::Usual);
        let shown = standing(&[life(0), began(0, false), end(false), life(1)])[0];
        assert_eq!(shown, Treatment::Alone);
    }

    #[test]
    fn what_has_ended_was_not_under_way() {
        let job_end = Line::JobEnd(Box::default());
        let found = standing(&[life(0), began(0, false), job_end, life(1)])[0];
        assert_eq!(found, Treatment::Usual);
    }

    #[test]
    fn deaths_of_several_ranks_add_up() {
        let mut suspects = Suspects::default();
        for _ in 0..3 {
            suspects.add(&[life(0), began(0, false), life(1)]);
        }
        assert_eq!(suspects.standing(JOB, 0), Treatment::GivenUp(3));
        assert_eq!(suspects.of(JOB), BTreeSet::from([0]));
    }
}
