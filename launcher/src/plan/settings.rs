//! Options for the whole launch: logs, signals, time to end, failures, and what is said about them
//! before the start.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};

use crate::cli::int;
use crate::cli::{Cli, Environment};
use crate::node::FileLimit;
use crate::plan::meeting::MeetingPlan;
use crate::plan::{Backend, FailurePolicy, LogPlan, Sender, SignalPlan};
use crate::say::Note;
use crate::signals::names::signal_number;

/// The value of `--log-dir` that disables all log files.
const NO_FOLDER: &str = "/dev/null";

/// torchrun's time between SIGTERM and SIGKILL (torch/distributed/elastic/multiprocessing/api.py,
/// torch 2.11).
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The variable for the default in seconds, known since torch 2.12.
const SHUTDOWN_VARIABLE: &str = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";

/// Default number of restarts per rank of a built-in program. A night of evaluations survives a few
/// crashes of a simulator or a driver; a crash at every start uses them up within seconds.
pub(crate) const RESTARTS: u32 = 6;

/// The only entry point for `--logs-specs` that torch itself has; it means the default logs.
const LOGS_SPECS: &str = "default";

/// Number of files that the launcher has open besides those for its ranks.
const OWN_FILES: u64 = 64;

/// Number of files that the launcher has open per rank: two logs, each followed twice, and the
/// rank's connections to the store.
const FILES_A_RANK: u64 = 8;

/// Number of store connections per rank of another node: the rank's own, and that of one more
/// process group.
const FILES_A_GUEST: u64 = 2;

/// Refuses options that this version does not support, if the launch would differ from what was
/// asked for. `--monitor-interval` must be a valid time but has no effect, because the launcher
/// sees an exit at once.
///
/// # Errors
/// Returns an error for the first such option.
pub(super) fn refuse(cli: &Cli) -> anyhow::Result<()> {
    let interval = cli.monitor_interval;
    let specs = cli.logs_specs.as_deref().unwrap_or(LOGS_SPECS);
    ensure!(
        specs == LOGS_SPECS,
        "--logs-specs {specs}: Python entry points are not available in rrun"
    );
    ensure!(
        interval > 0.0,
        "monitor_interval must be > 0, got {interval}"
    );
    Ok(())
}

/// Returns warnings about options that have no effect.
pub(super) fn notes(cli: &Cli, want_files: bool) -> impl Iterator<Item = Note> {
    let is_fixed = Backend::of(&cli.rdzv_backend).is_some_and(Backend::is_fixed) && !cli.standalone;
    let has_master = cli.master_addr.is_some() || cli.master_port.is_some();
    let caveats = [
        (
            !is_fixed && has_master,
            "master_addr is only used for static rdzv_backend and when rdzv_endpoint is not specified.",
        ),
        (
            cli.standalone && cli.node_rank != 0,
            "--node-rank has no effect with --standalone",
        ),
        (
            want_files && has_no_files(cli),
            "-r and -t have no effect with --log-dir /dev/null",
        ),
    ];
    let applying = caveats.into_iter().filter(|(applies, _)| *applies);
    applying.map(|(_, note)| Note::warning(note))
}

fn has_no_files(cli: &Cli) -> bool {
    cli.log_dir.as_deref() == Some(Path::new(NO_FOLDER))
}

/// Returns a warning if the limit on open files is too low for so many ranks and cannot be raised:
/// such a launch ends in "Too many open files". Ranks of other nodes count too, because any node
/// may come to host the store in which the ranks of all nodes meet.
pub(super) fn open_files(limit: Option<FileLimit>, nnodes: usize, nproc: usize) -> Option<Note> {
    let ranks = nproc as u64;
    let guests = ranks.saturating_mul((nnodes as u64).saturating_sub(1));
    let wanted = ranks
        .saturating_mul(FILES_A_RANK)
        .saturating_add(guests.saturating_mul(FILES_A_GUEST))
        .saturating_add(OWN_FILES);
    let limit = limit?.hard;
    let elsewhere = match guests {
        0 => String::new(),
        guests => format!(" and {guests} on other nodes"),
    };
    (limit < wanted).then(|| {
        Note::warning(format!(
            "at most {limit} files may be open (ulimit -Hn), {nproc} ranks{elsewhere} may need \
             {wanted}"
        ))
    })
}

