//! `rrun demo [DIR]`: the first run, with what is installed.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use jobs::file::JobFile;
use jobs::job::{Job, Length};
use jobs::launch::fresh_id;

use crate::cli::built_in::DEMO_FOLDER;
use crate::installed::suites;
use crate::node::Node;
use crate::tools::{evaluation, print};

/// Most ranks of the demo.
const MOST_RANKS: usize = 2;

/// Names in `/proc/cpuinfo` of a CPU with AVX2.
const AVX2: &str = "avx2";

/// Evaluate three tasks with videos and a report, to see that everything works.
///
/// A small GR00T policy, a scripted expert and random actions solve `reach`, `push` and
/// `pick_and_place` on up to two ranks.
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// Run folder [default: a new one under TMPDIR]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(super) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let node = Node::read()?;
    let suites = suites(&node.executable).context(
        "the demo's jobs are missing: expected them in the Python package `rrun`, or in \
         `jobs/suites` of the source that `rrun` was built from",
    )?;
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => std::env::temp_dir().join(format!("rrun-demo-{}", fresh_id()?)),
    };
    let jobs = suites.join("demo.json");
    let count = |job: &Job| match job.length {
        Length::Episodes(count) => count,
        Length::Steps(_) | Length::Policy => 0,
    };
    let episodes: u64 = JobFile::read(&jobs)?.jobs.iter().map(count).sum();

    let gpus = node.visible_gpus(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    let ranks = if gpus > 0 { gpus } else { node.cpus };
    let ranks = ranks.clamp(1, MOST_RANKS);
    let (page, videos) = (folder.join("report.html"), folder.join("*/*.mp4"));
    print(format_args!(
        "{episodes} episodes on {} of {}, in about half a minute; then look at\n  {}   the page of \
         the run, in a browser\n  {}   the videos\n",
        jobs::count::counted(ranks, "rank"),
        if gpus > 0 { "GPUs" } else { "CPUs" },
        page.display(),
        videos.display(),
    ))?;

    let mut eval = evaluation::here(ranks, &[])?;
    eval.arg("--jobs").arg(&jobs);
    eval.arg("--output").arg(&folder);
    eval.env(DEMO_FOLDER, &folder);
    eval.envs(rounding(
        &std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
    ));
    // The evaluation takes the place of this process, so that signals reach it.
    let err = eval.exec();
    Err(err).with_context(|| format!("cannot start `{}`", node.executable.display()))
}

/// Returns the variables with which libtorch rounds alike on all x86-64 CPUs with AVX2, see
/// `docs/demo_policy.md`. Older CPUs lack these instructions.
fn rounding(cpuinfo: &str) -> Vec<(&'static str, &'static str)> {
    let mut variables = vec![("OMP_NUM_THREADS", "1"), ("MKL_CBWR", "COMPATIBLE")];
    if cpuinfo.split_whitespace().any(|word| word == AVX2) {
        variables.extend([
            ("ATEN_CPU_CAPABILITY", AVX2),
            ("ONEDNN_MAX_CPU_ISA", "AVX2"),
        ]);
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_limited_only_where_the_cpu_has_them() {
        let names = |text| {
            rounding(text)
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert!(names("flags : sse avx avx2").contains(&"ATEN_CPU_CAPABILITY"));
        assert!(!names("flags : sse avx").contains(&"ATEN_CPU_CAPABILITY"));
    }
}
