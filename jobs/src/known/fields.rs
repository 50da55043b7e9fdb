//! The known fields of `arena_env_args` and `variations`, and the nearest one for a misspelled name.
//!
//! A Python environment has a table of fields (docs/own_simulator.md), and any other field is
//! refused. An environment of `rrun-rank` accepts fields that other simulators use, such as
//! `embodiment`; only a name that resembles one of its own fields is refused. Variations replace
//! these fields, so the same goes for them; those of a Python environment are arguments of its
//! factory, which are not known here.

use serde_json::Map;

use crate::job::Job;
use crate::similar::most_similar;
use crate::simulators::Simulator;

/// The environment argument that declares its memory.
pub const DECLARED_MEMORY: &str = "env_memory_gb";

/// Fields of every environment.
pub const COMMON: &[&str] = &["environment", "num_envs", "enable_cameras", DECLARED_MEMORY];

/// Additional fields of a Python environment.
pub const PYTHON: &[&str] = &[
    "env_kwargs",
    "import",
    "entry_point",
    "python",
    "envs_per_process",
    "control_hz",
    "max_episode_steps",
    "success",
    "mapping",
    "env",
    "display",
    "recycle_after",
    "pass_episode",
    "clip_actions",
    "end_on_success",
    "vector",
];

/// Fields that Arena sets for every environment, which have no effect here.
pub const ARENAS: &[&str] = &["env_spacing", "placement_seed"];

/// Similarity above which a name is suggested as the nearest.
const NEAR: f64 = 0.8;

/// Similarity above which a name is taken for a misspelled one.
const MISSPELT: f64 = 0.94;

/// A field without effect that was probably meant to have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misspelt {
    /// The field as written, with the object that it is in: `variations.ligth_intensity`.
    pub(super) field: String,
    /// The nearest name or all of them, as a clause.
    pub(super) hint: String,
}

/// Returns the first unknown field of a job's environment, if that is a reason to refuse it.
pub(super) fn misspelt(job: &Job, is_python: bool) -> Option<Misspelt> {
    let simulator = Simulator::of(&job.environment);
    let own = match simulator {
        Some(simulator) => simulator.row().fields,
        None if is_python => PYTHON,
        None => &[],
    };
    let known = [COMMON, own].concat();
    let threshold = if is_python { NEAR } else { MISSPELT };
    let variations = (!is_python).then_some(&job.variations);
    let objects = [
        ("arena_env_args", Some(&job.env_args)),
        ("variations", variations),
    ];
    let fields = objects.into_iter().flat_map(|(object, fields)| {
        fields
            .into_iter()
            .flat_map(Map::keys)
            .map(move |field| (object, field))
    });
    let unknown = fields.filter(|(_, field)| !known.contains(&field.as_str()) && !is_arenas(field));
    let mut refused = unknown.filter_map(|(object, field)| {
        let nearest = most_similar(field, known.iter().copied(), threshold);
        let hint = match nearest {
            Some(name) => format!("did you mean `{name}`?"),
            None if is_python => format!("expected one of {}", known.join(", ")),
            None => return None,
        };
        Some(Misspelt {
            field: format!("{object}.{field}"),
            hint,
        })
    });
    refused.next()
}

fn is_arenas(field: &str) -> bool {
    ARENAS.contains(&field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hint(environment: &str, field: &str) -> Option<String> {
        let mut args = json!({"environment": environment});
        args[field] = Value::from(4);
        let entry =
            json!({"name": "a", "arena_env_args": args, "policy_type": "p", "num_episodes": 1});
        let job = crate::file::parse(&json!({"jobs": [entry]}))
            .unwrap()
            .remove(0);
        misspelt(&job, environment.contains(':')).map(|found| found.hint)
    }

    #[test]
    fn a_misspelt_field_is_refused_with_the_nearest() {
        for environment in ["reach", "gym:Pusher-v5"] {
            for (written, meant) in [("num_env", "num_envs"), ("env_memory_gib", "env_memory_gb")] {
                assert_eq!(
                    hint(environment, written),
                    Some(format!("did you mean `{meant}`?")),
                    "{environment}"
                );
            }
        }
        assert_eq!(
            hint("push", "camera_heigth").unwrap(),
            "did you mean `camera_height`?"
        );
        assert_eq!(
            hint("gym:a", "env_kwarg").unwrap(),
            "did you mean `env_kwargs`?"
        );
    }

    #[test]
    fn what_other_simulators_have_use_for_is_kept() {
        for field in [
            "embodiment",
            "hdr",
            "env_spacing",
            "teleop_device",
            "background",
            "objects_list",
            "num_objects",
        ] {
            assert_eq!(hint("reach", field), None, "{field}");
        }
        assert!(
            hint("gym:a", "hdr")
                .unwrap()
                .starts_with("expected one of environment, num_envs")
        );
        assert_eq!(hint("gym:a", "env_spacing"), None);
    }
}
