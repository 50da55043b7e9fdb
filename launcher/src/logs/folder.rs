//! The log folder of one launch, and those of its attempts.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::logs::LogError;

/// The characters that Python's `mkdtemp` uses, by which torchrun names its folders.
const ALPHABET: &[u8; 37] = b"abcdefghijklmnopqrstuvwxyz0123456789_";

/// Number of random characters at the end of a name, as in `mkdtemp`.
const RANDOM: usize = 8;

/// Attempts to find a free name; with 37^8 names the first one is free unless something is wrong.
const TRIES: usize = 100;

/// The log folder of one launch, with mode 0700.
#[derive(Clone, Debug)]
pub struct LogFolder {
    path: PathBuf,
}

impl LogFolder {
    /// Creates a folder `<run_id>_<random>`, below `log_dir`, which is created with its parents, or
    /// below a new folder in `TMPDIR`.
    pub fn create(log_dir: Option<&Path>, run_id: &str) -> Result<LogFolder, LogError> {
        let root = match log_dir {
            Some(path) if path.is_file() => {
                return Err(LogError::NotAFolder {
                    path: path.to_path_buf(),
                });
            }
            Some(path) => make(path.to_path_buf(), |path| fs::create_dir_all(path))?,
            None => unique(&temporary_folder()?, "torchelastic_")?,
        };
        // The path must be absolute: ranks may change their working directory before they write
        // their error file.
        let root = std::path::absolute(&root).unwrap_or(root);
        // A slash in the run id would name a folder that does not exist.
        Ok(LogFolder {
            path: unique(&root, &format!("{}_", run_id.replace('/', "_")))?,
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of this attempt after creating an empty folder for the rank in it. When
    /// nodes come and go, one attempt may have several rounds; the later ones are `attempt_0.1` and
    /// so on, where torchrun would delete the files of the first.
    pub fn attempt(&self, attempt: u32, local_rank: usize) -> Result<PathBuf, LogError> {
        let first = self.path.join(format!("attempt_{attempt}"));
        let more = (1_u32..).map(|round| self.path.join(format!("attempt_{attempt}.{round}")));
        let is_free = |path: &PathBuf| !path.join(local_rank.to_string()).exists();
        let path = std::iter::once(first)
            .chain(more)
            .find(is_free)
            .unwrap_or_default();
        make(path.join(local_rank.to_string()), |path| {
            fs::create_dir_all(path)
        })?;
        Ok(path)
    }
}

/// Returns the folder that TMPDIR names, or `/tmp`.
fn temporary_folder() -> Result<PathBuf, LogError> {
    let path = std::env::temp_dir();
    match path.is_dir() {
        true => Ok(path),
        false => Err(LogError::NoTemporaryFolder { path }),
    }
}

/// Creates `path` by calling `how`.
pub(crate) fn make(
    path: PathBuf,
    how: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<PathBuf, LogError> {
    match how(&path) {
        Ok(()) => Ok(path),
        Err(err) => Err(LogError::Make { path, err }),
    }
}

fn unique(parent: &Path, prefix: &str) -> Result<PathBuf, LogError> {
    make_first((0..TRIES).map(|_| parent.join(format!("{prefix}{}", random()))))
}

fn make_first(mut names: impl Iterator<Item = PathBuf>) -> Result<PathBuf, LogError> {
    let mut last = LogError::Make {
        path: PathBuf::new(),
        err: io::ErrorKind::AlreadyExists.into(),
    };
    names
        .find_map(
            |path| match make(path, |path| DirBuilder::new().mode(0o700).create(path)) {
                Err(LogError::Make { path, err }) if err.kind() == io::ErrorKind::AlreadyExists => {
                    last = LogError::Make { path, err };
                    None
                }
                made_or_hopeless => Some(made_or_hopeless),
            },
        )
        .unwrap_or(Err(last))
}

fn random() -> String {
    // The hash keys of a new `RandomState` are random numbers of the system.
    let mut number = RandomState::new().build_hasher().finish();
    let base = ALPHABET.len() as u64;
    (0..RANDOM)
        .map(|_| {
            let index = (number % base) as usize;
            number /= base;
            char::from(ALPHABET[index])
        })
        .collect()
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
        assert!(
            name.starts_with("job_7_") && name.len() == "job_7_".len() + RANDOM,
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

    #[test]
    fn a_taken_name_is_passed_over() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("a")).expect("made");
        let names = [root.path().join("a"), root.path().join("b")];
        assert_eq!(
            make_first(names.clone().into_iter()).expect("b is free"),
            names[1]
        );
    }
}
