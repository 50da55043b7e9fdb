//! `rrun list`: what a job can name, the jobs files that come with `rrun`, and the benchmarks for which
//! `rrun suite` writes them.
//!
//! ```text
//! jobs/src/environments ─────────────► environments ─┐
//! jobs/src/policies ─────────────────► policies      ├─► CatalogueEntry ─► text, JSON
//! jobs/suites/*.json, *.yaml ────────► examples ─────┤
//! jobs/src/suites ───────────────────► suites ───────┘
//! ```
//! Arguments and defaults come from the tables that the parsers use or are tested against, and examples
//! from their files.

mod examples;
mod named;

use std::process::ExitCode;

use jobs::refusal::{Refusal, meant};
use jobs::settings::SettingRow;
use jobs::suites::SuiteRow;
use jobs::table::Table;
use serde::Serialize;
use serde_json::{Value, json};

pub(super) use crate::tools::list::named::simulator;
use crate::tools::print_as;

/// Schema of the output of `--json`.
const SCHEMA: &str = "rrun/list/1";

/// List environments, policies, examples and suites, or describe one of them.
///
/// With a name, prints its settings with their defaults, and a jobs file to start from: `rrun list
/// pusht`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Environment, policy type, example or suite to describe [default: list all]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print everything as JSON (rrun/list/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let all = catalogue()?;
    let entries = match &args.name {
        Some(name) => vec![find(name, all)?],
        None => all,
    };
    let found = json!({"schema": SCHEMA, "entries": entries});
    print_as(args.json, &found, || match args.name {
        Some(_) => entries[0].text(),
        None => overview(&entries),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns everything that there is, in the order of the list.
fn catalogue() -> anyhow::Result<Vec<CatalogueEntry>> {
    let folder = crate::installed::examples()?;
    let mut all = [named::environments(), named::policies()].concat();
    if let Some(folder) = &folder {
        all.extend(examples::all(folder)?);
    }
    all.extend(named::suites(folder.as_deref())?);
    Ok(all)
}

/// Returns what a name means; it may also be the name that a job has for an environment in Python.
fn find(name: &str, all: Vec<CatalogueEntry>) -> Result<CatalogueEntry, Refusal> {
    if let Some(python) = named::python(name) {
        return Ok(python);
    }
    let names = all.iter().flat_map(CatalogueEntry::names);
    let hint = meant(name, names);
    let found = all
        .into_iter()
        .find(|entry| entry.names().any(|one| one == name));
    found.ok_or_else(|| {
        Refusal::new(format_args!(
            "there is no environment, policy, example or suite `{name}`{hint}; `rrun list` prints all \
             of them"
        ))
    })
}

/// Returns one line for each entry, by kind.
fn overview(all: &[CatalogueEntry]) -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        let entries: Vec<_> = all.iter().filter(|entry| entry.kind == kind).collect();
        let width = entries.iter().map(|entry| entry.name.len()).max();
        text += &format!("{}:\n", kind.title());
        for CatalogueEntry { name, about, .. } in &entries {
            text += &format!("    {name:<0$}  {about}\n", width.unwrap_or(0));
        }
        if entries.is_empty() {
            text += "    none is installed\n";
        }
        text.push('\n');
    }
    text + "`rrun list NAME` prints settings, defaults and a job to paste: `rrun list reach`."
}

/// What an entry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Environment,
    Policy,
    /// A jobs file or configuration that comes with `rrun`.
    Example,
    /// A benchmark with the protocol of its authors.
    Suite,
}

impl Kind {
    /// All kinds, in the order of the list.
    const ALL: [Self; 4] = [Self::Environment, Self::Policy, Self::Example, Self::Suite];

    /// Returns the heading of the list.
    fn title(self) -> &'static str {
        match self {
            Self::Environment => "Environments, `arena_env_args.environment`",
            Self::Policy => "Policies, `policy_type`",
            Self::Example => "Examples, files for `rrun eval --jobs`",
            Self::Suite => "Suites, for `rrun suite NAME`",
        }
    }
}

/// A thing that a job can name, or that has jobs.
#[derive(Clone, Debug, Default, Serialize)]
struct CatalogueEntry {
    kind: Kind,
    name: String,
    /// Other names of it.
    aliases: &'static [&'static str],
    /// What it is, in one line.
    about: String,
    /// Its page in the documentation.
    documentation: String,
    /// What else people want to know, by name.
    #[serde(skip)]
    facts: Vec<(&'static str, String)>,
    /// Whether `rrun serve` offers it, of a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_served: Option<bool>,
    /// The protocol, of a suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static SuiteRow>,
    /// What its jobs are.
    jobs: Vec<EntryJob>,
    /// What its jobs need.
    requirements: Vec<Requirement>,
    /// What its settings are, for people.
    #[serde(skip)]
    title_of_settings: String,
    settings: Vec<EntrySetting>,
    /// The command that runs or writes all of its jobs.
    command: Option<String>,
    /// A jobs file with one job.
    example: String,
}

/// A job of an example or a suite.
#[derive(Clone, Debug, Serialize)]
struct EntryJob {
    name: String,
    /// The environment, or the number and name of the task.
    task: String,
    /// How long, by what and how often at once.
    runs: String,
}

/// Something that jobs use and that has to be installed or made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Requirement {
    /// The path, as a job names it.
    pub(super) path: String,
    /// Whether it is there, seen from the working directory.
    pub(super) is_there: bool,
    /// The command that makes it, if there is one.
    pub(super) command: Option<String>,
}

