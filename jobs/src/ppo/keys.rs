//! Names of settings: those that are known, and the nearest ones to one that is not.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde_json::Value;

use super::PpoError;
use super::preset::Preset;
use crate::config::Override;

/// Settings beside those of the presets: arguments of Brax's `ppo.train`, and where s003's snippets put `num_timesteps`.
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

/// Names that are told beside one that is not known.
const NEAREST: usize = 3;

/// Likeness above which a name in a file is taken for a misspelt one.
const LIKE: f64 = 0.93;

/// Whether `set` names something that is there or known.
pub(super) fn check(config: &Value, set: &Override) -> Result<(), PpoError> {
    let mut known = known();
    collect(config, "", &mut known);
    let name = set.name();
    if known.contains(&name) {
        return Ok(());
    }
    Err(PpoError::Unknown { key: name.clone(), near: near(&name, &known) })
}

/// Names of `ppo` and `network` in a file that nobody knows and that are like one that is known.
pub(super) fn doubtful(own: &Value) -> Vec<String> {
    let (known, mut found) = (known(), BTreeSet::new());
    collect(own, "", &mut found);
    let is_ours = |name: &&String| name.starts_with("ppo.") || name.starts_with("network.");
    let doubt = |name: &String| {
        let likeness = |known: &str| strsim::jaro_winkler(known, name);
        let like =
            known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|like| likeness(like) > LIKE)?;
        Some(format!("`{name}` is not known and has no effect here; did you mean `{like}`?"))
    };
    found.iter().filter(is_ours).filter(|name| !known.contains(*name)).filter_map(doubt).collect()
}

fn known() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = MORE.iter().map(|name| (*name).to_owned()).collect();
    collect(&Preset::Default.config(), "", &mut known);
    known
}

/// Dotted names of everything that is no mapping.
fn collect(value: &Value, name: &str, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let below = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                collect(value, &below, names);
            }
        }
        _ => drop(names.insert(name.to_owned())),
    }
}

/// The nearest names, of which the best may be the whole of which `name` is the end.
fn near(name: &str, known: &BTreeSet<String>) -> String {
    let likeness = |known: &str| {
        let end = known.rsplit('.').next().unwrap_or(known);
        let of_end = strsim::jaro_winkler(end, name.rsplit('.').next().unwrap_or(name));
        let whole = strsim::jaro_winkler(known, name);
        ((whole + of_end) * 1e6) as u64
    };
    let mut all: Vec<&String> = known.iter().collect();
    all.sort_by_key(|known| Reverse(likeness(known)));
    let named: Vec<_> = all.into_iter().take(NEAREST).map(|name| format!("`{name}`")).collect();
    format!("the nearest are {}", named.join(", "))
}
