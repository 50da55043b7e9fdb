//! Compares variants with their controls: each by itself, those of one name over all jobs, and
//! those of a group. Results of different policies are never added up.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jobs::job::{Job, JobIndex, Variant};

use crate::merged::Merged;
use crate::merged::record::EpisodeRecord;
use crate::schema::{JobReport, Report, VariationReport, VariationScope};
use crate::sections::rates::{Policies, only};
use crate::stats::matched::{self, MatchedSet};
use crate::stats::paired::{PairCounts, mean_difference};
use crate::{OrderedMap, OrderedSet};

/// What is added up in one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EntryKey<'a> {
    by: VariationScope,
    policy: usize,
    name: &'a str,
}

/// The pairs of one entry.
#[derive(Default)]
struct EntryTally<'a> {
    counts: PairCounts,
    /// By control job, and number of the episode.
    sets: BTreeMap<(JobIndex, u64), SetTally>,
    controls: BTreeSet<&'a str>,
    variants: BTreeSet<&'a str>,
    groups: BTreeSet<&'a str>,
}

/// A control episode and its variants.
#[derive(Default)]
struct SetTally {
    outcomes: MatchedSet,
    /// Sum of the differences of the returns of variants and control.
    returns: f64,
    /// Sum of the differences of their numbers of steps.
    lengths: f64,
}

/// Returns an entry for each variant of a job, for each variant by name, and for each group.
pub(crate) fn variations(merged: &Merged, policies: &Policies) -> Vec<VariationReport> {
    let variants = merged.variant_jobs();
    let mut entries: OrderedMap<EntryKey, EntryTally> = OrderedMap::default();
    for variant in &variants {
        let pairs = merged.pairs_of(variant);
        for key in keys(variant, policies) {
            entries.entry(key).or_default().add(variant, &pairs);
        }
    }
    // Entries of one kind stay in the order of the jobs file.
    entries.sort_by_key(|key, _| key.by);
    let report = |(key, tally): (&EntryKey, &EntryTally)| tally.report(key, policies);
    entries.iter().map(report).collect()
}

/// Returns the entries that a variant counts in.
fn keys<'a>(variant: &VariantJob<'a>, policies: &Policies) -> Vec<EntryKey<'a>> {
    let policy = policies.of_jobs[variant.job.index.0];
    let key = |by, name| EntryKey { by, policy, name };
    let groups: BTreeSet<&str> = variant.groups().collect();
    let groups = groups.into_iter();
    [
        key(VariationScope::Job, variant.job.name.as_str()),
        key(VariationScope::Variant, variant.variant.name.as_str()),
    ]
    .into_iter()
    .chain(groups.map(|group| key(VariationScope::Group, group)))
    .collect()
}

impl<'a> EntryTally<'a> {
    fn add(&mut self, job: &VariantJob<'a>, pairs: &[EpisodePair]) {
        self.controls.insert(&job.control.name);
        self.variants.insert(&job.variant.name);
        self.groups.extend(job.groups());
        for EpisodePair { control, variant } in pairs {
            let (Some(before), Some(after)) = (control.outcome, variant.outcome) else {
                continue;
            };
            self.counts.add(before.solved, after.solved);
            let key = (job.control.index, control.episode);
            let set = self.sets.entry(key).or_default();
            set.outcomes.control = before.solved;
            set.outcomes.variants += 1;
            set.outcomes.solved += u64::from(after.solved);
            set.returns += variant.return_ - control.return_;
            set.lengths += f64::from(variant.length) - f64::from(control.length);
        }
    }

