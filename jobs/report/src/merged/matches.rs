//! Pairs the episodes of variants with those of their controls. Both have the same numbers and
//! seeds.

use std::collections::HashMap;

use jobs::job::{Job, Variant};

use crate::merged::Merged;
use crate::merged::record::EpisodeRecord;

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
        let controls = &self.lines(variant.control.index).episodes;
        let variants = &self.lines(variant.job.index).episodes;
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
