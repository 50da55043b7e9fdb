//! Asks the rank binary, which has libtorch, MuJoCo and CUDA, whether they work.

mod answer;
mod libraries;
mod work;

use std::time::Duration;

use jobs::rank_probe::RankQuestion;

use crate::cli::Environment;
use crate::installed::rank_binary;
use crate::node::Node;
use crate::tools::doctor::check::Check;
use crate::tools::doctor::diagnosis::Diagnosis;
use crate::tools::doctor::rank::answer::ask;

/// Name of the check whether the binary starts. Without it, the others are not made.
pub(super) const NAME: &str = "rrun-rank";

/// What to do if the binary cannot even be killed at the time limit.
const HANGS: &str = "a driver or file system does not answer: see `dmesg`";

/// Returns the check whether the rank binary is there and finds its libraries.
pub(super) fn start(node: &Node, timeout: Duration) -> Check {
    let binary = rank_binary(&node.executable);
    Check::new(NAME, HANGS, move || match binary {
        Ok(binary) => {
            let answer = ask(&binary, RankQuestion::Libraries, timeout);
            libraries::judged(&binary, &answer)
        }
        Err(missing) => {
            let found = format!("`{}` does not exist", missing.display());
            let remedy = "install rrun again with pip, or build it with `make`; rrun and rrun-rank \
                          stay in one folder";
            vec![Diagnosis::failed(NAME, found, remedy)]
        }
    })
}

/// Returns the checks of what a rank does: compute, reach other ranks, render.
pub(super) fn work(node: &Node, env: &Environment, timeout: Duration) -> Vec<Check> {
    let Ok(binary) = rank_binary(&node.executable) else {
        return Vec::new();
    };
    let visible = env.get("CUDA_VISIBLE_DEVICES");
    let visible = visible.map(|list| list.to_string_lossy().into_owned());
    let gpus = node.visible_gpus(visible.as_deref());

    let (of_cuda, of_nccl, of_egl) = (binary.clone(), binary.clone(), binary);
    let mut checks = Vec::new();
    if gpus > 0 {
        checks.push(Check::new("CUDA", HANGS, move || {
            work::of_cuda(&ask(&of_cuda, RankQuestion::Cuda, timeout))
        }));
    }
    if gpus > 1 {
        checks.push(Check::new("NCCL", HANGS, move || {
            let answer = ask(&of_nccl, RankQuestion::Nccl, timeout);
            vec![work::of_nccl(&answer)]
        }));
    }
    checks.push(Check::new("EGL", HANGS, move || {
        work::of_egl(&ask(&of_egl, RankQuestion::Egl, timeout))
    }));
    checks
}
