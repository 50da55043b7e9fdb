//! `rrun report DIR… --output DIR`: merges several run folders into one.

use std::path::{Path, PathBuf};

use jobs::count::counted;
use report::merge::Merge;
use report::{Context, Merged, Report};

use crate::tools::report::tell;
use crate::tools::{ToolError, print, under_way};

/// Merges the runs in `dirs`, and prints the tables. Returns the path of the page.
///
/// Jobs with the same name must be equal. The output holds the plan, journals and report; datasets
/// and videos stay where they are. It is never read as an input.
pub(super) fn merged(dirs: &[PathBuf], output: &Path) -> Result<PathBuf, ToolError> {
    let merge = Merge::of(dirs, output)?;
    for input in merge.inputs() {
        let root = input.folder().root().display();
        let jobs = counted(input.plan().jobs.len(), "job");
        print(format_args!("{root}: {jobs}"))?;
        let journals = under_way::journals(input.folder())?;
        if let Some(writer) = journals.writer() {
            let merged = Merged::new(input.plan().clone(), journals)?;
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
        route: "merge".to_owned(),
        ..Context::now(merge.plan().world_size)
    })?;
    tell(merge.output(), merge.plan(), &report, damages.iter(), None)?;
    Ok(merge.output().page())
}
