//! Options that this version does not support: refused if the launch would differ from what was
//! asked for, mentioned in a note if they merely have no effect.

use anyhow::{bail, ensure};

use crate::cli::Cli;
use crate::plan::LaunchPlan;
use crate::plan::decide::ranks::streams::StreamMap;
use crate::plan::event_log::EventLog;
use crate::plan::rendezvous::Backend;
use crate::process::files::FileLimit;

/// Number of files that the launcher has open besides those for its ranks.
const OWN_FILES: u64 = 64;

/// Number of files that the launcher has open per rank: two logs, each followed twice, and the
/// rank's connections to the store.
const FILES_A_RANK: u64 = 8;

/// Number of store connections per rank of another node: the rank's own, and that of one more
/// process group.
const FILES_A_GUEST: u64 = 2;

/// The only entry point for `--logs-specs` that torch itself has; it means the default logs.
const LOGS_SPECS: &str = "default";

/// Refuses options that this version does not support.
///
/// # Errors
/// Returns an error for the first such option.
pub fn refuse(cli: &Cli) -> anyhow::Result<()> {
    if let Some(name) = cli.logs_specs.as_ref().filter(|name| *name != LOGS_SPECS) {
        bail!("--logs-specs {name}: Python entry points are not available in rrun");
    }
    let handler = &cli.event_log_handler;
    ensure!(
        EventLog::parse(handler).is_some(),
        "unknown event log handler '{handler}' (known: null, console, dynamic_rendezvous, json:FILE)"
    );
    Ok(())
}

/// Returns notes about options that have no effect.
pub fn notes(cli: &Cli) -> Vec<String> {
    let is_fixed = Backend::of(&cli.rdzv_backend).is_some_and(Backend::is_fixed) && !cli.standalone;
    let has_master = cli.master_addr.is_some() || cli.master_port.is_some();
    let without_files = cli
        .log_dir
        .as_deref()
        .is_some_and(|dir| dir.as_os_str() == "/dev/null");
    let wants_files = [&cli.redirects, &cli.tee]
        .into_iter()
        .any(|map| StreamMap::parse(map).is_ok_and(|map| !map.is_none()));
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
            without_files && wants_files,
            "-r and -t have no effect with --log-dir /dev/null",
        ),
    ];
    caveats
        .into_iter()
        .filter(|(applies, _)| *applies)
        .map(|(_, note)| note.to_owned())
        .collect()
}

/// Returns a warning if the limit on open files is too low for so many ranks and cannot be raised:
/// such a launch ends in "Too many open files". Ranks of other nodes count too, because any node
/// may come to host the store in which the ranks of all nodes meet.
pub fn open_files(limit: Option<FileLimit>, nnodes: usize, nproc: usize) -> Option<String> {
    let ranks = u64::try_from(nproc).unwrap_or(u64::MAX);
    let guests = ranks.saturating_mul(u64::try_from(nnodes).unwrap_or(u64::MAX).saturating_sub(1));
    let wanted = [
        ranks.saturating_mul(FILES_A_RANK),
        guests.saturating_mul(FILES_A_GUEST),
        OWN_FILES,
    ];
    let wanted = wanted.into_iter().fold(0, u64::saturating_add);
    let limit = limit
        .map(|limit| limit.hard)
        .filter(|&hard| hard < wanted)?;
    let elsewhere = if guests > 0 {
        format!(" and {guests} on other nodes")
    } else {
        String::new()
    };
    Some(format!(
        "at most {limit} files may be open (ulimit -Hn), {nproc} ranks{elsewhere} may need {wanted}"
    ))
}

/// Returns a warning if the rendezvous port is in the range for outgoing connections, one of which
/// may use it by chance, now or at the next launch. Only ports given by the user are checked: a
/// port chosen by the launch stays bound from beginning to end.
pub fn port(plan: &LaunchPlan, connections: Option<(u16, u16)>) -> Option<String> {
    let port = match &plan.rendezvous {
        Some(meeting) if meeting.file.is_some() => return None,
        Some(meeting) => meeting.port,
        None => plan.store.port.filter(|_| !plan.store.may_move)?,
    };
    let (first, last) = connections.filter(|(first, last)| (*first..=*last).contains(&port))?;
    Some(format!(
        "port {port} is in the kernel's range for outgoing connections ({first} to {last}), one of \
         which may hold it: choose a port outside"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::StorePlan;
    use crate::tests::plan;

    #[test]
    fn a_port_among_those_of_connections_is_said() {
        let said = |port| {
            let store = StorePlan {
                master_addr: "127.0.0.1".to_owned(),
                port,
                may_move: false,
            };
            crate::plan::decide::caveats::port(
                &LaunchPlan {
                    store,
                    ..plan(&["true"], 1)
                },
                Some((32_768, 60_999)),
            )
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
        assert_eq!(
            [open_files(limit, 1, 64), open_files(None, 9, 64)],
            [None, None]
        );
        let note = "at most 1024 files may be open (ulimit -Hn), 256 ranks may need 2112";
        assert_eq!(open_files(limit, 1, 256).as_deref(), Some(note));
        let note = "at most 1024 files may be open (ulimit -Hn), 64 ranks and 960 on other nodes may need 2496";
        assert_eq!(open_files(limit, 16, 64).as_deref(), Some(note));
    }
}
