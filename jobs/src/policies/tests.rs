use std::collections::BTreeSet;

use serde_json::json;

use super::*;

#[test]
fn names_and_settings_are_there_once() {
    let mut names = BTreeSet::new();
    for policy in PolicyType::ALL {
        let row = policy.row();
        for name in row.aliases.iter().chain([&row.name]) {
            assert!(names.insert(*name), "{name} is there twice");
            assert_eq!(PolicyType::of(name), Some(*policy));
        }
        let mut settings = BTreeSet::new();
        for setting in row.settings() {
            assert!(
                settings.insert(&setting.name),
                "{}: {} is there twice",
                row.name,
                setting.name
            );
        }
    }
}

/// Checks the settings of a policy: `scripted {"action_horizon": 0}`.
fn checked(given: &str) -> String {
    let (name, config) = given.split_once(' ').unwrap();
    let config: Value = serde_json::from_str(config).unwrap();
    let checked = check(PolicyType::of(name).unwrap(), config.as_object().unwrap());
    checked.map_or_else(|refusal| refusal.to_string(), |()| "accepted".to_owned())
}

#[test]
fn what_a_rank_would_refuse_is_refused_in_the_same_words() {
    rig::cases::check("src/policies/refusals.txt", checked);
}

#[test]
fn a_setting_may_be_in_arenas_file() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = dir.path().join("policy.yaml");
    let config = json!({ YAML: yaml });
    let config = config.as_object().unwrap();
    assert_eq!(
        check(PolicyType::Gr00t, config),
        Ok(()),
        "who looks for files says that it is missing"
    );
    std::fs::write(&yaml, "model_path: a\nvideo_backend: decord\n").unwrap();
    assert_eq!(check(PolicyType::Gr00t, config), Ok(()));
    std::fs::write(&yaml, "model_path: a\ndtype: float64\n").unwrap();
    let text = check(PolicyType::Gr00t, config).unwrap_err().to_string();
    let told = "field dtype: found \"float64\", expected one of bfloat16, float32";
    assert!(text.ends_with(told), "{text}");
}

#[test]
fn settings_of_place_are_those_of_servers() {
    assert!(is_of_place("pi0_remote", "ping_interval"));
    assert!(!is_of_place("pi0_remote", "policy_variant"));
    assert!(is_of_place("scripted", "policy_device"));
    assert!(is_of_place("a policy of later", "remote_host"));
}

/// Returns a page of the documentation.
fn page(name: &str) -> String {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    std::fs::read_to_string(format!("{docs}/{name}")).unwrap()
}

/// Returns a text without its links: `[text](address)` becomes `text`.
fn unlinked(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().replace('[', "");
    for part in parts {
        let (_, rest) = part.split_once(')').unwrap_or(("", part));
        plain.push_str(&rest.replace('[', ""));
    }
    plain
}

/// Returns a row of the table without the link to a page of its own at the end: `: [page](address)`.
fn without_page(row: &str) -> String {
    match row.split_once(": [") {
        Some((about, _)) => format!("{about} |"),
        None => row.to_owned(),
    }
}

#[test]
fn the_table_of_the_documentation_is_that_of_the_rows() {
    let page = page("policy.md");
    let rows = page.lines().skip_while(|line| !line.starts_with("|---"));
    let documented: Vec<String> = rows
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| unlinked(&without_page(line)))
        .collect();
    let wanted = PolicyType::ALL.iter().map(|policy| {
        let row = policy.row();
        format!("| `{}` | {} |", row.name, row.about)
    });
    let (documented, wanted): (BTreeSet<_>, BTreeSet<_>) =
        (documented.into_iter().collect(), wanted.collect());
    assert_eq!(documented, wanted);
}

#[test]
fn every_setting_with_an_effect_is_documented() {
    let kinds = [
        "exported_policy",
        "lerobot_policy",
        "policy",
        "python_policy",
    ];
    let names = kinds
        .iter()
        .chain(&["evaluate", "remote-policies", "vision-language-agents"]);
    let text: String = names.map(|name| page(&format!("{name}.md"))).collect();
    for row in PolicyType::ALL.iter().map(|policy| policy.row()) {
        let settings = row.settings().iter();
        for setting in settings.filter(|setting| !setting.is_unused) {
            let is_there = ["`", "\""].map(|quote| format!("{quote}{}{quote}", setting.name));
            assert!(
                is_there.iter().any(|name| text.contains(name)),
                "{}: no page has {}",
                row.name,
                setting.name
            );
        }
    }
}
