//! One rank, from its command line to its exit code.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use jobs::assign::Work;
use jobs::episode::Episode;
use jobs::eval_args::EvalArgs;
use jobs::job::{Job, Length, Status};
use jobs::journal::{self, JobEnd, Journal, Line, RankEnd, RankStart};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::rank_env::RankEnv;
use jobs::setup::Setup;
use jobs::time::rfc3339;
use jobs::{known, report, table};

use crate::device::Decision;
use crate::eval::beat::Beat;
use crate::eval::job::{Audience, Desk, Earlier, JobError, Site, run as run_job};
use crate::eval::peers::Peers;
use crate::eval::policy_thread::PolicyThread;
use crate::eval::progress::Progress;
use crate::eval::seating::Seating;
use crate::eval::stop::Stop;
use crate::eval::{console, device, failure, now, outcome};
use crate::{env, policy};

/// The program `eval`: parses what follows the word, and runs this rank's share.
pub fn main(words: &[OsString]) -> ExitCode {
    let args = match EvalArgs::parse_words(words) {
        Ok(args) => args,
        Err(err) => {
            // A closed stderr changes nothing about the exit code.
            let _ = err.print();
            return ExitCode::from(u8::try_from(err.exit_code()).unwrap_or(2));
        }
    };
    match run(&args) {
        Ok(code) => code,
        Err(reason) => {
            console::err(format_args!("rrun-rank: {reason}"));
            failure::write_error_file(&reason);
            ExitCode::FAILURE
        }
    }
}

fn run(args: &EvalArgs) -> Result<ExitCode, String> {
    let stop = Stop::on_signals().map_err(|err| err.to_string())?;
    let variable = |name: &str| std::env::var(name).ok();
    let env = RankEnv::read(variable).map_err(|err| err.to_string())?;
    let setup = Setup::read(args, &variable).map_err(|err| err.to_string())?;
    let jobs_file = setup.file.path.display().to_string();
    known::check(&setup.file.jobs).map_err(|err| format!("`{jobs_file}`: {err}"))?;
    let folder = RunFolder::new(&setup.output);
    let mut seating = Seating::new(&setup, &env, &device::visible()?)?;
    let plan = RunPlan::new(args, setup.file, env.world_size, rfc3339(SystemTime::now()));
    check_arguments(&plan.jobs).map_err(|err| format!("`{jobs_file}`: {err}"))?;
    plan.check(&folder).map_err(|err| err.to_string())?;
    let device = device::decide(args, &env, &seating)?;
    let plan = plan.clone().settle(&folder).map_err(|err| err.to_string())?;
    seating.settle(&plan.jobs, &env, device.device);
    let progress = Progress::new(&env);
    progress.say(&format!("device {}", device.reason));
    device.warnings.iter().for_each(|warning| progress.say(&format!("warning: {warning}")));
    let peers = Peers::meet(&env).map_err(|err| err.to_string())?;
    let journal = Journal::open(&folder.journal(env.rank))
        .map_err(|err| format!("cannot open `{}`: {err}", folder.journal(env.rank).display()))?;
    let mut rank = Rank {
        args,
        env: &env,
        plan: &plan,
        folder: &folder,
        device: &device,
        seating: &seating,
        policy: PolicyThread::start(device.device).map_err(|err| format!("no thread for the policy: {err}"))?,
        stop: &stop,
        journal,
        company: Company { peers, progress, solo: env.world_size == 1 },
        busy_s: 0.0,
        failed: false,
    };
    rank.run(&seating.work)
}

/// What would be refused when a job's turn comes, in hours perhaps.
fn check_arguments(jobs: &[Job]) -> Result<(), String> {
    jobs.iter().filter(|job| job.status == Status::Pending).try_for_each(|job| {
        let place = |err: String| format!("job {} ({}): {err}", job.index.0, job.name);
        env::check(job).map_err(|err| place(err.to_string()))?;
        policy::check(&job.policy_type, &job.policy_config).map_err(|err| place(err.to_string()))?;
        if job.length == Length::Policy && job.policy_type != "replay_action" {
            return Err(place(JobError::NoLength { policy: job.policy_type.clone() }.to_string()));
        }
        Ok(())
    })
}

/// The episode that a line is about.
fn of_episode(line: &Line) -> Option<u64> {
    if let Line::Episode(episode) = line { Some(episode.episode) } else { None }
}