/// A setting of a policy, or an argument of an environment.
#[derive(Clone, Debug, Serialize)]
struct EntrySetting {
    name: String,
    /// Type of the value in JSON; `null` if any value is accepted and has no effect.
    #[serde(rename = "type")]
    json_type: Option<String>,
    values: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    choices: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<f64>,
    is_required: bool,
    /// The default in words; `null` if the setting is required or has no effect.
    default: Option<String>,
    about: String,
    /// The value that a job has.
    #[serde(skip_serializing_if = "Option::is_none")]
    here: Option<Value>,
    #[serde(skip)]
    is_unused: bool,
}

impl CatalogueEntry {
    /// Creates an entry without what only some have.
    fn new(kind: Kind, name: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            about: about.into(),
            ..Self::default()
        }
    }

    /// Returns all names that mean it.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().copied().chain([self.name.as_str()])
    }

    /// Returns everything about it.
    fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.about);
        if !self.aliases.is_empty() {
            text += &format!("also called {}\n", self.aliases.join(", "));
        }
        text.push('\n');
        for (name, fact) in &self.facts {
            text += &format!("{name:<10} {fact}\n");
        }
        if !self.facts.is_empty() {
            text.push('\n');
        }
        if !self.jobs.is_empty() {
            let rows = self.jobs.iter();
            let rows = rows.map(|job| [job.name.clone(), job.task.clone(), job.runs.clone()]);
            text += &format!("{}\n", Table::new(["Job", "Task", "Runs"], rows).grid());
        }
        for needed in self.requirements.iter().filter(|needed| !needed.is_there) {
            text += &format!("{}\n\n", needed.is_missing());
        }
        if !self.settings.is_empty() {
            text += &self.settings();
        }
        if let Some(command) = &self.command {
            text += &format!("All of it: {command}\n\n");
        }
        let (example, page) = (&self.example, &self.documentation);
        text + &format!("A jobs file:\n\n{example}\n\nDocumentation: {page}")
    }

    fn settings(&self) -> String {
        let (unused, used): (Vec<_>, Vec<_>) = self.settings.iter().partition(|one| one.is_unused);
        let value = match used.iter().any(|setting| setting.here.is_some()) {
            true => "Here",
            false => "Value",
        };
        let rows = used.into_iter().map(EntrySetting::row);
        let table = Table::new(["Setting", value, "Default", "Meaning"], rows).grid();
        let mut text = format!("{}:\n\n{table}", self.title_of_settings);
        if !unused.is_empty() {
            let names: Vec<_> = unused.iter().map(|setting| setting.name.as_str()).collect();
            text += &format!("Accepted without an effect: {}\n", names.join(", "));
        }
        text + "\n"
    }
}

impl Requirement {
    /// Returns a sentence about what is not there.
    pub(super) fn is_missing(&self) -> String {
        match &self.command {
            Some(command) => format!("`{}` is missing: {command}", self.path),
            None => format!("`{}` is missing", self.path),
        }
    }
}

impl EntrySetting {
    fn new(setting: &SettingRow) -> Self {
        let (minimum, maximum) = setting.bounds().unzip();
        let words = setting.choices();
        Self {
            name: setting.name.clone(),
            json_type: setting.json_type().map(str::to_owned),
            values: setting.wanted.replace('`', ""),
            choices: words.map(|words| words.into_iter().map(str::to_owned).collect()),
            minimum,
            maximum,
            is_required: setting.is_required,
            default: Some(setting.default.replace('`', "")).filter(|text| !text.is_empty()),
            about: setting.about.replace('`', ""),
            here: None,
            is_unused: setting.is_unused,
        }
    }

    fn row(&self) -> [String; 4] {
        let here = self.here.as_ref().map(Value::to_string);
        let default = match self.is_required {
            true => "required".to_owned(),
            false => self.default.clone().unwrap_or_default(),
        };
        [
            self.name.clone(),
            here.unwrap_or_else(|| self.values.clone()),
            default,
            self.about.clone(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Returns everything in the source of this crate.
    fn all() -> Vec<CatalogueEntry> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites"));
        let mut all = [named::environments(), named::policies()].concat();
        all.extend(examples::all(folder).unwrap());
        all.extend(named::suites(Some(folder)).unwrap());
        all
    }

    #[test]
    fn a_name_means_one_thing() {
        let (all, mut names) = (all(), BTreeSet::new());
        for name in all.iter().flat_map(CatalogueEntry::names) {
            assert!(names.insert(name), "{name} means two things");
            let found = find(name, all.clone()).unwrap();
            assert!(found.names().any(|one| one == name), "{name}");
        }
        for name in ["reach", "gym", "scripted", "pusht", "behavior", "libero_10"] {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn a_misspelt_name_suggests_the_nearest() {
        let text = |name: &str| find(name, all()).unwrap_err().to_string();
        let unknown = "there is no environment, policy, example or suite ";
        let all_of_them = "; `rrun list` prints all of them";
        assert_eq!(
            text("puhst"),
            format!("{unknown}`puhst` (did you mean `pusht`?){all_of_them}")
        );
        assert_eq!(text("xyz"), format!("{unknown}`xyz`{all_of_them}"));
    }

    #[test]
    fn every_thing_has_one_line_in_the_list() {
        let all = all();
        let text = overview(&all);
        for CatalogueEntry { name, .. } in &all {
            let lines = text.lines().filter(|line| {
                line.starts_with("    ") && line.split_whitespace().next() == Some(name)
            });
            assert_eq!(lines.count(), 1, "{name}: {text}");
        }
    }

    #[test]
    fn without_examples_the_rest_is_listed() {
        let text = overview(&named::policies());
        assert!(
            text.contains("none is installed") && text.contains("scripted"),
            "{text}"
        );
    }
}
