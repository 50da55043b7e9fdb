//! `rrun top DIR`: shows a run that is under way, from any machine that sees its folder.
//!
//! Reads the plan and the journals, and asks nobody. On a terminal the frame is drawn again and
//! again in place; elsewhere frames follow one another.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use jobs::refusal::Refusal;
use jobs::time::{Moment, now, rfc3339};
use report::live::{LiveRun, TextSize, frame};
use terminal_size::{Height, Width, terminal_size_of};

use crate::tools::open;

/// Size of a frame that is not for a terminal.
const PAPER: TextSize = TextSize {
    columns: 100,
    rows: 60,
};

/// Time between two frames.
const INTERVAL: Duration = Duration::from_secs(2);

/// A look is followed by a pause of at least this many times its duration, so that a large run costs
/// its file server little.
const PAUSE: u32 = 9;

/// Show a run that is under way: progress, rates, and what each rank does.
///
/// Reads the plan and the journals in the run folder, from any machine that sees it, and nothing
/// twice. Ends when the run does.
#[derive(Debug, clap::Args)]
pub(super) struct TopArgs {
    /// Run folder
    #[arg(value_name = "DIR")]
    folder: OsString,

    /// Print one frame and end
    #[arg(long)]
    once: bool,
}

pub(super) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    // A folder that is none is refused as by all tools.
    let (folder, _) = open(&args.folder)?;
    let mut run = LiveRun::open(folder)?;
    let is_terminal = io::stdout().is_terminal();
    loop {
        let began = now();
        let size = if is_terminal { screen() } else { PAPER };
        let (text, is_under_way) = look(&mut run, began, size)?;
        let is_shown = show(&text, is_terminal && !args.once)?;
        if args.once || !is_under_way || !is_shown {
            return Ok(ExitCode::SUCCESS);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "nobody tells of changes on a shared disk"
        )]
        sleep(INTERVAL.max(began.elapsed() * PAUSE));
    }
}

/// Looks at a run; returns a frame, and whether the run is under way.
fn look(run: &mut LiveRun, now: Instant, size: TextSize) -> Result<(String, bool), Refusal> {
    run.refresh(now)?;
    let at = SystemTime::now();
    let report = run.report(at)?;
    let view = run.view(&report, Moment::parse(&rfc3339(at)));
    Ok((frame(&view, size), view.is_under_way))
}

/// Prints a frame: in the place of the last one, or below it. Returns whether somebody reads on.
fn show(text: &str, in_place: bool) -> io::Result<bool> {
    let text = match in_place {
        // Home, the lines with what is right of them erased, and what is below erased.
        true => format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")),
        false => format!("{text}\n"),
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        done => done.map(|()| true),
    }
}

/// Returns the size of the terminal, without its last line, where the cursor is.
fn screen() -> TextSize {
    match terminal_size_of(io::stdout()) {
        Some((Width(columns), Height(rows))) if columns > 0 && rows > 0 => TextSize {
            columns: columns.into(),
            rows: usize::from(rows) - 1,
        },
        _ => PAPER,
    }
}
