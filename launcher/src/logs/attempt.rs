//! The log folder of one launch, and the log files of each attempt: creates them, hands them to the
//! ranks, and follows them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};

use crate::logs::tail::{ConsoleStream, Filtered, Followed, Tail};
use crate::plan::{LaunchPlan, Streams};
use crate::process::command::ChildOutput;
use crate::rank_id::RankId;
use crate::template::substitute;

/// Number of random characters at the end of a name, as torchrun has.
const RANDOM: usize = 8;

/// The log files of ranks that are started together.
#[derive(Debug)]
pub struct AttemptLogs {
    /// The files of each rank.
    pub ranks: Vec<RankLogs>,
    /// Follows the teed files; `None` if no stream is teed.
    pub tail: Option<Tail>,
}

/// The files of one rank.
#[derive(Debug, Default)]
pub struct RankLogs {
    /// The output streams for the process; taken when it starts.
    pub output: Option<ChildOutput>,
    /// Path for `TORCHELASTIC_ERROR_FILE`; `None` with `--log-dir /dev/null`.
    pub error_file: Option<PathBuf>,
    /// The captured files of standard error and standard output, in this order, because errors are
    /// usually written to the first.
    pub captured: Vec<PathBuf>,
}

impl AttemptLogs {
    /// Creates folders and files for these ranks, which are given with their restart counts.
    /// Without a log folder every rank writes to the console, even if its streams were to be
    /// redirected.
    ///
    /// # Errors
    /// Returns the first file that cannot be created or followed.
    pub fn create(
        run: Option<&LogFolder>,
        plan: &LaunchPlan,
        ranks: &[(RankId, u32)],
    ) -> anyhow::Result<AttemptLogs> {
        let mut shared = SharedFiles {
            plan,
            host: jobs::host::name(),
            filtered: BTreeMap::new(),
            followed: Vec::new(),
        };
        let logs = ranks.iter().map(|&(rank, attempt)| match run {
            Some(run) => shared.create(rank, &run.attempt(attempt, rank.local)?),
            None => Ok(RankLogs {
                output: Some(ChildOutput::default()),
                ..RankLogs::default()
            }),
        });
        let ranks = logs.collect::<anyhow::Result<_>>()?;
        let followed = Some(shared.followed).filter(|followed| !followed.is_empty());
        Ok(AttemptLogs {
            ranks,
            tail: followed.map(Tail::start).transpose()?,
        })
    }
}

/// What ranks that are started together share.
struct SharedFiles<'a> {
    plan: &'a LaunchPlan,
    host: String,
    /// The open files for lines that are filtered, by their paths.
    filtered: BTreeMap<PathBuf, Arc<File>>,
    followed: Vec<Followed>,
}

impl SharedFiles<'_> {
    /// Creates the files of a rank in the folder of its attempt.
    fn create(&mut self, rank: RankId, attempt: &Path) -> anyhow::Result<RankLogs> {
        let mut captured = Vec::new();
        let mut open = |stream| self.stream(rank, attempt, stream, &mut captured);
        let stderr = open(ConsoleStream::Stderr)?;
        let stdout = open(ConsoleStream::Stdout)?;
        Ok(RankLogs {
            output: Some(ChildOutput { stdout, stderr }),
            error_file: Some(attempt.join(format!("{}/error.json", rank.local))),
            captured,
        })
    }

    /// Creates the files of one stream. Returns the file to which the rank writes, if it is not the
    /// launcher's own stream.
    fn stream(
        &mut self,
        rank: RankId,
        attempt: &Path,
        stream: ConsoleStream,
        captured: &mut Vec<PathBuf>,
    ) -> anyhow::Result<Option<File>> {
        let (logs, planned) = (&self.plan.logs, &self.plan.ranks[rank.index]);
        let (name, substrings) = match stream {
            ConsoleStream::Stdout => ("stdout", &logs.duplicate_stdout),
            ConsoleStream::Stderr => ("stderr", &logs.duplicate_stderr),
        };
        let is_selected = |streams: Streams| match stream {
            ConsoleStream::Stdout => streams.stdout,
            ConsoleStream::Stderr => streams.stderr,
        };
        let filtered = match substrings.is_empty() {
            true => None,
            false => Some(Filtered {
                file: self.filtered(attempt.join(format!("filtered_{name}.log")))?,
                substrings: substrings.clone(),
            }),
        };
        // Teed streams are redirected, too.
        if !is_selected(planned.redirect) {
            let null = || append(&mut OpenOptions::new(), Path::new("/dev/null"));
            return (!planned.shown).then(null).transpose();
        }
        let path = attempt.join(format!("{}/{name}.log", rank.local));
        let file = append(OpenOptions::new().create_new(true), &path)?;
        captured.push(path.clone());
        if is_selected(planned.tee) && (planned.shown || filtered.is_some()) {
            self.followed.push(Followed {
                path,
                prefix: prefix(self.plan, rank, &self.host),
                stream,
                is_shown: planned.shown,
                filtered,
            });
        }
        Ok(Some(file))
    }

    /// Opens a file for filtered lines, which the ranks of an attempt share.
    fn filtered(&mut self, path: PathBuf) -> anyhow::Result<Arc<File>> {
        if let Some(file) = self.filtered.get(&path) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(append(OpenOptions::new().create(true), &path)?);
        self.filtered.insert(path, Arc::clone(&file));
        Ok(file)
    }
}

/// Opens a file for appending, so that a rank that opens it again overwrites nothing.
fn append(how: &mut OpenOptions, path: &Path) -> anyhow::Result<File> {
    let file = how.append(true).open(path);
    file.with_context(|| format!("cannot make `{}`", path.display()))
}

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
    /// Returns the folder that cannot be created.
    pub fn create(log_dir: Option<&Path>, run_id: &str) -> anyhow::Result<LogFolder> {
        let temporary = std::env::temp_dir();
        let root = match log_dir {
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

/// Returns the prefix of a rank's lines; `[default0]:` without a template.
fn prefix(plan: &LaunchPlan, rank: RankId, host: &str) -> String {
    let role = &plan.role;
    let Some(template) = &plan.logs.prefix_template else {
        return format!("[{role}{}]:", rank.local);
    };
    let prefix = substitute(template.as_ref(), |name| match name {
        b"role_name" => Some(role.clone()),
        b"local_rank" => Some(rank.local.to_string()),
        b"rank" => Some(rank.global.to_string()),
        b"hostname" => host.split('.').next().map(str::to_owned),
        _ => None,
    });
    prefix.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn of_rank_9(template: Option<&str>) -> String {
        let mut plan = crate::tests::plan(&["true"], 2);
        plan.logs.prefix_template = template.map(str::to_owned);
        let rank = RankId {
            index: 0,
            local: 1,
            global: 9,
        };
        prefix(&plan, rank, "node1.cluster")
    }

    #[test]
    fn without_a_template_it_is_role_and_local_rank() {
        assert_eq!(of_rank_9(None), "[default1]:");
    }

    #[test]
    fn a_template_names_role_rank_and_host() {
        let template = "<${role_name}|$rank|${local_rank}|${hostname}|$nope> ";
        assert_eq!(of_rank_9(Some(template)), "<default|9|1|node1|$nope> ");
    }

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
}
