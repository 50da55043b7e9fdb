//! `rrun watch`: evaluates every checkpoint of a training while it trains.
//!
//! ```text
//! scan (files, fingerprints) ──► machine (pure) ──► evaluation (rrun … eval) ──► run folders
//!     ▲ every few seconds             ▲ signals                                      │
//!     └───────────────────────────── driver ◄──── watch.json, watch.html, table ◄────┘
//! ```
//! What was done is what is on the disk: a run folder for each checkpoint, and `watch.json`. The
//! same command continues after any end.

mod complete;
mod driver;
mod evaluation;
mod machine;
mod scan;
mod template;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jobs::launch::{LaunchLock, fresh_id};
use jobs::layout::RunFolder;
use jobs::refusal::Refusal;
use report::curve::{Curve, PointState};

use crate::say;
use crate::tools::print_line;
use driver::{Driver, WatchEnd};
use machine::{Machine, Order, WatchRules};
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

    /// Seconds without a change after which a checkpoint is complete
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    settle: u64,

    /// Which checkpoint comes next
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    order: Order,

    /// Evaluate what is there and end
    #[arg(long)]
    once: bool,

    /// End when a checkpoint of this step, or of a later one, has been evaluated and none is left
    #[arg(long, value_name = "STEP")]
    until: Option<u64>,

    /// Options of the launcher, then `eval` and options of the evaluation, e.g. -- --nproc-per-node
    /// 2 eval --no-video
    #[arg(last = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

/// Says that the folder of the checkpoints cannot be read.
fn unreadable(checkpoints: &Path, err: io::Error) -> Refusal {
    let path = checkpoints.display();
    let place = format_args!("cannot read the folder of the checkpoints, `{path}`");
    Refusal::at(place, err)
}

pub(super) fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let template = Template::read(&args.jobs)?;
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| default_output(&args.jobs));
    let mut scanner = Scanner::new(&args.checkpoints, args.pattern.clone());
    let scanned = scanner.scan();
    scanned.map_err(|err| unreadable(&args.checkpoints, err))?;
    let folder = RunFolder::new(&output);
    folder.make_private()?;
    let _lock =
        LaunchLock::take(&folder, &fresh_id()?, |why| say::info(why)).map_err(Refusal::new)?;
    let path = output.join("watch.json");
    let curve = Curve::read(&path).unwrap_or_default();
    if !curve.schema.is_empty() && curve.jobs_sha256 != template.sha256 {
        return Err(Refusal::new(format_args!(
            "`{}` has the results of other jobs: choose another --output",
            path.display()
        ))
        .into());
    }
    let mut driver = driver(args, template, scanner, output, curve)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let end = runtime.block_on(driver.run())?;
    tell(&driver, end)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time at which the watch begins"
)]
fn driver(
    args: &WatchArgs,
    template: Template,
    scanner: Scanner,
    output: PathBuf,
    curve: Curve,
) -> io::Result<Driver> {
    let rules = WatchRules {
        settle: Duration::from_secs(args.settle),
        order: args.order,
        once: args.once,
        until: args.until,
    };
    let now = Instant::now();
    let mut driver = Driver {
        machine: Machine::new(rules),
        scanner,
        template,
        words: args.words.clone(),
        // An evaluation that is resumed elsewhere finds its checkpoint.
        checkpoints: std::path::absolute(&args.checkpoints)?,
        output,
        jobs_file: args.jobs.clone(),
        curve,
        is_unwritten: false,
    };
    driver.remember(now);
    Ok(driver)
}

fn default_output(jobs: &Path) -> PathBuf {
    let mut name = jobs.file_stem().unwrap_or_default().to_owned();
    name.push("_watch");
    PathBuf::from("outputs").join(name)
}

/// Prints where the results are, and returns the exit code: 1 if an evaluation failed for good.
fn tell(driver: &Driver, end: WatchEnd) -> anyhow::Result<ExitCode> {
    print_line(format_args!(
        "curve: {}",
        driver.output.join("watch.json").display()
    ))?;
    print_line(format_args!(
        "page:  {}",
        driver.output.join("watch.html").display()
    ))?;
    let has_failed = driver
        .curve
        .points
        .iter()
        .any(|point| point.state == PointState::Failed);
    Ok(match end {
        WatchEnd::Signalled(number) => ExitCode::from(128 + u8::try_from(number).unwrap_or(0)),
        WatchEnd::Over if has_failed => ExitCode::FAILURE,
        WatchEnd::Over => ExitCode::SUCCESS,
    })
}
