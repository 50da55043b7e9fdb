//! Sentences with which files, observations and inputs are refused.

use std::fmt::Display;
use std::path::Path;

use jobs::refusal::Refusal;
use tch::Device;

/// Refuses the file or directory at `path`.
pub(crate) fn refuse(path: &Path, reason: impl Display) -> Refusal {
    Refusal::at(format_args!("`{}`", path.display()), reason)
}

/// Returns a closure for `map_err` after an operation on the file at `path`.
pub(crate) fn in_file<E: Display>(path: &Path) -> impl FnOnce(E) -> Refusal + '_ {
    move |reason| refuse(path, reason)
}

/// Returns a closure for `map_err` after reading the file at `path` as JSON.
pub(crate) fn not_json(path: &Path) -> impl FnOnce(serde_json::Error) -> Refusal + '_ {
    move |err| refuse(path, format_args!("not JSON: {err}"))
}

/// Refuses the value of a field, such as `vision_config.depth`; `wanted` is a clause.
pub(crate) fn field(
    path: &Path,
    field: &str,
    found: impl Display,
    wanted: impl Display,
) -> Refusal {
    refuse(path, format_args!("`{field}` is {found}, {wanted}"))
}

/// Refuses a directory that lacks files.
pub(crate) fn lacks(dir: &Path, wanted: impl Display) -> Refusal {
    Refusal::new(format_args!("`{}` has no {wanted}", dir.display()))
}

/// Refuses a part of an observation, of a prompt or of the network's output: `what` is `found`, and
/// `wanted` is a clause.
pub(crate) fn input(what: impl Display, found: impl Display, wanted: impl Display) -> Refusal {
    Refusal::new(format_args!("{what} is {found}, {wanted}"))
}

/// Refuses a part of an observation that has another size than wanted, in these units.
pub(crate) fn differs(
    what: impl Display,
    [found, wanted]: [usize; 2],
    unit: &str,
) -> Result<(), Refusal> {
    if found == wanted {
        return Ok(());
    }
    let found = format_args!("{found} {unit}");
    Err(input(what, found, format_args!("expected {wanted}")))
}

/// Refuses the weights of a model directory, `bytes` in all, that the device cannot hold.
pub fn no_room(dir: &Path, bytes: u64, device: Device, reason: &str) -> Refusal {
    let device = match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    };
    let reason =
        format_args!("its {bytes} bytes of weights cannot be brought to {device}: {reason}");
    refuse(dir, reason)
}
