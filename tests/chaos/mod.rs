//! Chaos tests: evaluations with random faults (kills, stops, resets, full disks) on 1 to 4 ranks.
//! After they were resumed to their end, all results must be those of an undisturbed run.
//!
//! ```text
//! scenario (from a seed) ─► launch ─► faults ─► end ─► torn journal? ─► resume … ─► checks
//! ```
//! A cluster of several nodes is in [`soak`].
//!
//! `RRUN_CHAOS_RUNS`, `RRUN_CHAOS_SEED` and `RRUN_CHAOS_FIRST` select the number of runs and which;
//! `RRUN_CHAOS_KEEP` is a path to which the folder of the last failed run is moved.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;

mod checks;
mod fault;
mod scenario;
mod soak;
mod tally;

use checks::{Expected, check};
use fault::{Fault, Target};
use scenario::{LAUNCHES, Scenario};
use tally::Tally;

use rig::disk::SmallDisk;

/// Returns the number in a variable of this process, if it is set.
fn setting<T: FromStr<Err: Debug>>(variable: &str, default: T) -> T {
    std::env::var(variable)
        .ok()
        .map_or(default, |text| text.parse().expect("expected a number"))
}

/// Runs `runs` scenarios, prints a tally, and fails if any check has failed.
fn campaign(runs: u64) {
    let base = setting("RRUN_CHAOS_SEED", 1);
    let expected = Expected::undisturbed();
    let (mut tally, mut violations) = (Tally::default(), Vec::new());
    let first = setting("RRUN_CHAOS_FIRST", 0);
    for run in first..first + setting("RRUN_CHAOS_RUNS", runs) {
        let scenario = Scenario::new(base, run);
        // A run that does not end is one violation, and no reason to stop.
        let found = catch_unwind(AssertUnwindSafe(|| {
            disturbed(&scenario, &expected, &mut tally)
        }))
        .unwrap_or_else(|panic| Err(panic.downcast_ref::<String>().cloned().unwrap_or_default()));
        match &found {
            Ok(()) => eprintln!("run {run}: as undisturbed"),
            Err(reason) => eprintln!("run {run} of seed {base}: {reason}\n{scenario:#?}"),
        }
        let again = format!("RRUN_CHAOS_SEED={base} RRUN_CHAOS_FIRST={run} RRUN_CHAOS_RUNS=1");
        violations.extend(
            found
                .err()
                .map(|reason| format!("{again}: {scenario:?}: {reason}")),
        );
    }
    println!("{tally}");
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Runs one scenario to its end; returns the check that failed.
fn disturbed(scenario: &Scenario, expected: &Expected, tally: &mut Tally) -> Result<(), String> {
    let disk = scenario
        .needs_disk()
        .then(|| SmallDisk::mount("48m"))
        .flatten();
    let mut eval = scenario.eval(disk.as_ref());
    let mut said = String::new();
    for launch in &scenario.launches {
        eval = eval.world_of(launch.ranks);
        let (running, started) = (eval.start(), rig::wait::now());
        let target = Target {
            running: &running,
            mark: &scenario.mark,
            disk: disk.as_ref(),
        };
        for (at, fault) in &launch.faults {
            fault::sleep_until(&running, started + *at);
            tally.fault(fault, target.suffer(fault));
        }
        let ended = running.wait();
        checks::nothing_is_left(&scenario.mark)?;
        if ended.code == 0 {
            let found = check(&eval, expected);
            if let (Err(_), Some(keep)) = (&found, std::env::var_os("RRUN_CHAOS_KEEP")) {
                let kept = std::fs::rename(eval.folder().root(), &keep);
                eprintln!("kept in {}: {kept:?}", keep.display());
            }
            return found;
        }
        if launch.tear.is_some_and(|draw| fault::tear(&eval, draw)) {
            tally.fault(Fault::TornJournal, true);
        }
        said = format!("{}\n{}", ended.stdout, ended.stderr);
    }
    Err(format!("not done after {LAUNCHES} launches:\n{said}"))
}

#[test]
fn disturbed_runs_end_as_undisturbed_ones() {
    campaign(6);
}

#[test]
#[ignore = "200 runs: about half an hour"]
fn two_hundred_disturbed_runs_end_as_undisturbed_ones() {
    campaign(200);
}
