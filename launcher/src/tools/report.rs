//! `rrun report DIR`: writes the report again, from plan and journals; of several folders, that of
//! all of them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use jobs::count::counted;
use jobs::files::FileVersion;
use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::plan::RunPlan;
use report::merge::Merge;
use report::tables;
use report::{Context, Damage, Report};

use crate::tools::{merged, open, print, under_way};

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

    /// Replace a report that has more episodes than the journals here (other nodes may have theirs)
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    match (&args.output, &*args.folders) {
        (None, [folder]) => {
            let (folder, plan) = open(folder.as_os_str())?;
            // Whoever has replaced the report meanwhile may have read more, such as the run that has
            // ended.
            while !renewed(args, &folder, &plan)? {}
        }
        (output, folders) => merge(folders, output.as_deref().unwrap_or(Path::new(OUTPUT)))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the report and prints its tables. Returns false, and does nothing, if another process has
/// replaced the existing report since this one began to read.
fn renewed(args: &ReportArgs, folder: &RunFolder, plan: &RunPlan) -> anyhow::Result<bool> {
    let version = FileVersion::of(&folder.report());
    let there = Report::read(folder);
    let merged = merged(folder, plan.clone())?;
    let writer = merged.writer();
    let run = there.as_ref().map(|report| report.run.clone());
    let run = run.unwrap_or_default();
    let context = Context {
        argv: run.argv,
        stopped: run.stopped,
        commands: Commands::found(folder),
        is_over: writer.is_none(),
        ..Context::now()
    };
    let report = Report::of(&merged, context)?;
    if let Some(there) =
        there.filter(|there| there.overall.episodes > report.overall.episodes && !args.force)
    {
        bail!(
            "`{}` has {} episodes and the journals here have {}: those of other nodes may be \
             elsewhere; --force replaces it",
            folder.report().display(),
            there.overall.episodes,
            report.overall.episodes
        );
    }
    let is_written =
        report::write_merged(folder, &merged, &report, Some(version)).map_err(|err| {
            let folder = folder.root().display();
            anyhow!(
                "cannot write the report into `{folder}`: {err}; `rrun report {folder} --output \
                 DIR` makes it elsewhere, with the way to videos and datasets from there"
            )
        })?;
    if is_written {
        let under_way = writer.map(|writer| under_way(&writer, &report.overall));
        tell(folder, plan, &report, merged.damage(), under_way)?;
    }
    Ok(is_written)
}

/// Merges the runs in `dirs`, and prints the tables.
///
/// Jobs with the same name must be equal. The output holds the plan, journals and report; datasets
/// and videos stay where they are. It is never read as an input.
fn merge(dirs: &[PathBuf], output: &Path) -> anyhow::Result<()> {
    let merge = Merge::of(dirs, output)?;
    for input in &merge.inputs {
        let root = input.folder.root().display();
        let jobs = counted(input.plan.jobs.len(), "job");
        print(format_args!("{root}: {jobs}"))?;
        let merged = merged(&input.folder, input.plan.clone())?;
        if let Some(writer) = merged.writer() {
            let so_far = Report::of(&merged, Context::default())?.overall;
            print(format_args!("  {}", under_way(&writer, &so_far)))?;
        }
    }
    for [original, copy] in merge.copies() {
        print(format_args!(
            "note: {} and {} are copies of one run; episodes that both have count once",
            original.display(),
            copy.display()
        ))?;
    }
    let (report, damages) = merge.write(Context {
        route: "merge".to_owned(),
        ..Context::now()
    })?;
    tell(&merge.output, &merge.plan, &report, damages.iter(), None)
}

/// Prints the tables of a run, and what was wrong with its journals.
fn tell<'a>(
    folder: &RunFolder,
    plan: &RunPlan,
    report: &Report,
    mut damages: impl Iterator<Item = &'a Damage>,
    under_way: Option<String>,
) -> anyhow::Result<()> {
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
