//! Builds the plan of each rank.

pub mod logs;
pub mod nproc;
pub mod numa;
pub mod streams;
pub mod variables;

use crate::cli::{Cli, Environment};
use crate::plan::decide::program::Program;
use crate::plan::decide::ranks::logs::shown_ranks;
use crate::plan::decide::ranks::streams::StreamMap;
use crate::plan::{RankPlan, Streams};

/// The options that differ by rank.
#[derive(Clone, Debug)]
pub struct Ranks {
    first: usize,
    nproc: usize,
    is_virtual: bool,
    shown: Option<Vec<i64>>,
    redirects: StreamMap,
    tee: StreamMap,
}

impl Ranks {
    /// Reads the options that differ by rank, for `nproc` ranks of which the first has the local
    /// rank `first`. With `is_virtual` each sees its own GPU alone.
    ///
    /// # Errors
    /// Returns an error for an invalid list or map.
    pub fn new(cli: &Cli, first: usize, nproc: usize, is_virtual: bool) -> anyhow::Result<Ranks> {
        let shown = shown_ranks(&cli.local_ranks_filter)?;
        let (redirects, tee) = (
            StreamMap::parse(&cli.redirects)?,
            StreamMap::parse(&cli.tee)?,
        );
        Ok(Ranks {
            first,
            nproc,
            is_virtual,
            shown,
            redirects,
            tee,
        })
    }

    /// Returns one plan per rank. With `without_files` no stream goes to a file.
    ///
    /// # Errors
    /// Returns an error for a virtual rank without a GPU.
    pub fn plan(
        &self,
        program: &Program,
        env: &Environment,
        without_files: bool,
    ) -> anyhow::Result<Vec<RankPlan>> {
        let plan = |local_rank| {
            let (redirect, tee) = if without_files {
                (Streams::default(), Streams::default())
            } else {
                self.streams(local_rank)
            };
            Ok(RankPlan {
                local_rank,
                argv: program.argv(local_rank),
                env: variables::of_rank(env, local_rank, self.is_virtual)?,
                redirect,
                tee,
                cpus: None,
                shown: self.is_shown(local_rank),
            })
        };
        (self.first..self.first + self.nproc).map(plan).collect()
    }

    /// Returns the redirected and the teed streams; teed streams also go to a file.
    fn streams(&self, local_rank: usize) -> (Streams, Streams) {
        let tee = self.tee.of(local_rank);
        (self.redirects.of(local_rank).or(tee), tee)
    }

    fn is_shown(&self, local_rank: usize) -> bool {
        let is_meant = |ranks: &Vec<i64>| {
            ranks
                .iter()
                .any(|&rank| usize::try_from(rank) == Ok(local_rank))
        };
        self.shown.as_ref().is_none_or(is_meant)
    }
}
