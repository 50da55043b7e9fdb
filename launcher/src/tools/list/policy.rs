//! The description of a policy type: its settings, and a job to paste.

use std::fmt::Write as _;

use jobs::policies::{PolicyDescription, PolicyType, Serving};
use jobs::refusal::{LIKE_NAME, Refusal, most_similar};
use jobs::settings::SettingRow;
use jobs::table::Table;
use serde::Serialize;

/// Returns the policy of a name.
///
/// # Errors
/// Refuses an unknown name with the nearest one.
pub(in crate::tools) fn known(name: &str) -> Result<PolicyType, Refusal> {
    PolicyType::of(name).ok_or_else(|| {
        let all = PolicyType::ALL.iter().map(|policy| policy.row());
        let names = all.flat_map(|row| row.aliases.iter().chain([&row.name]).copied());
        match most_similar(name, names, LIKE_NAME) {
            Some(meant) => Refusal::unknown("", "policy type", name, &[meant]),
            None => Refusal::unknown("", "policy type", name, &PolicyType::names()),
        }
    })
}

/// Number of columns of a line.
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
        let refusal = |name| known(name).unwrap_err().to_string();
        assert_eq!(
            refusal("pyhton"),
            "unknown policy type `pyhton`; did you mean `python`?"
        );
        let none = "unknown policy type `xyz`; expected one of zero_action, ";
        assert!(refusal("xyz").starts_with(none), "{}", refusal("xyz"));
    }
}
