//! The end of a rank: its last journal line, the wait for the other ranks, and the exit code. The
//! journals of all ranks are gathered, and rank 0 writes the report.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use jobs::count::counted;
use jobs::journal::{Line, RankEnd};
use jobs::live::Commands;
use jobs::rank_env::FINAL;
use jobs::time::{local_minute, rfc3339};
use report::{Context, Journals, Merged, Report, tables};
use tcpstore::{Deadline, Store};
use torchlib::torch_error::is_hardware_failure;
use torchlib::{Gathering, Route};

use crate::console;
use crate::eval::Stop;
use crate::eval::monitor::early_stop::EarlyStop;
use crate::eval::monitor::peers::Peers;
use crate::eval::rank::{Evaluation, policy_files};
use crate::eval::rank_setup::RankSetup;

impl Evaluation {
    /// Waits for the other ranks and writes the report. A rank that was stopped, or whose job
    /// failed without `--continue-on-error`, does not wait; in the second case it also calls off
    /// the other ranks.
    ///
    /// # Errors
    /// Returns a [`Stop`] if the journal or the report cannot be written.
    pub(super) fn conclude(&mut self) -> Result<ExitCode, Stop> {
        if let Some(reason) = self.reason_not_to_wait() {
            self.end()?;
            return self.conclude_early(reason);
        }
        let timeout = self.run.args.gather_timeout();
        let lost = self.out.monitor.wait_for_all(timeout);
        self.note_decision()?;
        self.end()?;
        if let Some(reason) = self.out.monitor.stop.reason() {
            return self.conclude_early(reason);
        }
        let peers = &self.out.monitor.peers;
        let (delivered, context, note) = bring_together(&self.run, peers, &lost);
        self.out.monitor.screen.finish();
        if let Some(note) = note {
            self.out.monitor.say(&format!("warning: {note}"));
        }
        if self.run.env.rank != 0 {
            if self.failed.is_none() {
                return Ok(ExitCode::SUCCESS);
            }
            self.out.monitor.wait_for_report(timeout);
            return Ok(ExitCode::from(FINAL));
        }
        let report = self.write_report(delivered, context)?;
        if let Some(ended) = self.done_before.as_ref().filter(|_| report.complete()) {
            let episodes = counted(report.overall.episodes, "episode");
            let at = local_minute(ended);
            console::out(format_args!(
                "nothing was run: all {episodes} were there ({at})"
            ));
        }
        // The launcher tells what a user has left out on the page; the rank has not failed.
        let is_as_asked = self.failed.is_none() && report.lacks_only_what_was_asked();
        if report.complete() || is_as_asked {
            return Ok(ExitCode::SUCCESS);
        }
        console::write_error_file(&tables::conclusion(&report));
        Ok(ExitCode::from(FINAL))
    }

    /// Returns why this rank ends without the others: it was stopped, or its job failed for good.
    fn reason_not_to_wait(&self) -> Option<String> {
        if let Some(reason) = self.out.monitor.stop.reason() {
            return Some(reason);
        }
        let failed = self.failed.as_ref()?;
        if self.run.args.continue_on_error {
            return None;
        }
        let reason = format!("a job failed, and --continue-on-error is not given: {failed}");
        self.out.monitor.peers.call_off(&reason);
        Some(reason)
    }

    fn conclude_early(&mut self, reason: String) -> Result<ExitCode, Stop> {
        self.out.monitor.screen.finish();
        if self.run.env.rank == 0 {
            // There is no time to gather: the journals in the run folder have to do.
            let context = Context {
                stopped: Some(reason),
                ..Context::now()
            };
            self.write_report(Vec::new(), context)?;
        }
        Ok(ExitCode::from(FINAL))
    }

    /// Writes the journal line with the decision of the sequential test, unless the rank was
    /// stopped before there was one.
    fn note_decision(&mut self) -> Result<(), Stop> {
        self.out.monitor.look();
        let early_stop = self.out.monitor.early_stop.as_ref();
        match early_stop.and_then(EarlyStop::decision) {
            Some(decision)
                if !self.out.monitor.stop.asked() || self.out.monitor.stop.is_decided =>
            {
                self.out.write(&Line::Decision(Box::new(decision)))
            }
            _ => Ok(()),
        }
    }

