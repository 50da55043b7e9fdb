//! `rrun-rank probe QUESTION`: answers a question of `rrun doctor` about this machine, because only
//! the rank binary has libtorch, MuJoCo and CUDA. Question and answer are in
//! [`jobs::rank_probe`]; each runs in a process of its own, which may hang or crash.

mod libraries;
mod pictures;
mod round_trip;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use jobs::rank_probe::{RankQuestion, WORD};
use serde::Serialize;
use torchlib::torch_error::{caught_of_libtorch, first_line};

/// Answers the question in `words`.
pub fn main(words: &[OsString]) -> ExitCode {
    let words: Vec<&str> = words
        .iter()
        .map(|word| word.to_str().unwrap_or_default())
        .collect();
    let question = words.first().and_then(|name| RankQuestion::of(name));
    match (question, &words[words.len().min(1)..]) {
        (Some(RankQuestion::Libraries), []) => answer(|| Ok(libraries::loaded())),
        (Some(RankQuestion::Cuda), []) => answer(libraries::computed),
        (Some(RankQuestion::Egl), []) => answer(pictures::drawn),
        (Some(RankQuestion::Nccl), []) => answer(round_trip::lead),
        (Some(RankQuestion::Nccl), numbers @ [_, _, _]) => joined(numbers),
        _ => usage(),
    }
}

/// Prints what `ask` returns.
fn answer<T: Serialize>(ask: impl FnOnce() -> Result<T, String>) -> ExitCode {
    let answer = caught_of_libtorch(ask).unwrap_or_else(Err);
    let answer = answer.map_err(|reason| first_line(&reason).to_owned());
    let line = match serde_json::to_string(&answer) {
        Ok(line) => line,
        Err(err) => {
            eprintln!("rrun-rank: cannot write the answer: {err}");
            return ExitCode::FAILURE;
        }
    };
    // Nobody is left to be told if standard output is closed.
    let _ = writeln!(std::io::stdout(), "{line}");
    match answer {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Takes part in the round trip of another process, which reports it and has started this one with
/// these numbers: the port of its store, rank and world size.
fn joined(numbers: &[&str]) -> ExitCode {
    let numbers: Result<Vec<usize>, _> = numbers.iter().map(|number| number.parse()).collect();
    let Ok(&[port, rank, world]) = numbers.as_deref() else {
        return usage();
    };
    let joined = caught_of_libtorch(|| round_trip::join(port as u16, rank, world));
    match joined.unwrap_or_else(Err) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("rrun-rank: process {rank}: {}", first_line(&reason));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let names = RankQuestion::ALL.map(RankQuestion::name).join(", ");
    eprintln!("rrun-rank: expected `{WORD} QUESTION`, one of {names}; `rrun doctor` asks them");
    ExitCode::from(2)
}
