//! `rrun report DIR`: writes the report again, from plan and journals; of several folders, that of
//! all of them.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::SystemTime;

use jobs::files::FileVersion;
use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::plan::RunPlan;
use jobs::time::rfc3339;
use report::tables;
use report::{Context, Damage, Merged, Report};

use crate::tools::{ToolError, merge, open, print, under_way};

/// Number of conflicts that are printed; report.json has up to a thousand, `rrun verify` all.
const NAMED: usize = 20;

/// Where several runs are merged.
const OUTPUT: &str = "outputs/merged";

/// Recreate the report of a run from its plan and journals.
///
/// The result depends only on these files, except for the time of writing; what only the run itself
/// knew (its command line) is copied from the existing report.
///
/// Runs of several workers, nodes or nights, which ran parts of one jobs list or lists of their own,
/// are merged into the folder of --output: its plan, journals and report. Jobs with the same name
/// must be equal. Datasets and videos stay where they are.
#[derive(Debug, clap::Args)]
pub(super) struct ReportArgs {
    /// Run folder; to merge, also a folder that contains run folders
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,

    /// Merge the runs into this folder, replacing an earlier merge in it; of several DIR, the default
    /// is outputs/merged
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Print the path of the page, report.html, which is always written
    #[arg(long)]
    html: bool,

    /// Open the page in the browser with xdg-open
    #[arg(long)]
    open: bool,

    /// Replace a report that has more episodes than the journals here (other nodes may have theirs)
    #[arg(long)]
    force: bool,
}

/// The reason why no report is written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    #[error(
        "`{path}` has {there} episodes and the journals here have {here}: those of other nodes may be elsewhere; --force replaces it"
    )]
    Less { path: String, there: u64, here: u64 },
    #[error(
        "cannot write the report into `{folder}`: {err}; `rrun report {folder} --output DIR` makes it elsewhere, with the way \
         to videos and datasets from there"
    )]
    Write { folder: String, err: std::io::Error },
    #[error("cannot start `xdg-open`: {err}; the page is `{page}`")]
    NoBrowser { page: String, err: std::io::Error },
    #[error("`xdg-open` cannot show `{page}`: {status}")]
    Browser { page: String, status: ExitStatus },
}

pub(super) fn run(args: &ReportArgs) -> Result<ExitCode, ToolError> {
    let page = match (&args.output, &*args.folders) {
        (None, [folder]) => {
            let (folder, plan) = open(folder.as_os_str())?;
            // Whoever has replaced the report meanwhile may have read more, such as the run that has
            // ended.
            while !renewed(args, &folder, &plan)? {}
            folder.page()
        }
        (output, folders) => {
            merge::merged(folders, output.as_deref().unwrap_or(Path::new(OUTPUT)))?
        }
    };
    if args.open {
        show(page.display().to_string())
    } else {
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the report and prints its tables. Returns false, and does nothing, if another process has
/// replaced the existing report since this one began to read.
fn renewed(args: &ReportArgs, folder: &RunFolder, plan: &RunPlan) -> Result<bool, ToolError> {
    let version = FileVersion::of(&folder.report());
    let there = Report::read(folder);
    let merged = Merged::new(plan.clone(), under_way::journals(folder)?)?;
    let writer = merged.writer();
    let context = Context {
        commands: Commands::found(folder),
        is_over: writer.is_none(),
        ..context(plan, there.as_ref())
    };
    let report = Report::of(&merged, context)?;
    if let Some(there) =
        there.filter(|there| there.overall.episodes > report.overall.episodes && !args.force)
    {
        let (there, here) = (there.overall.episodes, report.overall.episodes);
        return Err(ReportError::Less {
            path: folder.report().display().to_string(),
            there,
            here,
        }
        .into());
    }
    let is_written = report::write_merged(folder, &merged, &report, Some(version));
    let is_written = is_written.map_err(|err| ReportError::Write {
        folder: folder.root().display().to_string(),
        err,
    })?;
    if is_written {
        let under_way = writer.map(|writer| under_way::line(&writer, &report.overall));
        tell(folder, plan, &report, merged.damage(), under_way)?;
    }
    Ok(is_written)
}

fn show(page: String) -> Result<ExitCode, ToolError> {
    match Command::new("xdg-open").arg(&page).status() {
        Ok(status) if status.success() => Ok(ExitCode::SUCCESS),
        Ok(status) => Err(ReportError::Browser { page, status }.into()),
        Err(err) => Err(ReportError::NoBrowser { page, err }.into()),
    }
}

/// Prints the tables of a run, and what was wrong with its journals.
pub(super) fn tell<'a>(
    folder: &RunFolder,
    plan: &RunPlan,
    report: &Report,
    mut damages: impl Iterator<Item = &'a Damage>,
    under_way: Option<String>,
) -> Result<(), ToolError> {
    print(tables::summary(plan, report, under_way))?;
    let mut conflicts = report.duplicates.iter().filter(|twice| !twice.agree);
    for conflict in conflicts.by_ref().take(NAMED) {
        print(format_args!(
            "conflict: {} {} came out differently",
            conflict.job, conflict.episode
        ))?;
    }
    if conflicts.next().is_some() {
        print("… and more, see `rrun verify`")?;
    }
    damages.try_for_each(print)?;
    print(format_args!("report: {}", folder.report().display()))?;
    print(format_args!("page:   {}", folder.page().display()))?;
    Ok(())
}

fn context(plan: &RunPlan, there: Option<&Report>) -> Context {
    Context {
        argv: there
            .map(|report| report.run.argv.clone())
            .unwrap_or_default(),
        world_size: there.map_or(plan.world_size, |report| report.run.world_size),
        route: "journals".to_owned(),
        stopped: there.and_then(|report| report.run.stopped.clone()),
        created: rfc3339(SystemTime::now()),
        ..Context::default()
    }
}