    /// Writes the report and prints the tables, with that of a reference if there is one; then the
    /// trackers get the results.
    ///
    /// # Errors
    /// Returns a [`Stop`] if a file cannot be read or written.
    fn write_report(&mut self, delivered: Delivered, context: Context) -> Result<Report, Stop> {
        let RankSetup { folder, plan, .. } = &self.run;
        let monitor = &mut self.out.monitor;
        let failed = |err: std::io::Error| {
            let what = format_args!("cannot write the report into `{}`", folder.root().display());
            Stop::rank(what, err)
        };
        let on_disk = Journals::of(folder).map_err(failed)?;
        let journals = on_disk.and_delivered(delivered);
        let merged = Merged::new(plan.clone(), journals).map_err(failed)?;
        let context = Context {
            commands: Commands::found(folder),
            ..context
        };
        let report = report::write(folder, &merged, context).map_err(failed)?;
        let reference = monitor.early_stop.as_ref().and_then(EarlyStop::table);
        let summary = tables::summary(plan, &report, reference);
        console::out(format_args!("\n{summary}"));
        console::out(format_args!("report: {}", folder.report().display()));
        console::out(format_args!("page:   {}", folder.page().display()));
        let board = monitor.board.as_mut();
        if let Some(tracking) = board.and_then(|board| board.tracking.take()) {
            let notes = tracking.finish(&report, folder, &monitor.stop);
            notes.iter().for_each(|note| monitor.say(note));
        }
        // A rank that has waited for this exits, and the launcher may then stop this rank.
        monitor.peers.report_is_written();
        Ok(report)
    }

    /// Writes the last journal line. The other ranks have been waited for, or will not be.
    fn end(&mut self) -> Result<(), Stop> {
        self.note_policy_files(match self.out.monitor.stop.asked() {
            true => Duration::ZERO,
            false => policy_files::PATIENCE,
        })?;
        self.write_end(None)
    }

    /// Writes the last journal line of a rank that has lost its GPU; returns the error with which
    /// it ends.
    pub(super) fn lose(&mut self, reason: String) -> Result<Stop, Stop> {
        self.write_end(Some(&reason))?;
        let rank = self.run.env.rank;
        Ok(Stop::rank(format_args!("rank {rank} ends"), reason))
    }

    fn write_end(&mut self, failure: Option<&str>) -> Result<(), Stop> {
        self.out.write(&Line::RankEnd(RankEnd {
            rank: self.run.env.rank,
            wall_s: self.begun.elapsed().as_secs_f64(),
            busy_s: self.busy_s,
            stopped: failure.is_none() && self.out.monitor.stop.asked(),
            is_hardware: failure.is_some_and(is_hardware_failure),
            failure: failure.map(str::to_owned),
            ended: rfc3339(SystemTime::now()),
        }))
    }
}

/// Time limit for the gather: all ranks have arrived or are lost, so only data is left to be moved.
const GATHER: Duration = Duration::from_secs(60);

/// Rank and bytes of the journals that other ranks sent; those in the run folder are read from
/// there.
type Delivered = Vec<(usize, Vec<u8>)>;

/// Gathers the journals of all ranks on rank 0. The other ranks send theirs and get nothing back.
/// Returns them with facts about the run for the report, and a note for the user.
fn bring_together(
    setup: &RankSetup,
    peers: &Peers,
    lost: &[usize],
) -> (Delivered, Context, Option<String>) {
    let (env, folder, device) = (&setup.env, &setup.folder, setup.device.device);
    let mine = std::fs::read(folder.journal(env.rank)).unwrap_or_default();
    let (mut delivered, mut note) = (Vec::new(), None);
    let mut context = Context::now();
    let gathering = |store: &Store| Gathering {
        store: store.prefix(&format!("rrun/gather/{}/{}", env.run_id, env.round)),
        rank: env.rank,
        world: env.world_size,
        device,
        // NCCL needs rank 0, so it is not used if rank 0 is lost.
        own_gpu_each: matches!(device, tch::Device::Cuda(_)) && !lost.contains(&0),
        // A lost rank never sends its journal, and the others need only seconds.
        until: Deadline::after(if lost.is_empty() { GATHER } else { GATHER / 6 }),
    };
    let gathered = match &peers.store {
        _ if env.world_size == 1 => None,
        None => Some(Err("there is no store".to_owned())),
        Some(store) => Some(gathering(store).run(mine).map_err(|err| err.to_string())),
    };
    let mut parts = vec![None; env.world_size];
    match gathered {
        None => context.route = "single".to_owned(),
        Some(Ok(gathered)) => {
            (parts, note) = (gathered.parts, gathered.note);
            let route = match gathered.route {
                Route::Store => "store",
                Route::Nccl => "nccl",
            };
            context.route = route.to_owned();
        }
        Some(Err(err)) => note = Some(format!("results were not gathered: {err}")),
    }
    for (rank, part) in parts.into_iter().enumerate() {
        match part {
            _ if rank == env.rank => {}
            Some(part) => delivered.push((rank, part)),
            None => context.missing_ranks.push(rank),
        }
    }
    (delivered, context, note)
}
