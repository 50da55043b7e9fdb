//! `--rerun K`: runs K episodes of a certificate again on this machine.

use std::path::Path;

use jobs::count::counted;
use jobs::random;
use jobs::table::Table;
use report::certificate::sample::{self, probability_of_finding};
use report::certificate::{self, Certificate, RepeatedEpisode};
use report::verify::Findings;

use crate::tools::paths::PathMapping;
use crate::tools::rerun::{self, CertifiedRequest, RerunArgs};
use crate::tools::verify::certificate::policies;
use crate::tools::{ToolError, print};

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
    ) -> Result<(), ToolError> {
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
        let whole = certificate::plan_of(certificate, &jobs).map_err(rerun::refused)?;
        let (again, episodes) = args.run_certified(CertifiedRequest {
            certificate,
            plan: &whole,
            chosen: &chosen,
            whose: format!("`{}`", path.display()),
            asked: "--rerun",
        })?;
        let merged = again.merged()?;
        findings
            .wrong
            .extend(policies::differences(&certificate.contents, &merged));
        let here = |path: &str| {
            let mut mappings = places.iter().chain(self.paths);
            mappings.find_map(|mapping| mapping.of(path))
        };
        let found = certificate::differences(&certificate.contents, &merged, here);
        let differs = !found.wrong.is_empty();
        findings.wrong.extend(found.wrong);
        findings.notes.extend(found.notes);
        let differences: Vec<_> = episodes
            .iter()
            .map(|one| difference(certificate, one))
            .collect();
        print(table(&episodes, &differences))?;
        let told = episodes.iter().zip(&differences);
        let wrong = told.filter_map(|(one, difference)| {
            let difference = difference.as_ref()?;
            Some(format!("{}: episode {} {difference}", one.job, one.episode))
        });
        findings.wrong.extend(wrong);
        let kept = again.remove_if(!differs && differences.iter().all(Option::is_none))?;
        findings.notes.push(format!(
            "run again: {}, chosen by `{seed}`, by {}{kept}",
            counted(episodes.len(), "episode"),
            again.place()
        ));
        findings.notes.push(certainty(certificate, episodes.len()));
        Ok(())
    }
}

/// Returns in what an episode differs from the certificate.
fn difference(certificate: &Certificate, one: &RepeatedEpisode) -> Option<String> {
    let before = certificate.episode(&one.job, one.episode)?;
    match &one.again {
        None => Some("did not finish when it was run again".to_owned()),
        Some(again) => before
            .difference(again)
            .map(|difference| format!("had a different result: {difference}")),
    }
}

fn table(episodes: &[RepeatedEpisode], differences: &[Option<String>]) -> String {
    let row = |(one, difference): (&RepeatedEpisode, &Option<String>)| {
        let text = match difference {
            None => "the same",
            Some(_) => "different",
        };
        [one.job.clone(), one.episode.to_string(), text.to_owned()]
    };
    let rows = episodes.iter().zip(differences).map(row);
    Table::first(["Job", "Episode", "Run again"], rows, "episode", "").grid()
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
