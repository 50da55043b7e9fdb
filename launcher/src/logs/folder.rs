//! The log folder of one launch, and those of its attempts.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

/// Number of random characters at the end of a name, as torchrun has.
const RANDOM: usize = 8;

/// The log folder of one launch, with mode 0700.
#[derive(Clone, Debug)]
pub struct LogFolder {
    path: PathBuf,
}

impl LogFolder {
    /// Creates a folder `<run_id>_<random>`, below `log_dir`, which is created with its parents, or
    /// below a new folder in `TMPDIR`.
    ///
    /// # Errors
    /// Returns the folder that cannot be created, or is a file.
    pub fn create(log_dir: Option<&Path>, run_id: &str) -> anyhow::Result<LogFolder> {
        let temporary = std::env::temp_dir();
        let root = match log_dir {
            Some(path) if path.is_file() => bail!("log_dir: {} is a file", path.display()),
            Some(path) => {
                make(path)?;
                path.to_owned()
            }
            None => {
                ensure!(
                    temporary.is_dir(),
                    "TMPDIR is `{}`, which is not a folder; logs go there without --log-dir",
                    temporary.display()
                );
                unique(&temporary, "torchelastic_")?
            }
        };
        // The path must be absolute: ranks may change their working directory before they write
        // their error file.
        let root = std::path::absolute(&root).unwrap_or(root);
        // A slash in the run id would name a folder that does not exist.
        let path = unique(&root, &format!("{}_", run_id.replace('/', "_")))?;
        Ok(LogFolder { path })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of this attempt after creating an empty folder for the rank in it. When
    /// nodes come and go, one attempt may have several rounds; the later ones are `attempt_0.1` and
    /// so on, where torchrun would delete the files of the first.
    pub fn attempt(&self, attempt: u32, local_rank: usize) -> anyhow::Result<PathBuf> {
        let first = self.path.join(format!("attempt_{attempt}"));
        let more = (1_u32..).map(|round| self.path.join(format!("attempt_{attempt}.{round}")));
        let is_free = |path: &PathBuf| !path.join(local_rank.to_string()).exists();
        let path = std::iter::once(first)
            .chain(more)
            .find(is_free)
            .unwrap_or_default();
        make(&path.join(local_rank.to_string()))?;
        Ok(path)
    }
}

fn make(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot make `{}`", path.display()))
}

/// Creates a folder for this user alone, named as by Python's `mkdtemp`: without capitals.
fn unique(parent: &Path, prefix: &str) -> anyhow::Result<PathBuf> {
    let random = jobs::launch::fresh_id()?;
    let path = parent.join(format!("{prefix}{}", &random[..RANDOM]));
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.with_context(|| format!("cannot make `{}`", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_run_folder_is_ours_alone_and_below_new_parents() {
        let root = tempfile::tempdir().expect("a folder");
        let run = LogFolder::create(Some(&root.path().join("a/b")), "job/7").expect("made");
        let name = run
            .path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("text");
        let random = name.strip_prefix("job_7_").unwrap_or_default();
        let is_of_mkdtemp = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(
            random.len() == RANDOM && random.chars().all(is_of_mkdtemp),
            "{name}"
        );
        assert_eq!(
            fs::metadata(&run.path)
                .expect("it exists")
                .permissions()
                .mode()
                & 0o777,
            0o700
        );
    }

    #[test]
    fn an_attempt_made_again_is_empty_and_wipes_nothing() {
        let root = tempfile::tempdir().expect("a folder");
        let run = LogFolder::create(Some(root.path()), "none").expect("made");
        let first = run.attempt(0, 0).expect("made");
        fs::write(first.join("0/old"), "").expect("written");
        let again = run.attempt(0, 0).expect("made");
        assert_eq!(
            (
                again.as_path(),
                fs::read_dir(again.join("0")).expect("listed").count()
            ),
            (&*run.path.join("attempt_0.1"), 0)
        );
        assert!(first.join("0/old").exists());
    }

    #[test]
    fn ranks_share_the_folder_of_an_attempt() {
        let root = tempfile::tempdir().expect("a folder");
        let run = LogFolder::create(Some(root.path()), "none").expect("made");
        assert_eq!(
            run.attempt(1, 0).expect("made"),
            run.attempt(1, 3).expect("made")
        );
    }

    #[test]
    fn a_log_dir_that_is_a_file_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let err = LogFolder::create(Some(file.path()), "none").expect_err("a file is no folder");
        assert_eq!(
            err.to_string(),
            format!("log_dir: {} is a file", file.path().display())
        );
    }
}