/// Returns a warning if the rendezvous port is in the range for outgoing connections, one of which
/// may use it by chance, now or at the next launch. Only ports given by the user are checked: a
/// port chosen by the launch stays bound from beginning to end.
pub(super) fn port(meeting: &MeetingPlan, connections: Option<(u16, u16)>) -> Option<Note> {
    let port = match &meeting.rendezvous {
        Some(rendezvous) if rendezvous.file.is_some() => return None,
        Some(rendezvous) => rendezvous.port,
        None => meeting.store.port.filter(|_| !meeting.store.may_move)?,
    };
    let (first, last) = connections.filter(|(first, last)| (*first..=*last).contains(&port))?;
    Some(Note::warning(format!(
        "port {port} is in the kernel's range for outgoing connections ({first} to {last}), one of \
         which may hold it: choose a port outside"
    )))
}

impl FailurePolicy {
    /// Returns the policy for `--failure-policy`. By default ranks of a built-in program are
    /// independent; those of any other program may depend on each other.
    pub fn new(cli: &Cli) -> FailurePolicy {
        match cli.failure_policy {
            Some(policy) => policy,
            None if cli.is_built_in() => FailurePolicy::Isolate,
            None => FailurePolicy::Torchrun,
        }
    }

    /// Returns `--max-restarts`, which applies to all ranks together or to each rank.
    ///
    /// # Errors
    /// Returns an error for a negative number.
    pub fn max_restarts(self, cli: &Cli) -> anyhow::Result<u32> {
        if self == FailurePolicy::Isolate && cli.is_built_in() && !cli.is_given("max-restarts") {
            return Ok(RESTARTS);
        }
        let given = cli.max_restarts;
        u32::try_from(given).map_err(|_| anyhow!("max_restarts must be >= 0, got {given}"))
    }
}

/// Returns `--shutdown-timeout`, else the value of its variable, else what the cluster leaves, or
/// 30 s.
///
/// # Errors
/// Returns an error if the value is not a whole number of seconds.
pub(super) fn shutdown_timeout(
    cli: &Cli,
    env: &Environment,
    inferred: Option<Duration>,
) -> anyhow::Result<Duration> {
    let (from, found) = match (cli.shutdown_timeout, env.get(SHUTDOWN_VARIABLE)) {
        (Some(seconds), _) => ("--shutdown-timeout", seconds.to_string()),
        (None, Some(text)) => (SHUTDOWN_VARIABLE, text.to_string_lossy().into_owned()),
        (None, None) => return Ok(inferred.unwrap_or(SHUTDOWN_TIMEOUT)),
    };
    // Limited to 32 bits, so that a deadline can be computed from it.
    let seconds = int(&found).and_then(|seconds| u32::try_from(seconds).ok());
    let seconds = seconds.with_context(|| {
        format!("{from}: the shutdown timeout must be a whole number of seconds >= 0, got {found}")
    })?;
    Ok(Duration::from_secs(seconds.into()))
}

impl SignalPlan {
    /// Returns the signals of a comma-separated list, and a warning for each unknown name.
    pub fn new(spec: &str, sender: Sender) -> (SignalPlan, Vec<Note>) {
        let (mut numbers, mut notes) = (Vec::new(), Vec::new());
        let names = spec.split(',').map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            match signal_number(name) {
                Some(number) if numbers.contains(&number) => {}
                Some(number) => numbers.push(number),
                None => notes.push(Note::warning(format!(
                    "Failed to register signal handler for {name}: there is no such signal"
                ))),
            }
        }
        let spec = spec.to_owned();
        let signals = SignalPlan {
            sender,
            spec,
            numbers,
        };
        (signals, notes)
    }
}

