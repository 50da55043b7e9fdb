//! `rrun demo [DIR]`: the first run, with what is installed.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use jobs::launch::fresh_id;
use serde_json::Value;

use crate::installed::suites;
use crate::node::Node;
use crate::tools::{ToolError, print};

/// Where the demo's jobs say that their files are: the folder of the suites in the source.
const IN_SOURCE: &str = "jobs/suites/";

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

/// The reason why there is no demo.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    #[error(
        "the demo's jobs are missing: expected them in the Python package `rrun`, or in \
         `jobs/suites` of the source that `rrun` was built from"
    )]
    NoSuites,
    #[error("cannot read `{}`: {reason}", path.display())]
    Jobs { path: PathBuf, reason: String },
    #[error("cannot write `{}`: {err}", path.display())]
    Write { path: PathBuf, err: io::Error },
    #[error("cannot start `{}`: {err}", path.display())]
    Start { path: PathBuf, err: io::Error },
}

pub(super) fn run(args: &DemoArgs) -> Result<ExitCode, ToolError> {
    let node = Node::read()?;
    let suites = suites(&node.executable).ok_or(DemoError::NoSuites)?;
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => std::env::temp_dir().join(format!("rrun-demo-{}", fresh_id()?)),
    };
    let (jobs, episodes) = write_jobs(&suites, &folder)?;

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

    let mut eval = Command::new(&node.executable);
    eval.arg("--nproc-per-node").arg(ranks.to_string());
    eval.arg("eval").arg("--jobs").arg(&jobs);
    eval.arg("--output").arg(&folder);
    eval.envs(rounding(
        &std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
    ));
    // The evaluation takes the place of this process, so that signals reach it.
    let err = eval.exec();
    let path = node.executable;
    Err(DemoError::Start { path, err }.into())
}

/// Writes the demo's jobs into a folder, with the paths of this machine. Returns their file, and
/// the number of their episodes.
fn write_jobs(suites: &Path, folder: &Path) -> Result<(PathBuf, u64), DemoError> {
    let path = suites.join("demo.json");
    let unreadable = |reason: String| DemoError::Jobs {
        path: path.clone(),
        reason,
    };
    let text = std::fs::read_to_string(&path).map_err(|err| unreadable(err.to_string()))?;
    let mut jobs: Value = serde_json::from_str(&text).map_err(|err| unreadable(err.to_string()))?;
    find_files(&mut jobs, suites);
    let all = jobs["jobs"].as_array().into_iter().flatten();
    let episodes = all.filter_map(|job| job["num_episodes"].as_u64()).sum();

    let path = folder.join("demo.json");
    let written =
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, format!("{jobs:#}\n")));
    written.map_err(|err| DemoError::Write {
        path: path.clone(),
        err,
    })?;
    Ok((path, episodes))
}

/// Replaces the paths of the source by those of this machine.
pub(super) fn find_files(value: &mut Value, suites: &Path) {
    match value {
        Value::String(text) => {
            if let Some(rest) = text.strip_prefix(IN_SOURCE) {
                *text = suites.join(rest).to_string_lossy().into_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| find_files(item, suites)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|member| find_files(member, suites)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
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
    use serde_json::json;

    #[test]
    fn paths_of_the_suites_become_those_of_this_machine() {
        let mut jobs = json!({"jobs": [{"name": "jobs/other", "x": {"path": "jobs/suites/a/b"}}]});
        find_files(&mut jobs, Path::new("/opt/suites"));
        let expected = json!({"jobs": [{"name": "jobs/other", "x": {"path": "/opt/suites/a/b"}}]});
        assert_eq!(jobs, expected);
    }

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

    #[test]
    fn the_jobs_of_the_demo_are_written_with_files_that_exist() {
        let suites = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites"));
        let folder = tempfile::tempdir().unwrap();
        let (path, episodes) = write_jobs(suites, &folder.path().join("new")).unwrap();
        assert_eq!(episodes, 144);
        let jobs: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let model = jobs["jobs"][0]["policy_config_dict"]["model_path"]
            .as_str()
            .unwrap();
        assert!(
            Path::new(model).join("model.safetensors").is_file(),
            "{model}"
        );
    }
}
