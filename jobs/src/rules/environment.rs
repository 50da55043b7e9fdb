//! What the arguments of an environment may not say together, and the forms of those that are words
//! of a small language.

use serde_json::{Map, Value};

use crate::settings::kinds::PyName;
use crate::simulators::Simulator;

/// An argument that is refused: its name, and what is wrong as a clause after its value.
pub(super) type Wrong = (&'static str, &'static str);

/// Returns the first argument that no rank would accept; `null` is the same as none. Each has a
/// value of its kind.
pub(super) fn wrong(environment: &str, args: &Map<String, Value>) -> Option<Wrong> {
    let given = |name: &str| args.get(name).filter(|value| !value.is_null());
    let text = |name: &str| given(name).and_then(Value::as_str);
    if let Some(simulator) = Simulator::of(environment) {
        let mut rows = simulator.row().environments.iter();
        let has_object = rows.any(|row| row.name == environment && !row.objects.is_empty());
        if given("object").is_some() && !has_object {
            return Some(("object", "but the task has no object"));
        }
        let limits = given("episode_length_s").and(given("max_episode_steps"));
        let reason = "but `max_episode_steps` already limits the episode, only one of the two is \
                      accepted";
        return limits.map(|_| ("episode_length_s", reason));
    }
    if let Some(wanted) = wanted_name(environment) {
        return Some(("environment", wanted));
    }
    if text("success").is_some_and(|rule| !is_success_rule(rule)) {
        let wanted = "expected `info.<key>`, `is_success`, `terminated` or `reward>=X`";
        return Some(("success", wanted));
    }
    if text("display").is_some_and(|name| !["auto", "none"].contains(&name) && !name.contains(':'))
    {
        let wanted = "expected `auto`, `none` or a display, for example `:1`";
        return Some(("display", wanted));
    }
    let is_vector = environment.starts_with("gym:") && given("vector") == Some(&true.into());
    let reason = "which is for factories: an id of gymnasium makes single copies";
    is_vector.then_some(("vector", reason))
}

/// Returns what is wanted instead of the name of a Python environment, if it has a wrong form.
fn wanted_name(name: &str) -> Option<&'static str> {
    if let Some(id) = name.strip_prefix("gym:") {
        let wanted = "expected an id, for example `gym:Pusher-v5`";
        return id.is_empty().then_some(wanted);
    }
    let dotted = name.rsplit_once('.').filter(|_| !name.contains(':'));
    let named = dotted.map(|(module, factory)| format!("{module}:{factory}"));
    let wanted = "expected `gym:<id>`, `package.module:factory` or `file.py:factory`";
    PyName::of(named.as_deref().unwrap_or(name))
        .is_none()
        .then_some(wanted)
}

fn is_success_rule(rule: &str) -> bool {
    if let Some(number) = rule.strip_prefix("reward>=") {
        return number.trim().parse::<f64>().is_ok_and(f64::is_finite);
    }
    let key = rule.strip_prefix("info.");
    matches!(rule, "is_success" | "terminated") || key.is_some_and(|key| !key.trim().is_empty())
}
