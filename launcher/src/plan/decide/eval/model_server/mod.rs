//! The plan of the model server of this node: its GPUs, its program and its folder, checked before
//! anything is started.

use std::path::Path;

use jobs::layout::RunFolder;
use jobs::model_server::{DEVICES_VARIABLE, ModelServer};
use jobs::placement::PlacedProcess;
use jobs::refusal::Refusal;

use crate::cli::Environment;
use crate::node::host;
use crate::plan::decide::program::python::find;
use crate::plan::eval::{EvalPlan, SeatingPlan};
use crate::plan::model_server::{ServerPlan, ServerRole};
use crate::say::note::Note;

fn seen(gpus: usize) -> String {
    if gpus == 1 {
        "GPU 0 alone is".to_owned()
    } else {
        format!("GPUs 0 to {} are", gpus - 1)
    }
}

impl ServerPlan {
    /// Returns the server of `eval`, if there is one, and notes about it. `local_rank` is set if
    /// SLURM has started the rank as a task.
    ///
    /// # Errors
    /// Returns an error if a GPU, the folder or the program does not exist.
    pub fn of(
        eval: &EvalPlan,
        env: &Environment,
        local_rank: Option<usize>,
    ) -> Result<Option<(ServerPlan, Vec<Note>)>, Refusal> {
        let Some(server) = &eval.run.model_server else {
            return Ok(None);
        };
        check_program(server, env)?;
        let mut server = server.clone();
        let mut notes = Vec::new();
        if let Some(devices) = &server.devices {
            let list = env.get(DEVICES_VARIABLE).map(|list| list.to_string_lossy());
            let list = visible(devices, eval.gpus, list.as_deref())?;
            server.env.insert(DEVICES_VARIABLE.to_owned(), list);
        }
        notes.extend(
            caveats(&server, eval.gpus, &eval.seating)
                .into_iter()
                .map(Note::warning),
        );
        let log = RunFolder::new(&eval.output).model_server_log(&host::full_name());
        let role = if local_rank.unwrap_or(0) == 0 {
            ServerRole::Host
        } else {
            ServerRole::Guest
        };
        Ok(Some((ServerPlan { server, log, role }, notes)))
    }
}

/// Checks that its working directory exists, and its program, which is looked up as it will be at
/// the start.
fn check_program(server: &ModelServer, env: &Environment) -> Result<(), Refusal> {
    if let Some(cwd) = server.cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
        return Err(Refusal::at(
            "model_server.cwd",
            format_args!("there is no folder `{}`", cwd.display()),
        ));
    }
    let program = Path::new(&server.command[0]);
    let own_path = server
        .env
        .get("PATH")
        .map(|path| env.clone().with("PATH", path));
    let is_below = program.components().count() > 1 && program.is_relative();
    let place = server
        .cwd
        .as_deref()
        .filter(|_| is_below)
        .map_or(program.to_owned(), |cwd| cwd.join(program));
    match find(place.as_os_str(), own_path.as_ref().unwrap_or(env)) {
        Some(_) => Ok(()),
        None => Err(Refusal::at(
            "model_server.command",
            format_args!("there is no program `{}`", place.display()),
        )),
    }
}

/// Returns its `CUDA_VISIBLE_DEVICES`. `devices` are indices into the GPUs that `rrun` sees, which
/// `list` may have restricted already. Without a GPU the numbers are mere labels.
fn visible(devices: &[usize], gpus: usize, list: Option<&str>) -> Result<String, Refusal> {
    if let Some(&device) = devices.iter().find(|device| gpus > 0 && **device >= gpus) {
        let seen = seen(gpus);
        let reason = format_args!("GPU {device} does not exist, {seen} visible");
        return Err(Refusal::at("model_server.devices", reason));
    }
    let entries: Vec<&str> = list
        .map(|list| list.split(',').map(str::trim).collect())
        .unwrap_or_default();
    let name = |device: &usize| {
        entries
            .get(*device)
            .map_or_else(|| device.to_string(), |entry| (*entry).to_owned())
    };
    Ok(devices.iter().map(name).collect::<Vec<_>>().join(","))
}

/// Returns warnings about GPUs that the server shares with ranks. That is not an error: a machine
/// with one GPU has no alternative, and the memory that a server needs is not known.
fn caveats(server: &ModelServer, gpus: usize, seating: &SeatingPlan) -> Vec<String> {
    let Some(devices) = &server.devices else {
        let note = "model_server has no `devices`: it sees all GPUs, including those of the ranks";
        return if gpus > 0 {
            vec![note.to_owned()]
        } else {
            Vec::new()
        };
    };
    if gpus == 0 && !devices.is_empty() {
        return vec!["model_server has `devices`, but there is no GPU here to check".to_owned()];
    }
    let shared = |device: &usize| {
        let is_on =
            |process: &PlacedProcess| seating.resources.device(process.gpu()) == Some(*device);
        let of = |processes: &[PlacedProcess], what: &str| {
            let numbers = processes
                .iter()
                .enumerate()
                .filter(|(_, process)| is_on(process));
            let numbers: Vec<String> = numbers.map(|(number, _)| number.to_string()).collect();
            (!numbers.is_empty()).then(|| format!("{what} {}", numbers.join(", ")))
        };
        let ranks = of(&seating.placement.rollout, "rank");
        let who = ranks.or_else(|| of(&seating.placement.env, "environment worker"))?;
        Some(format!(
            "GPU {device} is used by the model server and by {who}, which share its memory; \
             --placement, --nproc-per-node or other `devices` separate them"
        ))
    };
    devices.iter().filter_map(shared).collect()
}

#[cfg(test)]
mod tests;
