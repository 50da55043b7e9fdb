//! `rrun policies`: prints what `jobs/src/policies` knows about each policy type.

use std::fmt::Write as _;
use std::process::ExitCode;

use jobs::policies::{PolicyDescription, PolicyType, Serving};
use jobs::rules::nearest;
use jobs::settings::SettingRow;
use jobs::table::Table;
use serde::Serialize;

use crate::tools::{ToolError, print, print_json};

/// Schema of the output of `rrun policies --json`.
const SCHEMA: &str = "rrun/policies/1";

/// List the policy types with their settings, or describe one of them.
///
/// With a type, prints every setting with its values, default and meaning, and a jobs file to
/// start from.
#[derive(Debug, clap::Args)]
pub(super) struct PoliciesArgs {
    /// Policy type to describe [default: list all]
    #[arg(value_name = "TYPE")]
    policy_type: Option<String>,

    /// Print everything as JSON (rrun/policies/1)
    #[arg(long)]
    json: bool,
}

/// A policy type that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("there is no policy type `{found}`{hint}; expected one of {known}")]
pub(super) struct UnknownType {
    found: String,
    hint: String,
    known: String,
}

impl UnknownType {
    pub(super) fn new(found: &str) -> Self {
        let all = PolicyType::ALL.iter().map(|policy| policy.row());
        let with_aliases: Vec<&str> = all
            .flat_map(|row| row.aliases.iter().chain([&row.name]).copied())
            .collect();
        let hint = nearest(found, &with_aliases)
            .map(|name| format!(" (did you mean `{name}`?)"))
            .unwrap_or_default();
        Self {
            found: found.to_owned(),
            hint,
            known: PolicyType::names().join(", "),
        }
    }
}

