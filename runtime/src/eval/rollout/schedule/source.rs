//! The episodes of one build of the environments, and how they are dealt to the environments.

use std::ops::Range;

use jobs::placement::Share;

use crate::eval::lease::Leases;
use crate::eval::rollout::schedule::{NextEpisodes, WaitingEpisodes, deal};

/// The episodes of one build of the environments.
pub enum EpisodeSource<'l> {
    /// A fixed list of episodes.
    These(Vec<u64>),
    /// As many episodes as fit into the job's steps.
    Steps(StepBuild),
    /// The episodes that the rank gets leases for.
    Leased(&'l Leases),
}

/// One build of a job in steps, which takes all steps of the job. How many episodes they make is not
/// known in advance, so the builds take turns with the numbers of episodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBuild {
    /// Number of the build within the job.
    pub number: usize,
    /// Number of builds, at least 1.
    pub of: usize,
}

impl StepBuild {
    /// Returns those of some numbers that are this build's.
    fn own<'l>(self, numbers: impl Iterator<Item = u64> + 'l) -> NextEpisodes<'l> {
        Box::new(numbers.skip(self.number).step_by(self.of))
    }
}

impl<'l> EpisodeSource<'l> {
    /// Returns the episodes for the environments `envs` of `num_envs`. Those of a shared job belong
    /// to environments, so that each environment has the same ones at any number of ranks. Those of
    /// another job go to any free environment.
    pub fn waiting(
        &self,
        envs: Range<usize>,
        num_envs: usize,
        share: Option<Share>,
    ) -> WaitingEpisodes<'l> {
        match (self, share) {
            (Self::Leased(leases), _) => WaitingEpisodes::Leased {
                all: Box::new(leases.numbers()),
                given: Box::new(leases.queued()),
            },
            (Self::Steps(build), None) => {
                WaitingEpisodes::Anyone(build.own(deal(0.., num_envs, envs)))
            }
            (Self::These(episodes), None) => {
                WaitingEpisodes::Anyone(Box::new(deal(episodes.clone(), num_envs, envs)))
            }
            (Self::Steps(build), Some(share)) => {
                let own = |slot| -> NextEpisodes<'l> { build.own(share.numbers(slot)) };
                WaitingEpisodes::Own(envs.map(own).collect())
            }
            (Self::These(episodes), Some(share)) => {
                let own = |slot| -> NextEpisodes<'l> {
                    let is_own = |episode: &u64| share.slot(*episode) == Some(slot);
                    let own: Vec<_> = episodes.iter().copied().filter(is_own).collect();
                    Box::new(own.into_iter())
                };
                WaitingEpisodes::Own(envs.map(own).collect())
            }
        }
    }
}
