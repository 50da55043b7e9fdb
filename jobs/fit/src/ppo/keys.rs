//! Names of settings: checks them, and suggests the nearest names for an unknown one.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jobs::config::Override;
use serde_json::Value;

use crate::ppo::PpoError;
use crate::ppo::preset::Preset;
use jobs::similar::most_similar;

/// Known settings that the presets lack: arguments of Brax's `ppo.train`, and the place where
/// s003's examples put `num_timesteps`.
const MORE: &[&str] = &[
    "ppo.num_timesteps",
    "ppo.num_evals",
    "ppo.episode_length",
    "ppo.seed",
    "ppo.gae_lambda",
    "ppo.normalize_advantage",
    "ppo.num_resets_per_eval",
    "ppo.max_devices_per_host",
    "ppo.deterministic_eval",
    "network.activation",
];

/// Number of names that are suggested for an unknown one.
const NEAREST: usize = 3;

/// Similarity above which a name in a file is taken for a misspelled one.
const LIKE: f64 = 0.93;

/// Checks that `set` names an existing or known setting.
pub(super) fn check(config: &Value, set: &Override) -> Result<(), PpoError> {
    let mut known = known();
    collect(config, "", &mut known);
    let name = set.name();
    if known.contains(&name) {
        return Ok(());
    }
    Err(PpoError::Unknown {
        key: name.clone(),
        near: near(&name, &known),
    })
}

/// Returns the unknown names of `ppo` and `network` in a file that resemble a known one.
pub(super) fn doubtful(own: &Value) -> Vec<String> {
    let (known, mut found) = (known(), BTreeSet::new());
    collect(own, "", &mut found);
    let is_ours = |name: &&String| name.starts_with("ppo.") || name.starts_with("network.");
    let doubt = |name: &String| {
        let like = most_similar(name, known.iter().map(String::as_str), LIKE)?;
        Some(format!(
            "unknown setting `{name}` has no effect; did you mean `{like}`?"
        ))
    };
    found
        .iter()
        .filter(is_ours)
        .filter(|name| !known.contains(*name))
        .filter_map(doubt)
        .collect()
}

fn known() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = MORE.iter().map(|name| (*name).to_owned()).collect();
    collect(&Preset::Default.config(), "", &mut known);
    known
}

/// Collects the dotted names of all leaves.
fn collect(value: &Value, name: &str, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let below = if name.is_empty() {
                    key.clone()
                } else {
                    format!("{name}.{key}")
                };
                collect(value, &below, names);
            }
        }
        _ => drop(names.insert(name.to_owned())),
    }
}

/// Formats the nearest names. A known name may also match if `name` is its last part.
fn near(name: &str, known: &BTreeSet<String>) -> String {
    let likeness = |known: &str| {
        let end = known.rsplit('.').next().unwrap_or(known);
        let of_end = strsim::jaro_winkler(end, name.rsplit('.').next().unwrap_or(name));
        let whole = strsim::jaro_winkler(known, name);
        ((whole + of_end) * 1e6) as u64
    };
    let mut all: Vec<&String> = known.iter().collect();
    all.sort_by_key(|known| Reverse(likeness(known)));
    let named: Vec<_> = all
        .into_iter()
        .take(NEAREST)
        .map(|name| format!("`{name}`"))
        .collect();
    format!("the nearest are {}", named.join(", "))
}
