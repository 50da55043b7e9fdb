//! Frames with names, from what was captured.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use py_spy::config::{Config, LockingStrategy};
use py_spy::{PythonSpy, StackTrace};

use crate::capture::Captured;
use crate::native::{CodeAddress, Files, Mapping, ProcessUnwinder};

/// Attempts to read the Python frames of a process that goes on meanwhile.
const ATTEMPTS: u64 = 5;

/// Python frames of a thread beyond this number are left out.
const MAX_FRAMES: usize = 256;

/// The stacks of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Its process id.
    pub pid: i32,
    /// Its threads; the first one is the main thread.
    pub threads: Vec<Thread>,
    /// What is missing, and why.
    pub notes: Vec<String>,
}

/// One thread of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its thread id.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// What it does in the kernel, in words.
    pub doing: String,
    /// Its frames, innermost first. A Python function stands between the native functions that it
    /// called and those of the interpreter, which are left out.
    pub frames: Vec<Frame>,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frame {
    /// A Python function.
    Python {
        /// Its name.
        function: String,
        /// Path of its source file.
        file: String,
        /// The line that is executed.
        line: i32,
    },
    /// A native function.
    Native {
        /// Its name, if its file has one.
        function: Option<String>,
        /// Name of its file, without folders.
        library: String,
    },
}

/// Unwinds and names what was captured. The process may have gone on, or have ended: then only the
/// Python frames are newer, or missing.
pub fn trace(captured: &Captured, files: &mut Files) -> Trace {
    let mut notes = captured.notes.clone();
    let mut unwinder = ProcessUnwinder::new(captured.pid, &captured.mappings, files);
    let threads = captured.threads.iter();
    let unwound: Vec<Vec<CodeAddress>> = threads.map(|thread| unwinder.unwind(thread)).collect();
    files.learn(unwound.iter().flatten());
    let mut python = if is_python(&captured.mappings) {
        python_threads(captured.pid).unwrap_or_else(|note| {
            notes.push(note);
            BTreeMap::new()
        })
    } else {
        BTreeMap::new()
    };
    let threads = captured.threads.iter().zip(unwound);
    let threads = threads.map(|(thread, addresses)| {
        let native = addresses.iter().map(|at| native_frame(at, files)).collect();
        let (name, frames) = match python.remove(&thread.tid) {
            Some(python) => (python.thread_name, merged(native, python.frames)),
            None => (None, native),
        };
        Thread {
            tid: thread.tid,
            name: name.unwrap_or_else(|| thread.facts.name.clone()),
            doing: thread.doing.clone(),
            frames,
        }
    });
    Trace {
        pid: captured.pid,
        threads: threads.collect(),
        notes,
    }
}

/// Returns whether the process runs Python, by its own file and its libraries.
fn is_python(mappings: &[Mapping]) -> bool {
    mappings
        .iter()
        .filter_map(|mapping| mapping.path.file_name()?.to_str())
        .any(|name| name.starts_with("python") || name.starts_with("libpython"))
}

/// Returns the Python frames of the threads of `pid` by their ids, or why they cannot be read.
fn python_threads(pid: i32) -> Result<BTreeMap<i32, StackTrace>, String> {
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
    let threads = read
        .map_err(|_| "its Python frames cannot be read".to_owned())?
        .map_err(|err| format!("its Python frames cannot be read: {err:#}"))?;
    // Below Python 3.11 a thread does not know its number.
    let only = (threads.len() == 1).then_some(pid);
    let threads = threads.into_iter().filter_map(|thread| {
        let tid = thread.os_thread_id.and_then(|tid| i32::try_from(tid).ok());
        Some((tid.or(only)?, thread))
    });
    Ok(threads.collect())
}

fn native_frame(at: &CodeAddress, files: &Files) -> Frame {
    let library = at.file.as_deref().and_then(|file| file.file_name());
    Frame::Native {
        function: files.name(at).cloned(),
        library: library.map_or_else(
            || "unknown code".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
    }
}

/// Puts the native functions that Python called in front of the Python frames.
fn merged(native: Vec<Frame>, python: Vec<py_spy::Frame>) -> Vec<Frame> {
    let native = native.into_iter();
    let called = native.take_while(|frame| !is_interpreter(frame));
    let python = python.into_iter().take(MAX_FRAMES);
    let python = python.map(|frame| Frame::Python {
        function: frame.name,
        file: frame.filename,
        line: frame.line,
    });
    called.chain(python).collect()
}

/// Returns whether the frame belongs to the evaluation of Python code.
fn is_interpreter(frame: &Frame) -> bool {
    matches!(frame, Frame::Native { function: Some(function), .. }
        if function.starts_with("_PyEval_EvalFrame") || function.starts_with("PyEval_Eval"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(function: &str) -> Frame {
        Frame::Native {
            function: Some(function.to_owned()),
            library: "lib.so".to_owned(),
        }
    }

    #[test]
    fn python_frames_replace_those_of_the_interpreter() {
        let python = py_spy::Frame {
            name: "step".to_owned(),
            filename: "env.py".to_owned(),
            line: 7,
            module: None,
            short_filename: None,
            locals: None,
            is_entry: false,
            is_shim_entry: false,
        };
        let stack = vec![
            native("clock_nanosleep"),
            native("time_sleep"),
            native("_PyEval_EvalFrameDefault"),
            native("Py_RunMain"),
        ];
        let step = Frame::Python {
            function: "step".to_owned(),
            file: "env.py".to_owned(),
            line: 7,
        };
        let expected = [native("clock_nanosleep"), native("time_sleep"), step];
        assert_eq!(merged(stack, vec![python]), expected);
    }
}
