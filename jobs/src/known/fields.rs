//! The known fields of `arena_env_args` and `variations`, and the nearest one for a misspelled name.
//!
//! A Python environment has a table of fields (docs/own_simulator.md), and any other field is
//! refused. An environment of `rrun-rank` accepts fields that other simulators use, such as
//! `embodiment`; only a name that resembles one of its own fields is refused. Variations replace
//! these fields, so the same goes for them; those of a Python environment are arguments of its
//! factory, which are not known here. A variant that overrides anything else would measure nothing,
//! so it may only override the environment's own arguments.

use serde_json::Map;

use crate::file::MAX_ENVS;
use crate::job::Job;
use crate::policies::{PathTo, Setting, ValueKind};
use crate::similar::most_similar;
use crate::simulators::Simulator;

/// The environment argument that declares its memory.
pub const DECLARED_MEMORY: &str = "env_memory_gb";

/// Arguments of every environment.
pub const COMMON_ARGUMENTS: &[Setting] = &[
    Setting::required(
        "environment",
        ValueKind::Text,
        "expected the name of an environment",
        "the environment",
    ),
    Setting::new(
        "num_envs",
        ValueKind::Whole(1, MAX_ENVS),
        "1",
        "copies of the environment in a rank",
    ),
    Setting::new(
        "enable_cameras",
        ValueKind::Flag,
        "true",
        "whether there are images and videos",
    ),
    Setting::new(
        DECLARED_MEMORY,
        ValueKind::Number(0.0, MOST_GIB),
        "as measured by `rrun fit --probe`",
        "GPU memory of one copy in GiB",
    ),
];

/// Additional arguments of a Python environment.
pub const PYTHON_ARGUMENTS: &[Setting] = &[
    Setting::new(
        "env_kwargs",
        ValueKind::Map("object"),
        "none",
        "arguments of gymnasium.make or the factory",
    ),
    Setting::new(
        "import",
        ValueKind::Texts,
        "none",
        "modules to import first",
    ),
    Setting::new(
        "entry_point",
        ValueKind::Texts,
        "none",
        "further modules to import first",
    ),
    Setting::new(
        "python",
        ValueKind::Path(PathTo::Interpreter),
        "python3",
        "interpreter, or the folder of its venv",
    ),
    Setting::new(
        "envs_per_process",
        ValueKind::Count,
        "1",
        "copies in one process",
    ),
    Setting::new(
        "start_method",
        ValueKind::OneOf(&["forkserver", "spawn"]),
        "forkserver",
        "forkserver: processes share their imports; spawn: each has an interpreter of its own",
    ),
    Setting::new(
        "control_hz",
        ValueKind::Count,
        "render_fps of the environment, else 20",
        "steps per second, the frame rate of videos",
    ),
    Setting::new(
        "max_episode_steps",
        ValueKind::Count,
        "that of the environment",
        "steps after which an episode ends; required if the environment has no limit",
    ),
    Setting::new(
        "success",
        ValueKind::Text,
        "is_success or success in info",
        "when an episode is solved: info.KEY, is_success, terminated or reward>=X (of one step)",
    ),
    Setting::new(
        "mapping",
        ValueKind::MapOrFile,
        "everything, under its own name",
        "names of cameras, states and actions",
    ),
    Setting::new(
        "env",
        ValueKind::Map("object"),
        "none",
        "environment variables of the process; null removes one",
    ),
    Setting::new(
        "display",
        ValueKind::Text,
        "none, or --xvfb",
        "X display: auto (one of its own), none, or a name such as `:1`",
    ),
    Setting::new(
        "recycle_after",
        ValueKind::Count,
        "--recycle-after, else never",
        "episodes after which the process is replaced",
    ),
    Setting::new(
        "pass_episode",
        ValueKind::Flag,
        "false",
        "call reset with the number of the episode",
    ),
    Setting::new(
        "clip_actions",
        ValueKind::Flag,
        "false",
        "clip actions to their range",
    ),
    Setting::new(
        "end_on_success",
        ValueKind::Flag,
        "false",
        "end an episode as soon as it is solved",
    ),
    Setting::new(
        "vector",
        ValueKind::Flag,
        "detected",
        "whether the factory returns a VectorEnv",
    ),
];

/// Fields of every environment.
pub const COMMON: &[&str] = &names::<{ COMMON_ARGUMENTS.len() }>(COMMON_ARGUMENTS);

/// Additional fields of a Python environment.
pub const PYTHON: &[&str] = &names::<{ PYTHON_ARGUMENTS.len() }>(PYTHON_ARGUMENTS);

/// Returns the names of `N` arguments.
const fn names<const N: usize>(arguments: &[Setting]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = arguments[index].name;
        index += 1;
    }
    names
}

/// Fields that Arena sets for every environment, which have no effect here.
pub const ARENAS: &[&str] = &["env_spacing", "placement_seed"];

/// Most memory that an environment may declare, in GiB.
const MOST_GIB: f64 = 1e9;

/// Similarity above which a name is suggested as the nearest.
const NEAR: f64 = 0.8;

/// Similarity above which a name is taken for a misspelled one.
pub(crate) const MISSPELT: f64 = 0.94;

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
        Some(simulator) => simulator.row().fields(),
        None if is_python => PYTHON.to_vec(),
        None => Vec::new(),
    };
    if !is_python && let Some(field) = without_effect(job, &own) {
        return Some(Misspelt {
            field: format!("variations.{field}"),
            hint: hint(most_similar(field, own.iter().copied(), NEAR), &own),
        });
    }
    let known = [COMMON, &own].concat();
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
        if nearest.is_none() && !is_python {
            return None;
        }
        Some(Misspelt {
            field: format!("{object}.{field}"),
            hint: hint(nearest, &known),
        })
    });
    refused.next()
}

/// Returns the first argument that a variant overrides although the environment does not have it.
fn without_effect<'a>(job: &'a Job, own: &[&str]) -> Option<&'a str> {
    job.variant.as_ref()?;
    let mut names = job.variations.keys().map(String::as_str);
    names.find(|name| !own.contains(name))
}

fn hint(nearest: Option<&str>, known: &[&str]) -> String {
    nearest.map_or_else(
        || format!("expected one of {}", known.join(", ")),
        |name| format!("did you mean `{name}`?"),
    )
}

fn is_arenas(field: &str) -> bool {
    ARENAS.contains(&field)
}
