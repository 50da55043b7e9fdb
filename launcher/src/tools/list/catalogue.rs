//! Everything that there is to list, and what a name means.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use jobs::policies::PolicyType;
use jobs::refusal::{LIKE_NAME, most_similar};
use jobs::suites::SuiteRow;

use crate::installed;
use crate::node::Node;
use crate::tools::list::environment::ListedEnvironment;
use crate::tools::list::policy;
use crate::tools::list::suite::{self, Suite};
use crate::tools::suite::description;

/// A thing that a job can name.
#[derive(Debug)]
pub(super) enum Listed {
    Environment(ListedEnvironment),
    Policy(PolicyType),
    Suite(Box<Suite>),
    Benchmark(&'static SuiteRow),
}

impl Listed {
    /// Finds what a name means.
    pub(super) fn of(name: &str, all: &Catalogue) -> anyhow::Result<Self> {
        if let Some(environment) = ListedEnvironment::of(name) {
            return Ok(Self::Environment(environment));
        }
        if let Some(policy) = PolicyType::of(name) {
            return Ok(Self::Policy(policy));
        }
        if let Some(path) = all.suite(name) {
            return Ok(Self::Suite(Box::new(Suite::read(path)?)));
        }
        if let Some(benchmark) = SuiteRow::of(name) {
            return Ok(Self::Benchmark(benchmark));
        }
        let names = all.names();
        let hint = most_similar(name, names.iter().map(String::as_str), LIKE_NAME)
            .map(|name| format!(" (did you mean `{name}`?)"))
            .unwrap_or_default();
        anyhow::bail!(
            "there is no environment, policy, suite or benchmark `{name}`{hint}; `rrun list` prints \
             all of them"
        )
    }

    pub(super) fn description(&self) -> String {
        match self {
            Self::Environment(environment) => environment.description(),
            Self::Policy(policy) => policy::description(policy.row()),
            Self::Suite(suite) => suite.description(),
            Self::Benchmark(benchmark) => description(benchmark),
        }
    }
}

/// Everything that there is.
#[derive(Debug)]
pub(super) struct Catalogue {
    pub(super) environments: Vec<ListedEnvironment>,
    /// The files of the suites, sorted by name.
    pub(super) suites: Vec<PathBuf>,
}

impl Catalogue {
    pub(super) fn new() -> io::Result<Self> {
        let folder = installed::suites(&Node::read()?.executable);
        let suites = match &folder {
            Some(folder) => suite::files(folder)?,
            None => Vec::new(),
        };
        Ok(Self {
            environments: ListedEnvironment::all(),
            suites,
        })
    }

    /// Returns the file of a suite.
    fn suite(&self, name: &str) -> Option<&PathBuf> {
        self.suites.iter().find(|path| suite::name(path) == name)
    }

    /// Returns all names, with the other names of policies.
    fn names(&self) -> Vec<String> {
        let rows = PolicyType::ALL.iter().map(|policy| policy.row());
        let policies = rows.flat_map(|row| row.aliases.iter().chain([&row.name]));
        let environments = self.environments.iter().map(ListedEnvironment::name);
        let known = environments.chain(policies.copied()).map(str::to_owned);
        known
            .chain(self.suites.iter().map(|path| suite::name(path)))
            .chain(SuiteRow::all().map(|benchmark| benchmark.name.clone()))
            .collect()
    }

    pub(super) fn text(&self) -> String {
        let environments: Vec<_> = self
            .environments
            .iter()
            .map(|environment| (environment.name().to_owned(), environment.about()))
            .collect();
        let rows = PolicyType::ALL.iter().map(|policy| policy.row());
        let policies: Vec<_> = rows
            .map(|row| (row.name.to_owned(), row.about.to_owned()))
            .collect();
        let suites: Vec<_> = self
            .suites
            .iter()
            .map(|path| (suite::name(path), suite::about(path)))
            .collect();

        let mut text = String::new();
        section(
            &mut text,
            "Environments, `arena_env_args.environment`:",
            &environments,
        );
        section(&mut text, "Policies, `policy_type`:", &policies);
        section(&mut text, "Suites, files for `rrun eval --jobs`:", &suites);
        if suites.is_empty() {
            text.push_str("    none is installed\n\n");
        }
        let benchmarks: Vec<_> = SuiteRow::all()
            .map(|benchmark| (benchmark.name.clone(), benchmark.about.to_owned()))
            .collect();
        section(&mut text, "Benchmarks, for `rrun suite NAME`:", &benchmarks);
        text.push_str(
            "`rrun list NAME` prints arguments, defaults and a job to paste: `rrun list reach`.",
        );
        text
    }
}

/// Appends a section with one line for each name.
fn section(text: &mut String, title: &str, rows: &[(String, String)]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let _ = writeln!(text, "{title}");
    for (name, about) in rows {
        let _ = writeln!(text, "    {name:<width$}  {about}");
    }
    if !rows.is_empty() {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns everything in the source of this crate.
    fn catalogue() -> Catalogue {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites");
        Catalogue {
            environments: ListedEnvironment::all(),
            suites: suite::files(folder.as_ref()).unwrap(),
        }
    }

    #[test]
    fn a_name_means_one_thing() {
        let all = catalogue();
        let mut names = BTreeSet::new();
        for name in all.names() {
            assert!(names.insert(name.clone()), "{name} means two things");
            assert!(Listed::of(&name, &all).is_ok(), "{name}");
        }
        for name in ["reach", "gym", "scripted", "pusht", "behavior"] {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn a_misspelt_name_suggests_the_nearest() {
        let text = |name: &str| Listed::of(name, &catalogue()).unwrap_err().to_string();
        assert_eq!(
            text("puhst"),
            "there is no environment, policy, suite or benchmark `puhst` (did you mean `pusht`?); \
             `rrun list` prints all of them"
        );
        assert!(
            text("xyz").starts_with("there is no environment, policy, suite or benchmark `xyz`; ")
        );
    }

    #[test]
    fn every_thing_has_one_line_in_the_list() {
        let text = catalogue().text();
        for name in Catalogue::names(&catalogue()) {
            let lines = text.lines().filter(|line| {
                let word = line.split_whitespace().next();
                line.starts_with("    ") && word == Some(&name)
            });
            let is_alias = PolicyType::of(&name).is_some_and(|policy| policy.name() != name);
            assert_eq!(lines.count(), usize::from(!is_alias), "{name}: {text}");
        }
    }

    #[test]
    fn without_suites_the_rest_is_listed() {
        let all = Catalogue {
            suites: Vec::new(),
            ..catalogue()
        };
        let text = all.text();
        assert!(
            text.contains("none is installed") && text.contains("scripted"),
            "{text}"
        );
    }
}
