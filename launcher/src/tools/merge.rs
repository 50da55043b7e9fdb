//! `rrun merge DIR…`: merges several run folders into one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use jobs::count::counted;
use jobs::time::rfc3339;
use report::merge::Merge;
use report::tables;
use report::{Context, Damage, Merged, Report};

use crate::tools::{ToolError, print, under_way};

/// Number of conflicts that are printed; report.json has up to a thousand, `rrun verify` all.
const NAMED: usize = 20;

/// Merge the run folders of several workers, nodes or nights, which ran parts of one job list or
/// lists of their own.
///
/// Jobs with the same name must be equal. The output holds the plan, journals and report; datasets
/// and videos stay where they are. It is never read as an input.
#[derive(Debug, clap::Args)]
pub(super) struct MergeArgs {
    /// Run folders, or folders that contain run folders
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,

    /// Folder for the merged run; the result of an earlier merge in it is replaced
    #[arg(long, value_name = "DIR", default_value = "outputs/merged")]
    output: PathBuf,
}

pub(super) fn run(args: &MergeArgs) -> Result<ExitCode, ToolError> {
    let merge = Merge::of(&args.dirs, &args.output)?;
    for input in merge.inputs() {
        let root = input.folder().root().display();
        let jobs = counted(input.plan().jobs.len(), "job");
        print(format_args!("{root}: {jobs}"))?;
        let journals = under_way::journals(input.folder())?;
        if let Some(writer) = journals.writer() {
            let merged = Merged::new(input.plan(), &journals)?;
            let so_far = Report::of(&merged, Context::default())?.overall;
            print(format_args!("  {}", under_way::line(&writer, &so_far)))?;
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
        argv: std::env::args().collect(),
        world_size: merge.plan().world_size,
        route: "merge".to_owned(),
        missing_ranks: Vec::new(),
        stopped: None,
        commands: None,
        is_over: true,
        created: rfc3339(SystemTime::now()),
    })?;
    tell(&merge, &report, &damages)?;
    Ok(ExitCode::SUCCESS)
}

fn tell(merge: &Merge, report: &Report, damages: &[Damage]) -> Result<(), ToolError> {
    print(format_args!("\n{}", tables::metrics_summary(report)))?;
    let results = tables::results(report);
    if !results.is_empty() {
        print(results)?;
    }
    print(tables::conclusion(report))?;
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
    damages.iter().try_for_each(print)?;
    print(format_args!(
        "report: {}",
        merge.output().report().display()
    ))?;
    print(format_args!("page:   {}", merge.output().page().display()))?;
    Ok(())
}
