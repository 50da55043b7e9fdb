//! The arguments of environments, and which names are those of environments in Python.

use crate::file::MAX_ENVS;
use crate::policies::{PathTo, Setting, ValueKind};

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
        "as `--measured RUN` has measured",
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

/// Returns whether a name refers to a Python environment: `gym:<id>`, `file.py:factory`,
/// `package.module:factory` or `package.module.factory`. Only Python can tell whether it exists.
pub fn is_python_environment(name: &str) -> bool {
    let is_spec_file = name.ends_with(".yaml") || name.ends_with(".yml");
    !is_spec_file && !name.contains(char::is_whitespace) && name.contains([':', '.'])
}
