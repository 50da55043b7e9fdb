//! A thing in the list, as people and programs are told of it.

use jobs::settings::SettingRow;
use jobs::suites::SuiteRow;
use jobs::table::Table;
use serde::Serialize;
use serde_json::Value;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Environment,
    Policy,
    /// A jobs file or configuration that comes with `rrun`.
    Example,
    /// A benchmark with the protocol of its authors.
    Suite,
}

impl Kind {
    /// All kinds, in the order of the list.
    pub(super) const ALL: [Self; 4] = [Self::Environment, Self::Policy, Self::Example, Self::Suite];

    /// Returns the heading of the list.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Environment => "Environments, `arena_env_args.environment`",
            Self::Policy => "Policies, `policy_type`",
            Self::Example => "Examples, files for `rrun eval --jobs`",
            Self::Suite => "Suites, for `rrun suite NAME`",
        }
    }
}

/// A thing that a job can name, or that has jobs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CatalogueEntry {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// Other names of it.
    pub(super) aliases: &'static [&'static str],
    /// What it is, in one line.
    pub(super) about: String,
    /// Its page in the documentation.
    pub(super) documentation: String,
    /// What else people want to know, by name.
    #[serde(skip)]
    pub(super) facts: Vec<(&'static str, String)>,
    /// Whether `rrun serve` offers it, of a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) is_served: Option<bool>,
    /// The protocol, of a suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<&'static SuiteRow>,
    /// What its jobs are.
    pub(super) jobs: Vec<EntryJob>,
    /// What its jobs need.
    pub(super) requirements: Vec<Requirement>,
    /// What its settings are, for people.
    #[serde(skip)]
    pub(super) title_of_settings: String,
    pub(super) settings: Vec<EntrySetting>,
    /// The command that runs or writes all of its jobs.
    pub(super) command: Option<String>,
    /// A jobs file with one job.
    pub(super) example: String,
}

/// A job of an example or a suite.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EntryJob {
    pub(super) name: String,
    /// The environment, or the number and name of the task.
    pub(super) task: String,
    /// How long, by what and how often at once.
    pub(super) runs: String,
}

/// Something that jobs use and that has to be installed or made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::tools) struct Requirement {
    /// The path, as a job names it.
    pub(in crate::tools) path: String,
    /// Whether it is there, seen from the working directory.
    pub(in crate::tools) is_there: bool,
    /// The command that makes it, if there is one.
    pub(in crate::tools) command: Option<String>,
}

/// A setting of a policy, or an argument of an environment.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EntrySetting {
    pub(super) name: String,
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
    pub(super) here: Option<Value>,
    #[serde(skip)]
    is_unused: bool,
}

impl CatalogueEntry {
    /// Creates an entry without what only some have.
    pub(super) fn new(kind: Kind, name: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            aliases: &[],
            about: about.into(),
            documentation: String::new(),
            facts: Vec::new(),
            is_served: None,
            protocol: None,
            jobs: Vec::new(),
            requirements: Vec::new(),
            title_of_settings: String::new(),
            settings: Vec::new(),
            command: None,
            example: String::new(),
        }
    }

    /// Returns all names that mean it.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().copied().chain([self.name.as_str()])
    }

    /// Returns everything about it.
    pub(super) fn text(&self) -> String {
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
    pub(in crate::tools) fn is_missing(&self) -> String {
        match &self.command {
            Some(command) => format!("`{}` is missing: {command}", self.path),
            None => format!("`{}` is missing", self.path),
        }
    }
}

impl EntrySetting {
    pub(super) fn new(setting: &SettingRow) -> Self {
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
