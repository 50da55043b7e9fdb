//! `rrun-rank eval …` and `rrun-rank serve …`: the program that `rrun eval …` and `rrun serve …`
//! start for each rank. It runs under any torchrun-compatible launcher, and alone. With `probe` it
//! answers a question of `rrun doctor`.

use std::ffi::OsString;
use std::process::ExitCode;

use jobs::finding::PROBE;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    runtime::env::mujoco::draw_without_threads();
    runtime::versions::built_from(option_env!("RRUN_COMMIT"));
    let variable = if std::env::var_os("RRUN_LOG").is_some() {
        "RRUN_LOG"
    } else {
        "RUST_LOG"
    };
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::from_env(variable));
    log.with_writer(std::io::stderr).init();
    runtime::tell_panics_briefly();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.split_first() {
        Some((program, rest)) if program == "eval" => runtime::eval::main(rest),
        Some((program, rest)) if program == "serve" => runtime::serve::main(rest),
        Some((program, rest)) if program == PROBE => runtime::probe::main(rest),
        _ => {
            eprintln!(
                "rrun-rank: the first word names a program: eval or serve; `rrun` starts it as `rrun eval …`"
            );
            ExitCode::from(2)
        }
    }
}
