//! Environments of gymnasium whose episode i is reset with seed `first_seed + i`.

use serde_json::{Map, Value, json};

use crate::suites::Numbers;

/// Returns `arena_env_args` of an environment by its id, with arguments of `gymnasium.make`.
pub(super) fn environment(id: &str, module: &str, numbers: &Numbers, arguments: Value) -> Value {
    let mut all = Map::new();
    all.insert("id".to_owned(), id.into());
    all.insert("module".to_owned(), module.into());
    all.insert("first_seed".to_owned(), numbers.seed.into());
    let steps = numbers.max_episode_steps;
    all.insert("max_episode_steps".to_owned(), steps.into());
    if let Value::Object(arguments) = arguments {
        all.extend(arguments);
    }
    json!({
        "environment": "jobs/suites/simulators/seeded_env.py:make",
        "env_kwargs": all,
    })
}