    fn report(&self, key: &EntryKey, policies: &Policies) -> VariationReport {
        let outcomes: Vec<_> = self.sets.values().map(|set| set.outcomes).collect();
        let rates = matched::rates(&outcomes);
        let mean = |of: &dyn Fn(&SetTally) -> f64| {
            let values = self.sets.values();
            let means = values.map(|set| of(set) / set.outcomes.variants as f64);
            mean_difference(&means.collect::<Vec<_>>())
        };
        let (returns, lengths) = (mean(&|set| set.returns), mean(&|set| set.lengths));
        let (policy_type, path) = policies.named(key.policy);
        VariationReport {
            by: key.by,
            name: key.name.to_owned(),
            control: only(&self.controls).map(str::to_owned),
            variant: only(&self.variants).map(str::to_owned),
            groups: match key.by {
                VariationScope::Group => vec![key.name.to_owned()],
                _ => self.groups.iter().copied().map(str::to_owned).collect(),
            },
            policy_type: policy_type.to_owned(),
            path: path.map(str::to_owned),
            jobs: self.controls.len() as u64,
            variants: self.variants.len() as u64,
            control_episodes: self.sets.len() as u64,
            pairs: self.counts.count(),
            both: self.counts.both,
            only_control: self.counts.only_a,
            only_variant: self.counts.only_b,
            neither: self.counts.neither,
            control_rate: rates.map(|rates| rates.control),
            variant_rate: rates.map(|rates| rates.variant),
            difference: rates.map(|rates| rates.difference),
            interval95: rates.map(|rates| rates.interval95),
            p: matched::p(&outcomes),
            return_difference: returns.map(|found| found.mean),
            return_interval95: returns.and_then(|found| found.interval95),
            length_difference: lengths.map(|found| found.mean),
            length_interval95: lengths.and_then(|found| found.interval95),
        }
    }
}

impl VariationReport {
    /// Returns type and path of its policy.
    pub(crate) fn policy(&self) -> (&str, Option<&str>) {
        (&self.policy_type, self.path.as_deref())
    }
}

impl Report {
    /// Returns whether there are jobs that are not under control.
    pub(crate) fn has_variants(&self) -> bool {
        !self.variations.is_empty()
    }

    /// Returns the jobs under control, in the order of the jobs file. A variant whose control is not
    /// in the plan has nothing to be compared with, and is one of them.
    pub(crate) fn jobs_under_control(&self) -> impl Iterator<Item = &JobReport> {
        let names: BTreeSet<&str> = self.per_job.iter().map(|job| &*job.name).collect();
        self.per_job.iter().filter(move |job| {
            let control = job.variant_of.as_deref();
            control.is_none_or(|control| !names.contains(control))
        })
    }

    /// Returns the policies that have variants, by type and path, in the order of the jobs file.
    pub(crate) fn varied_policies(&self) -> Vec<(&str, Option<&str>)> {
        let policies = self.variations.iter().map(VariationReport::policy);
        policies.collect::<OrderedSet<_>>().into_iter().collect()
    }
}

/// A job that is a variant, and its control.
pub(crate) struct VariantJob<'a> {
    pub(crate) control: &'a Job,
    pub(crate) job: &'a Job,
    pub(crate) variant: &'a Variant,
}

impl<'a> VariantJob<'a> {
    /// Returns the names of its groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &'a str> {
        self.variant.groups.iter().map(String::as_str)
    }
}

/// An episode under control and under a variant.
pub(crate) struct EpisodePair<'a> {
    pub(crate) control: &'a EpisodeRecord,
    pub(crate) variant: &'a EpisodeRecord,
}

impl Merged {
    /// Returns the variants whose control is in the plan, in the order of the plan. With `--only`,
    /// the control may be missing.
    pub(crate) fn variant_jobs(&self) -> Vec<VariantJob<'_>> {
        let jobs = self.plan.jobs.iter();
        let controls = jobs.clone().filter(|job| job.variant.is_none());
        let controls: HashMap<&str, &Job> = controls.map(|job| (job.name.as_str(), job)).collect();
        jobs.filter_map(|job| {
            let variant = job.variant.as_ref()?;
            let control = controls.get(variant.of.as_str())?;
            Some(VariantJob {
                control,
                job,
                variant,
            })
        })
        .collect()
    }

    /// Returns the episodes that both a variant and its control have, in order of number.
    pub(crate) fn pairs_of(&self, variant: &VariantJob) -> Vec<EpisodePair<'_>> {
        let controls = self.episodes(variant.control.index);
        let variants = self.episodes(variant.job.index);
        let pair = |variant| {
            let number = |record: &EpisodeRecord| record.episode;
            let at = controls.binary_search_by_key(&number(variant), number);
            Some(EpisodePair {
                control: &controls[at.ok()?],
                variant,
            })
        };
        variants.iter().filter_map(pair).collect()
    }
}
