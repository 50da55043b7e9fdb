//! Frames of Python functions.

use std::panic::catch_unwind;

use py_spy::PythonSpy;
use py_spy::config::{Config, LockingStrategy};

use crate::maps::Mapping;

/// Attempts to read the frames of a process that goes on meanwhile.
const ATTEMPTS: u64 = 5;

/// Frames beyond this number are left out.
const MAX_FRAMES: usize = 256;

/// The Python frames of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonThread {
    /// Its thread id; `None` below Python 3.11, which does not keep it.
    pub tid: Option<i32>,
    /// The name that Python gave it.
    pub name: Option<String>,
    /// Whether it holds the interpreter lock (GIL).
    pub holds_lock: bool,
    /// Its frames, innermost first.
    pub frames: Vec<PythonFrame>,
}

/// A call of a Python function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// Its name.
    pub function: String,
    /// Path of its source file.
    pub file: String,
    /// The line that is executed.
    pub line: i32,
}

/// Returns whether the process runs Python, by its own file and its libraries.
pub fn is_python(mappings: &[Mapping]) -> bool {
    mappings
        .iter()
        .filter_map(|mapping| mapping.path.file_name()?.to_str())
        .any(|name| name.starts_with("python") || name.starts_with("libpython"))
}

/// Reads the Python frames of all threads of `pid`.
///
/// # Errors
///
/// Returns why they cannot be read, in words.
pub fn threads(pid: i32) -> Result<Vec<PythonThread>, String> {
    let config = Config {
        blocking: LockingStrategy::NonBlocking,
        full_filenames: true,
        ..Config::default()
    };
    // It reads structures of a foreign process that goes on meanwhile, and this is not worth a
    // launch if it goes wrong.
    let read = catch_unwind(|| {
        let mut spy = PythonSpy::retry_new(pid, &config, ATTEMPTS)?;
        spy.get_stack_traces()
    });
    match read {
        Ok(Ok(traces)) => Ok(traces.into_iter().map(PythonThread::from).collect()),
        Ok(Err(err)) => Err(format!("its Python frames cannot be read: {err:#}")),
        Err(_) => Err("its Python frames cannot be read".to_owned()),
    }
}

impl From<py_spy::StackTrace> for PythonThread {
    fn from(trace: py_spy::StackTrace) -> PythonThread {
        let tid = trace.os_thread_id.and_then(|tid| i32::try_from(tid).ok());
        let frames = trace.frames.into_iter().take(MAX_FRAMES);
        PythonThread {
            tid,
            name: trace.thread_name,
            holds_lock: trace.owns_gil,
            frames: frames
                .map(|frame| PythonFrame {
                    function: frame.name,
                    file: frame.filename,
                    line: frame.line,
                })
                .collect(),
        }
    }
}
