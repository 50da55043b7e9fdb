//! Which rank of this node is meant. Messages, events, reports and log files name ranks by this.

/// A rank of this node in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankId {
    /// Index among the ranks that this launcher starts; with one SLURM task per rank always 0.
    pub index: usize,
    /// Value of `LOCAL_RANK`.
    pub local: usize,
    /// Value of `RANK`, which users and other nodes know.
    pub global: usize,
}
