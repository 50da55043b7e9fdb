//! `rrun watch`: evaluates every checkpoint of a training while it trains.
//!
//! ```text
//! scan (files, fingerprints) ──► machine (pure) ──► evaluation (rrun … eval) ──► run folders
//!     ▲ every few seconds             ▲ signals                                      │
//!     └───────────────────────────── driver ◄──── watch.json, watch.html, table ◄────┘
//! ```
//! What was done is what is on the disk: a run folder for each checkpoint, and `watch.json`. The
//! same command continues after any end.

mod driver;
mod machine;
mod scan;
mod template;

use std::ffi::OsString;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

use jobs::launch::{LaunchLock, fresh_id};
use jobs::layout::RunFolder;
use jobs::refusal::Refusal;
use jobs::time::now;
use report::curve::{Curve, Point, PointState, SCHEMA};

use crate::say;
use crate::tools::print_line;
use driver::Driver;
use machine::{Machine, WatchRules};
use scan::Scanner;
use template::Template;

/// Evaluate every checkpoint of a training while it trains.
///
/// Waits for new checkpoints in a folder, and evaluates each once when it is complete. Results are
/// a table, and a curve over the training step in watch.html. The same command continues after any
/// end.
#[derive(Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// Folder in which checkpoints appear: subfolders or files with a number in their names
    #[arg(long, value_name = "DIR")]
    checkpoints: PathBuf,

    /// Jobs file; each checkpoint becomes the model_path of the policies that have one, or replaces
    /// {checkpoint} where that is written
    #[arg(long, visible_alias = "experiment", value_name = "FILE")]
    jobs: PathBuf,

    /// Folder of the results, with a run folder for each checkpoint [default: outputs/<name of the
    /// jobs file>_watch]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Names of checkpoints, with * and ? [default: every subfolder with a number in its name, and
    /// such files that end as weights do]
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,

    #[command(flatten)]
    rules: WatchRules,

    /// Options of the launcher, then `eval` and options of the evaluation, e.g. -- --nproc-per-node
    /// 2 eval --no-video
    #[arg(last = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

pub(super) fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let template = Template::read(&args.jobs)?;
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| default_output(&args.jobs));
    let mut scanner = Scanner::new(&args.checkpoints, args.pattern.clone());
    scanner.scan()?;
    let folder = RunFolder::new(&output);
    folder.make_private()?;
    let _lock =
        LaunchLock::take(&folder, &fresh_id()?, |why| say::info(why)).map_err(Refusal::new)?;
    let path = output.join("watch.json");
    let earlier = Curve::read(&path).unwrap_or_default();
    if !earlier.schema.is_empty() && earlier.jobs_sha256 != template.sha256 {
        return Err(Refusal::new(format_args!(
            "`{}` has the results of other jobs: choose another --output",
            path.display()
        ))
        .into());
    }
    let mut driver = Driver {
        machine: Machine::new(args.rules),
        scanner,
        words: args.words.clone(),
        curve: Curve {
            schema: SCHEMA.to_owned(),
            checkpoints: absolute(&args.checkpoints)?.display().to_string(),
            jobs_file: args.jobs.display().to_string(),
            jobs_sha256: template.sha256.clone(),
            ..earlier
        },
        template,
        output,
        is_unwritten: false,
    };
    driver.remember(now());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let stopped_by = runtime.block_on(driver.run())?;
    let Driver { output, curve, .. } = driver;
    print_line(format_args!("curve: {}", path.display()))?;
    print_line(format_args!(
        "page:  {}",
        output.join("watch.html").display()
    ))?;
    let has_failed = |point: &Point| point.state == PointState::Failed;
    Ok(match stopped_by {
        Some(number) => ExitCode::from(128 + u8::try_from(number).unwrap_or(0)),
        None => ExitCode::from(u8::from(curve.points.iter().any(has_failed))),
    })
}

fn default_output(jobs: &Path) -> PathBuf {
    let mut name = jobs.file_stem().unwrap_or_default().to_owned();
    name.push("_watch");
    PathBuf::from("outputs").join(name)
}