struct Rank<'a> {
    args: &'a EvalArgs,
    env: &'a RankEnv,
    plan: &'a RunPlan,
    folder: &'a RunFolder,
    device: &'a Decision,
    seating: &'a Seating,
    policy: PolicyThread,
    stop: &'a Stop,
    journal: Journal,
    company: Company,
    busy_s: f64,
    failed: bool,
}

/// The other ranks and the user: who hears of every step.
struct Company {
    peers: Peers,
    progress: Progress,
    solo: bool,
}

impl Audience for Company {
    fn on(&mut self, beat: &Beat, _: Option<&Episode>) {
        self.progress.moved(beat);
        if self.peers.tell(beat) {
            let beats: Vec<_> = if self.solo { vec![beat.clone()] } else { self.peers.look().cloned().collect() };
            self.progress.all(&beats);
        }
    }

    fn say(&mut self, text: &str) {
        self.progress.say(text);
    }
}

impl Rank<'_> {
    fn run(&mut self, own: &[Work]) -> Result<ExitCode, String> {
        let started = now();
        let before = self.earlier_lines()?;
        self.announce(&before);
        self.append(&Line::Rank(self.start_line()))?;
        let mut last = Beat::default();
        for work in own {
            last = self.job(work, &before, last.steps)?;
            if self.stop.asked() || (self.failed && !self.args.continue_on_error) {
                break;
            }
        }
        self.conclude(last, started)
    }

    /// Nothing is left to do: the others were waited for, or will not be.
    fn end(&mut self, started: Instant) -> Result<(), String> {
        self.append(&Line::RankEnd(RankEnd {
            rank: self.env.rank,
            wall_s: started.elapsed().as_secs_f64(),
            busy_s: self.busy_s,
            stopped: self.stop.asked(),
            ended: rfc3339(SystemTime::now()),
        }))
    }

    /// What earlier attempts wrote down, in this rank or another.
    fn earlier_lines(&mut self) -> Result<Vec<Line>, String> {
        let folder = self.folder.journals();
        let journals = journal::read_all(&folder)
            .map_err(|err| format!("cannot read the journals in `{}`: {err}", folder.display()))?;
        let mut lines = Vec::new();
        for (path, contents) in journals {
            if !contents.damaged.is_empty() && self.env.rank == 0 {
                let text =
                    format!("warning: `{}` lines {:?} mean nothing and are left out", path.display(), contents.damaged);
                self.company.progress.say(&text);
            }
            lines.extend(contents.lines);
        }
        Ok(lines)
    }

    fn announce(&self, before: &[Line]) {
        if self.env.rank != 0 {
            return;
        }
        console::out(table::jobs(self.plan.jobs.iter().map(|job| (job, job.status.as_str()))));
        let done: usize = report::done(before).values().map(Vec::len).sum();
        if done > 0 {
            self.company
                .progress
                .say(&format!("going on in `{}`: {done} episodes are done", self.folder.root().display()));
        }
    }

    fn start_line(&self) -> RankStart {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        RankStart {
            rank: self.env.rank,
            world_size: self.env.world_size,
            restart: self.env.restart_count,
            round: self.env.round,
            node: self.env.group_rank,
            local_rank: self.env.local_rank,
            pid: std::process::id(),
            host: host.trim().to_owned(),
            device: device::name(self.device.device),
            device_reason: self.device.reason.clone(),
            started: rfc3339(SystemTime::now()),
            ..RankStart::default()
        }
    }

    /// Runs what is left of a job; only an unwritable journal is an error of the rank.
    fn job(&mut self, work: &Work, before: &[Line], steps: u64) -> Result<Beat, String> {
        let job = &work.job;
        // A job in steps that was interrupted begins again; its episodes are not those of another attempt.
        let before = report::about(before, job.index);
        let again = matches!(job.length, Length::Steps(_));
        let earlier = if again { Vec::new() } else { before.clone() };
        let mut done = report::done(earlier.iter().copied()).remove(&job.index).unwrap_or_default();
        done.retain(|episode| work.runs(*episode));
        let solved =
            report::solved(earlier.into_iter().filter(|line| of_episode(line).is_none_or(|e| work.runs(e))), job.index);
        let mut beat = Beat { job: job.name.clone(), steps, done: done.len() as u64, solved, ..Beat::default() };
        if report::finished(before.iter().copied(), job, work.share) {
            return Ok(beat);
        }
        let earlier = Earlier { done, lines: before };
        let started = now();
        let site = Site {
            args: self.args,
            env: self.env,
            device: self.device.device,
            work,
            place: self.seating.place(self.args, self.env, work, self.device.device),
            policy: &self.policy,
            seed: self.plan.seed,
            folder: self.folder,
            stop: self.stop,
        };
        let mut desk = Desk { journal: &mut self.journal, audience: &mut self.company };
        let (totals, result) = run_job(&site, job, &earlier, &mut desk, &mut beat);
        self.busy_s += started.elapsed().as_secs_f64();
        let error = match result {
            Err(JobError::Stopped) => return Ok(beat),
            Err(JobError::Journal { path, err }) => return Err(format!("cannot write `{}`: {err}", path.display())),
            Err(err) => Some(err.to_string()),
            Ok(()) => None,
        };
        self.company.progress.job_ended(&beat, started.elapsed());
        if let Some(error) = &error {
            self.failed = true;
            self.company.progress.say(&format!("{} failed: {error}", job.name));
            failure::write_error_file(&format!("{}: {error}", job.name));
        }
        self.append(&Line::JobEnd(JobEnd {
            job_index: job.index,
            rank: self.env.rank,
            share: work.share,
            error,
            wall_s: started.elapsed().as_secs_f64(),
            env_steps: totals.env_steps,
            frames: totals.frames,
            policy_calls: totals.infer.count(),
            infer_busy_s: totals.infer_busy.as_secs_f64(),
            sim_busy_s: totals.sim_busy.total().as_secs_f64(),
            env_restarts: totals.env_restarts,
            record_waits: totals.record_waits,
            record_wait_s: totals.record_wait.as_secs_f64(),
            infer_ms: totals.infer.quantiles(),
            sim_ms: totals.sim.quantiles(),
            peak_rss_bytes: failure::peak_rss_bytes(),
            ended: rfc3339(SystemTime::now()),
            ..JobEnd::default()
        }))?;
        Ok(beat)
    }

    fn append(&mut self, line: &Line) -> Result<(), String> {
        self.journal.append(line).map_err(|err| format!("cannot write `{}`: {err}", self.journal.path().display()))
    }

    /// Waits for the others, and reports. A rank that was stopped, or whose job failed without `--continue-on-error`,
    /// does not wait: its end stops the others, as torchrun's ranks do.
    fn conclude(&mut self, last: Beat, started: Instant) -> Result<ExitCode, String> {
        let early = if self.stop.asked() {
            Some("stopped by a signal".to_owned())
        } else if self.failed && !self.args.continue_on_error {
            Some("a job failed, and --continue-on-error is not given".to_owned())
        } else {
            None
        };
        if let Some(reason) = early {
            self.end(started)?;
            return self.conclude_early(reason);
        }
        let Company { peers, progress, .. } = &mut self.company;
        let lost = peers.wait_for_all(last, self.args.gather_timeout(), self.stop, |beats| progress.all(beats));
        self.end(started)?;
        if self.stop.asked() {
            return self.conclude_early("stopped by a signal".to_owned());
        }
        let together = outcome::bring_together(self.env, self.folder, &self.company.peers, self.device.device, &lost);
        self.company.progress.finish();
        if let Some(note) = &together.note {
            self.company.progress.say(&format!("warning: {note}"));
        }
        if self.env.rank != 0 {
            if self.failed {
                self.company.peers.wait_for_report(self.args.gather_timeout());
            }
            return Ok(if self.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        let report = outcome::report(self.folder, self.plan, together)?;
        self.company.peers.report_is_written();
        if report.complete() {
            return Ok(ExitCode::SUCCESS);
        }
        failure::write_error_file(&table::conclusion(&report));
        Ok(ExitCode::FAILURE)
    }

    fn conclude_early(&self, reason: String) -> Result<ExitCode, String> {
        self.company.progress.finish();
        if self.env.rank == 0 {
            outcome::report(self.folder, self.plan, outcome::from_disk(self.env, self.folder, reason))?;
        }
        Ok(ExitCode::FAILURE)
    }
}