impl LogPlan {
    /// Returns the log plan that `cli` and `env` ask for.
    ///
    /// # Errors
    /// Returns an error if the log folder is a file.
    pub fn new(cli: &Cli, env: &Environment) -> anyhow::Result<LogPlan> {
        let disabled = has_no_files(cli);
        // An empty path means none, as in Python.
        let dir = cli.log_dir.clone();
        let dir = dir.filter(|dir| !dir.as_os_str().is_empty() && !disabled);
        if let Some(dir) = &dir {
            let is_file = dir.exists() && !dir.is_dir();
            ensure!(!is_file, "log_dir: {} is a file", dir.display());
        }
        let template = env.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
        let template = template.map(|text| text.to_string_lossy().into_owned());
        Ok(LogPlan {
            dir,
            disabled,
            duplicate_stdout: texts(&cli.duplicate_stdout_filters),
            duplicate_stderr: texts(&cli.duplicate_stderr_filters),
            prefix_template: cli.log_line_prefix_template.clone().or(template),
        })
    }
}

/// Splits a comma-separated list in which `,,` is a literal comma. Empty texts are left out,
/// because every line contains them.
fn texts(list: &str) -> Vec<String> {
    let (mut texts, mut text) = (Vec::new(), String::new());
    let mut letters = list.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ',' if letters.next_if_eq(&',').is_none() => texts.push(std::mem::take(&mut text)),
            letter => text.push(letter),
        }
    }
    texts.push(text);
    texts.retain(|text| !text.is_empty());
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::StorePlan;
    use crate::tests::cli;

    #[test]
    fn a_port_among_those_of_connections_is_said() {
        let said = |port| {
            let meeting = MeetingPlan {
                run_id: String::new(),
                store: StorePlan {
                    master_addr: "127.0.0.1".to_owned(),
                    port,
                    may_move: false,
                    is_shared: true,
                },
                rendezvous: None,
            };
            crate::plan::settings::port(&meeting, Some((32_768, 60_999))).map(String::from)
        };
        assert_eq!(
            [said(None), said(Some(29_500)), said(Some(61_000))],
            [None, None, None]
        );
        assert!(
            said(Some(40_000))
                .is_some_and(|note| note.starts_with("port 40000 is in the kernel's range"))
        );
    }

    #[test]
    fn a_limit_on_files_is_said_where_it_will_hurt() {
        let limit = Some(FileLimit {
            soft: 256,
            hard: 1024,
        });
        let said = |limit, nodes, ranks| open_files(limit, nodes, ranks).map(String::from);
        assert_eq!([said(limit, 1, 64), said(None, 9, 64)], [None, None]);
        let note = "at most 1024 files may be open (ulimit -Hn), 256 ranks may need 2112";
        assert_eq!(said(limit, 1, 256).as_deref(), Some(note));
        let note = "at most 1024 files may be open (ulimit -Hn), 64 ranks and 960 on other nodes \
                    may need 2496";
        assert_eq!(said(limit, 16, 64).as_deref(), Some(note));
    }

    #[test]
    fn ranks_of_built_in_programs_fail_each_for_itself_and_others_together() {
        let (isolate, torchrun) = (FailurePolicy::Isolate, FailurePolicy::Torchrun);
        for (line, wanted) in [
            ("eval --jobs j", (isolate, 6)),
            ("serve --policy p", (isolate, 6)),
            ("train.py", (torchrun, 0)),
            // A program of that name is not ours.
            ("--no-python eval", (torchrun, 0)),
            // Either can be asked for, and a number of restarts that is given counts.
            ("--failure-policy torchrun eval --jobs j", (torchrun, 0)),
            ("--failure_policy=isolate worker.py", (isolate, 0)),
            ("--max-restarts 0 eval --jobs j", (isolate, 0)),
            (
                "--max-restarts 7 --failure-policy isolate worker.py",
                (isolate, 7),
            ),
        ] {
            let cli = cli(line, &Environment::default());
            let policy = FailurePolicy::new(&cli);
            let restarts = policy.max_restarts(&cli).unwrap();
            assert_eq!((policy, restarts), wanted, "{line}");
        }
    }
}