pub(super) fn run(args: &PoliciesArgs) -> Result<ExitCode, ToolError> {
    let asked = match &args.policy_type {
        Some(name) => Some(PolicyType::of(name).ok_or_else(|| UnknownType::new(name))?),
        None => None,
    };
    if args.json {
        let policies = asked.map_or_else(|| PolicyType::ALL.to_vec(), |policy| vec![policy]);
        let found = PoliciesJson {
            schema: SCHEMA,
            policies: policies
                .iter()
                .map(|one| PolicyJson::new(one.row()))
                .collect(),
        };
        print_json(&serde_json::to_string_pretty(&found).map_err(std::io::Error::from)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(match asked {
        Some(policy) => description(policy.row()),
        None => list(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The last line of the list.
const HINT: &str = "Defaults are in parentheses. `rrun policies TYPE` describes the settings of one \
                    type, and has an example.";

/// Returns the list of all types.
fn list() -> String {
    let mut text = String::new();
    for row in PolicyType::ALL.iter().map(|policy| policy.row()) {
        let _ = writeln!(text, "{}: {}", row.name, row.about);
        let settings: Vec<String> = effective(row).map(brief).collect();
        for line in wrapped(&settings) {
            let _ = writeln!(text, "    {line}");
        }
        text.push('\n');
    }
    text.push_str(HINT);
    text
}

/// Number of columns of a line of the list.
const WIDTH: usize = 96;

/// Joins words with commas into lines.
fn wrapped(words: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let comma = if index + 1 < words.len() { "," } else { "" };
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() + 2 <= WIDTH => {
                let _ = write!(line, " {word}{comma}");
            }
            _ => lines.push(format!("{word}{comma}")),
        }
    }
    lines
}

/// Returns the name of a setting, with its default in parentheses.
fn brief(setting: &SettingRow) -> String {
    match default(setting).as_str() {
        "" => setting.name.clone(),
        default => format!("{} ({default})", setting.name),
    }
}

/// Returns the settings that have an effect.
fn effective(row: &PolicyDescription) -> impl Iterator<Item = &'static SettingRow> {
    let settings = row.settings().iter();
    settings.filter(|setting| !setting.is_unused)
}

/// Returns the default as documentation says it, without its markup.
pub(super) fn default(setting: &SettingRow) -> String {
    match setting.is_required {
        true => "required".to_owned(),
        false => setting.default.replace('`', ""),
    }
}

/// Returns the values of a setting, as a noun.
pub(super) fn values(setting: &SettingRow) -> String {
    setting.wanted.replace('`', "")
}

/// Returns everything about one type.
pub(super) fn description(row: &PolicyDescription) -> String {
    let mut text = format!("{}: {}\n", row.name, row.about);
    if !row.aliases.is_empty() {
        let _ = writeln!(text, "also called {}", row.aliases.join(", "));
    }
    let rows: Vec<[String; 4]> = effective(row)
        .map(|setting| {
            [
                setting.name.clone(),
                values(setting),
                default(setting),
                setting.about.clone(),
            ]
        })
        .collect();
    let _ = writeln!(text, "\nSettings, in `policy_config_dict`:\n");
    text.push_str(&Table::new(["Setting", "Value", "Default", "Meaning"], rows).grid());
    let unused = row.settings().iter().filter(|setting| setting.is_unused);
    let unused: Vec<String> = unused.map(|setting| setting.name.clone()).collect();
    if !unused.is_empty() {
        let lines = wrapped(&unused).join("\n    ");
        let _ = writeln!(text, "Accepted without an effect:\n    {lines}");
    }
    let _ = write!(
        text,
        "\nA jobs file:\n\n{}\n\nDocumentation: docs/{}",
        jobs_file(row),
        row.page
    );
    text
}

/// Returns the example as a jobs file.
fn jobs_file(row: &PolicyDescription) -> String {
    let job = row.example.replace('\n', "\n  ");
    format!("{{\"jobs\": [\n  {job}\n]}}")
}

#[derive(Debug, Serialize)]
struct PoliciesJson {
    schema: &'static str,
    policies: Vec<PolicyJson>,
}

#[derive(Debug, Serialize)]
pub(super) struct PolicyJson {
    policy_type: &'static str,
    aliases: &'static [&'static str],
    about: &'static str,
    documentation: String,
    is_served: bool,
    settings: Vec<SettingJson>,
    example: String,
}

#[derive(Debug, Serialize)]
pub(super) struct SettingJson {
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
}

impl PolicyJson {
    pub(super) fn new(row: &PolicyDescription) -> Self {
        Self {
            policy_type: row.name,
            aliases: row.aliases,
            about: row.about,
            documentation: format!("docs/{}", row.page),
            is_served: !matches!(row.serving, Serving::Refused(_)),
            settings: row.settings().iter().map(SettingJson::new).collect(),
            example: jobs_file(row),
        }
    }
}

impl SettingJson {
    pub(super) fn new(setting: &SettingRow) -> Self {
        let (minimum, maximum) = setting.bounds().unzip();
        let words = setting.choices();
        Self {
            name: setting.name.clone(),
            json_type: setting.json_type().map(str::to_owned),
            values: values(setting),
            choices: words.map(|words| words.into_iter().map(str::to_owned).collect()),
            minimum,
            maximum,
            is_required: setting.is_required,
            default: Some(setting.default.replace('`', "")).filter(|text| !text.is_empty()),
            about: setting.about.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_joined_into_lines_that_are_not_too_long() {
        let words = vec!["a".repeat(60), "b".repeat(33), "c".to_owned()];
        let lines = wrapped(&words);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].ends_with("b,") && lines[0].len() <= WIDTH,
            "{lines:?}"
        );
        assert_eq!(lines[1], "c");
        assert!(wrapped(&[]).is_empty());
    }

    #[test]
    fn a_misspelt_type_suggests_the_nearest() {
        let text = UnknownType::new("pyhton").to_string();
        assert!(
            text.starts_with("there is no policy type `pyhton` (did you mean `python`?); expected"),
            "{text}"
        );
        let text = UnknownType::new("xyz").to_string();
        assert!(
            text.starts_with("there is no policy type `xyz`; expected one of "),
            "{text}"
        );
    }
}
