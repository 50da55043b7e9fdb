//! `--rerun K`: runs K episodes of a certificate again on this machine.

use std::path::Path;

use jobs::count::counted;
use jobs::random;
use jobs::table::Table;
use report::EpisodeId;
use report::certificate::sample::{self, probability_of_finding};
use report::certificate::{self, Certificate};
use report::verify::{Findings, rerun};

use crate::tools::paths::PathMapping;
use crate::tools::print;
use crate::tools::rerun::{RerunArgs, RerunRequest, refused};
use crate::tools::verify::certificate::policies;

/// The episodes to run again.
pub(super) struct Again<'a> {
    /// How many.
    pub(super) count: usize,
    /// What chooses them; random if there is none.
    pub(super) seed: Option<String>,
    /// The values of `--policy`.
    pub(super) given: &'a [String],
    /// The values of `--path`.
    pub(super) paths: &'a [PathMapping],
}

impl Again<'_> {
    /// Runs the episodes, prints a table of them, and adds what differs to the findings.
    pub(super) fn run(
        self,
        path: &Path,
        certificate: &Certificate,
        args: &RerunArgs,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => random::hex::<8>()?,
        };
        let chosen = sample::choose(&certificate.contents, self.count, &seed);
        let mut jobs = certificate::jobs_file(certificate);
        for mapping in self.paths {
            mapping.apply(&mut jobs, path)?;
        }
        let places = policies::locate(&jobs, &certificate.contents, self.given, self.paths)?;
        for place in &places {
            place.replace(&mut jobs);
        }
        let whole = certificate::plan_of(certificate, &jobs).map_err(refused)?;
        let again = args.run(&RerunRequest {
            whose: format!("`{}`", path.display()),
            asked: "--rerun",
            plan: &whole,
            chosen: &chosen,
            world_size: certificate.contents.run.world_size,
            machine: &certificate.machine(),
        })?;
        findings
            .wrong
            .extend(policies::differences(&certificate.contents, &again.merged));
        let here = |path: &str| {
            let mut mappings = places.iter().chain(self.paths);
            mappings.find_map(|mapping| mapping.of(path))
        };
        let found = certificate::differences(&certificate.contents, &again.merged, here);
        let before = sample::results(certificate, &chosen);
        let is_same = |one: &EpisodeId| {
            let before = before.get(one);
            before.is_some_and(|it| rerun::difference(it, again.outcomes.get(one)).is_none())
        };
        print(table(&chosen, is_same))?;
        let differences = rerun::differences(&before, &again.outcomes);
        let kept = again.remove_if(found.wrong.is_empty() && differences.is_empty())?;
        findings.wrong.extend(found.wrong);
        findings.notes.extend(found.notes);
        findings.wrong.extend(differences);
        findings.notes.push(format!(
            "run again: {}, chosen by `{seed}`, by {}{kept}",
            counted(chosen.len(), "episode"),
            again.place()
        ));
        findings.notes.push(certainty(certificate, chosen.len()));
        Ok(())
    }
}

fn table(chosen: &[EpisodeId], is_same: impl Fn(&EpisodeId) -> bool) -> String {
    let row = |one: &EpisodeId| {
        let text = if is_same(one) {
            "the same"
        } else {
            "different"
        };
        [one.job.clone(), one.episode.to_string(), text.to_owned()]
    };
    let head = ["Job", "Episode", "Run again"];
    Table::first(head, chosen.iter().map(row), "episode", "").grid()
}

/// Returns how likely it was that a changed certificate would have been found.
fn certainty(certificate: &Certificate, sampled: usize) -> String {
    let episodes = certificate.contents.rates.episodes;
    let found = |changed: u64| probability_of_finding(episodes, changed, sampled as u64) * 100.0;
    let tenth = episodes.div_ceil(10);
    format!(
        "if one of the {episodes} episodes had been changed, this would have found it with a \
         probability of {:.1} %; {tenth} changed ones, with {:.1} %",
        found(1),
        found(tenth)
    )
}
