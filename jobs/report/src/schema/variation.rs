//! The entries of a report about variants: control and variants on the same episodes.

use serde::{Deserialize, Serialize};

/// What an entry of `variations` sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariationScope {
    /// One variant of one job.
    Job,
    /// The variants of one name, over all jobs with the same policy.
    Variant,
    /// All variants of a group, over all jobs with the same policy.
    Group,
}

/// Variants, compared with their controls episode by episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariationReport {
    /// Whether it is about a job, a variant or a group.
    pub by: VariationScope,
    /// Name of the variant's job, of the variant, or of the group.
    pub name: String,
    /// Name of the control job; `null` if there are several.
    pub control: Option<String>,
    /// Name of the variant; `null` if there are several.
    pub variant: Option<String>,
    /// Groups of the variant; those of a group are the group itself.
    pub groups: Vec<String>,
    /// Policy type.
    pub policy_type: String,
    /// Path that the policy was read from, if known.
    pub path: Option<String>,
    /// Number of control jobs.
    pub jobs: u64,
    /// Number of variants, by name.
    pub variants: u64,
    /// Number of control episodes with at least one partner. An episode that ended with an error
    /// has no partner.
    pub control_episodes: u64,
    /// Number of pairs of a control episode and a variant's.
    pub pairs: u64,
    /// Number of pairs in which both were solved.
    pub both: u64,
    /// Number of pairs in which only the control was solved.
    pub only_control: u64,
    /// Number of pairs in which only the variant was solved.
    pub only_variant: u64,
    /// Number of pairs in which neither was solved.
    pub neither: u64,
    /// Share of the control episodes that were solved.
    pub control_rate: Option<f64>,
    /// Share of the variants of a control episode that were solved, mean over the control episodes.
    pub variant_rate: Option<f64>,
    /// `variant_rate − control_rate`.
    pub difference: Option<f64>,
    /// Interval of `difference` at 95 %, see [`crate::stats::matched`].
    pub interval95: Option<[f64; 2]>,
    /// Two-sided p-value of the hypothesis that the variants are as hard as the control; `null` if
    /// no outcome differs.
    pub p: Option<f64>,
    /// Difference of the sums of rewards, mean over the control episodes.
    pub return_difference: Option<f64>,
    /// Its interval at 95 %, by Student's t-distribution; `null` for a single control episode.
    pub return_interval95: Option<[f64; 2]>,
    /// Difference of the numbers of steps, mean over the control episodes.
    pub length_difference: Option<f64>,
    /// Its interval at 95 %, by Student's t-distribution; `null` for a single control episode.
    pub length_interval95: Option<[f64; 2]>,
}
