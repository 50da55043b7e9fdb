//! The folder of a quick run, which the next quick run replaces.

use std::fs;
use std::path::Path;

use crate::layout::RunFolder;
use crate::plan::{RunPlan, unusable};
use crate::refusal::Refusal;

impl RunPlan {
    /// Checks that a quick run may replace the contents of its folder: there is no plan, or that of
    /// a quick run. Writes nothing.
    ///
    /// # Errors
    /// Refuses another run, and what [`RunPlan::read`] refuses.
    pub fn check_quick(folder: &RunFolder) -> Result<(), Refusal> {
        if !folder.plan().exists() || Self::read(folder)?.quick {
            Ok(())
        } else {
            Err(Refusal::new(format_args!(
                "`{}` holds a run that is not a quick one, so --quick does not replace it; choose \
                 another --output",
                folder.root().display()
            )))
        }
    }

    /// Removes the files of an earlier quick run. The caller holds the lock of the folder, which
    /// stays.
    ///
    /// # Errors
    /// Returns the errors of [`RunPlan::check_quick`] and of the file system.
    pub fn clear_quick(folder: &RunFolder) -> Result<(), Refusal> {
        if !folder.plan().exists() {
            return Ok(());
        }
        Self::check_quick(folder)?;
        let io = unusable(folder);
        let locks = [folder.launches(), folder.plan_lock()];
        for entry in folder.root().read_dir().map_err(&io)? {
            let path = entry.map_err(&io)?.path();
            // The plan goes last: until then an interrupted removal can be repeated.
            if !locks.contains(&path) && path != folder.plan() {
                remove(&path).map_err(&io)?;
            }
        }
        fs::remove_file(folder.plan()).map_err(&io)
    }
}

/// Removes a file, a link or a folder; what a link leads to stays.
fn remove(path: &Path) -> std::io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a run folder with a plan and a few files.
    fn run(quick: bool) -> (tempfile::TempDir, RunFolder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(&dir.path().join("run"));
        let schema = crate::plan::SCHEMA.to_owned();
        let plan = RunPlan {
            schema,
            quick,
            ..RunPlan::default()
        };
        fs::create_dir_all(folder.launches()).unwrap();
        fs::create_dir_all(folder.journals()).unwrap();
        fs::write(folder.journal(0), "").unwrap();
        fs::write(dir.path().join("kept"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("kept"), folder.root().join("link")).unwrap();
        fs::write(folder.plan(), serde_json::to_string(&plan).unwrap()).unwrap();
        (dir, folder)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = folder.read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_quick_run_is_removed_but_for_the_lock() {
        let (dir, folder) = run(true);
        RunPlan::check_quick(&folder).unwrap();
        RunPlan::clear_quick(&folder).unwrap();
        assert_eq!(names(folder.root()), ["launch.lock"]);
        assert_eq!(names(dir.path()), ["kept", "run"], "links are not followed");
        RunPlan::clear_quick(&folder).unwrap();
    }

    #[test]
    fn another_run_is_never_removed() {
        let (_dir, folder) = run(false);
        let before = names(folder.root());
        for result in [RunPlan::check_quick(&folder), RunPlan::clear_quick(&folder)] {
            let text = result.unwrap_err().to_string();
            let told = "holds a run that is not a quick one";
            assert!(text.contains(told), "{text}");
        }
        fs::write(folder.plan(), "{").unwrap();
        RunPlan::clear_quick(&folder).unwrap_err();
        assert_eq!(names(folder.root()), before);
    }
}
