//! The one host of Python processes: simulators, policies and trackers each run in one, with our
//! modules beside theirs. It knows no simulator, no policy and no tracker.
//!
//! ```text
//! Worker ══ socket, shared memory ══ rrun_host.py ─► rrun_worker.py, rrun_policy.py, rrun_track.py
//! ```
//!
//! The configuration is in the shared memory when the process starts. Then each side sends packets
//! of a SOCK_SEQPACKET socket, in the machine's byte order; all begin with the same eight bytes:
//!
//! ```text
//! u8 kind │ u8 - │ u16 count │ u32 sequence │ body
//!
//! rank → process   Q  request `sequence`: `count` entries, or JSON
//!                  C  close
//! process → rank   S  a stage of the start: what is being done
//!                  H  what it is, as JSON; from here on requests may come
//!                  N  a note for the user
//!                  A  answer to `sequence`; what is large is in shared memory
//!                  E  request `sequence` failed, and why; the process goes on
//!                  X  the process ends, and why; `count`: the copy to blame, or 0xFFFF; `sequence` 1:
//!                     another process would find the same
//! ```
//! The memory has its size before the first request. Both sides count the places in it in the same
//! way: one part after the other, each at a multiple of 64 bytes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jobs::programs::{self, interpreter_at};
use serde_json::{Value, json};

mod end;
pub mod memory;
mod pre_exec;
mod process;
mod worker;

pub use end::is_readable;
pub use pre_exec::guard;
pub use process::{Cause, Loss, Said};
pub use worker::{Worker, close_all};

/// The process's end of the conversation.
const HOST: Module = ("rrun_host", include_str!("py/rrun_host.py"));

/// Name and text of a Python module.
pub type Module = (&'static str, &'static str);

/// A variable to set, or to remove if it has no value.
pub type Variable = (String, Option<String>);

/// A program of ours in Python.
#[derive(Debug)]
pub struct Program<'a> {
    /// The interpreter.
    pub python: &'a Path,
    /// What `ps` shows.
    pub label: &'a str,
    /// Environment variables that differ from those of this process.
    pub variables: &'a [Variable],
    /// Our modules in the order of their dependencies; the last one has the class `Worker`.
    pub modules: &'a [Module],
    /// What the worker is made with.
    pub config: Value,
    /// Most stages of the start: each may extend it, so a start that never ends needs a limit.
    pub stages: usize,
    /// Time limit for the first stage.
    pub limit: Option<Duration>,
}

impl Program<'_> {
    /// Returns modules and configuration, as the process reads them.
    fn text(&self) -> String {
        let modules: Vec<Module> = [&[HOST], self.modules].concat();
        json!({"modules": modules, "config": self.config}).to_string()
    }
}

/// Reads a variable from JSON: a text, a number, or null to remove it.
///
/// # Errors
/// Returns what is wrong with anything else, as a clause.
pub fn read_variable(name: &str, value: &Value) -> Result<Variable, &'static str> {
    let text = match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => return Err("expected a string, a number or null"),
    };
    let has_nul = text.as_ref().is_some_and(|text| text.contains('\0'));
    if name.is_empty() || name.contains(['=', '\0']) || has_nul {
        return Err("which cannot be an environment variable");
    }
    Ok((name.to_owned(), text))
}

/// Sets a variable that neither a job sets nor this process has.
pub fn set_default(variables: &mut Vec<Variable>, name: &str, value: &str) {
    let is_given = variables.iter().any(|(given, _)| given == name);
    if !is_given && std::env::var_os(name).is_none() {
        variables.push((name.to_owned(), Some(value.to_owned())));
    }
}

/// Finds an interpreter: a name in `PATH`, a path, or the folder of a virtual environment.
///
/// # Errors
/// Returns why there is none, as a clause.
pub fn find_interpreter(name: &str) -> Result<PathBuf, &'static str> {
    let path = interpreter_at(Path::new(name));
    match programs::find(&path, std::env::var_os("PATH").as_deref()) {
        Some(_) => Ok(path),
        None if !programs::has_slash(&path) => Err("and PATH has no such program"),
        None => Err("expected an interpreter or the folder of a venv"),
    }
}
