//! Frames with names, from what was captured.

use std::collections::BTreeMap;

use crate::capture::{Captured, CapturedThread};
use crate::native::{self, CodeAddress, Files, ProcessUnwinder};
use crate::python::{self, PythonFrame, PythonThread};

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
    /// Whether it holds the lock of the Python interpreter.
    pub holds_lock: bool,
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
    let unwound: Vec<Vec<CodeAddress>> = captured
        .threads
        .iter()
        .map(|thread| unwinder.unwind(thread))
        .collect();
    let names = native::names(captured.pid, &unwound.concat(), files);
    let mut python = python_threads(captured, &mut notes);
    let threads = captured
        .threads
        .iter()
        .zip(unwound)
        .map(|(thread, addresses)| {
            let native = addresses
                .iter()
                .map(|at| native_frame(at, &names))
                .collect();
            Thread::new(thread, native, python.remove(&thread.tid))
        })
        .collect();
    Trace {
        pid: captured.pid,
        threads,
        notes,
    }
}

fn python_threads(captured: &Captured, notes: &mut Vec<String>) -> BTreeMap<i32, PythonThread> {
    if !python::is_python(&captured.mappings) {
        return BTreeMap::new();
    }
    let threads = match python::threads(captured.pid) {
        Ok(threads) => threads,
        Err(note) => {
            notes.push(note);
            return BTreeMap::new();
        }
    };
    let is_single = threads.len() == 1;
    threads
        .into_iter()
        .filter_map(|thread| {
            let tid = thread.tid.or(is_single.then_some(captured.pid))?;
            Some((tid, thread))
        })
        .collect()
}

fn native_frame(address: &CodeAddress, names: &BTreeMap<CodeAddress, String>) -> Frame {
    let library = address.file.as_deref().and_then(|file| file.file_name());
    Frame::Native {
        function: names.get(address).cloned(),
        library: library.map_or_else(
            || "unknown code".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
    }
}

impl Thread {
    fn new(thread: &CapturedThread, native: Vec<Frame>, python: Option<PythonThread>) -> Thread {
        let (name, holds_lock, frames) = match python {
            Some(python) => (
                python.name,
                python.holds_lock,
                merged(native, python.frames),
            ),
            None => (None, false, native),
        };
        Thread {
            tid: thread.tid,
            name: name.unwrap_or_else(|| thread.facts.name.clone()),
            doing: thread.doing.clone(),
            holds_lock,
            frames,
        }
    }
}

/// Puts the native functions that Python called in front of the Python frames.
fn merged(native: Vec<Frame>, python: Vec<PythonFrame>) -> Vec<Frame> {
    let called = native
        .into_iter()
        .take_while(|frame| !is_interpreter(frame));
    let python = python.into_iter().map(|frame| Frame::Python {
        function: frame.function,
        file: frame.file,
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
        let python = PythonFrame {
            function: "step".to_owned(),
            file: "env.py".to_owned(),
            line: 7,
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
