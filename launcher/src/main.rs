//! The `rrun` binary: parses the command line, plans the launch and runs it.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use jobs::job::Job;
use jobs::layout::RunFolder;
use jobs::printable::{printable, printable_json};
use jobs::refusal::Refused;
use jobs::time::now;
use launcher::agent;
use launcher::agent::event::LaunchEnd;
use launcher::agent::folder_lock::FolderLock;
use launcher::cli::built_in::HelpTopic;
use launcher::cli::{self, Cli, CliRequest, Environment, built_in};
use launcher::dry_run;
use launcher::generated;
use launcher::node::Node;
use launcher::page::LivePage;
use launcher::plan::eval::EvalPlan;
use launcher::plan::missing::{self, Missing};
use launcher::plan::{LaunchPlan, Sender, SignalPlan};
use launcher::say::{self, Level, Note, Style, trace};
use launcher::signals::Caught;
use launcher::tools;
use launcher::verdict;
use tokio::runtime::{Builder, Runtime};

fn main() -> ExitCode {
    let env = Environment::inherited();
    let mut words: Vec<OsString> = env::args_os().skip(1).collect();
    match built_in::help_topic(&words) {
        Ok(None) => {}
        Ok(Some(HelpTopic::Commands)) => return print(&cli::short_help()),
        Ok(Some(HelpTopic::Options)) => return print(&cli::help()),
        Ok(Some(HelpTopic::Command(name))) => words = [name, "--help"].map(Into::into).to_vec(),
        Err(err) => {
            eprintln!("rrun: error: {}", printable(&err.to_string()));
            return ExitCode::from(2);
        }
    }
    if tools::is_asked(&words) {
        return tools::run(words);
    }
    match cli::parse(&words, &env) {
        Ok(CliRequest::Launch(cli)) => {
            if let Some(mut again) = built_in::with_token_in_environment(&cli, &words) {
                return refuse(format_args!(
                    "cannot start again with the token in the environment: {}",
                    again.exec()
                ));
            }
            let style = cli.log_style();
            style.adopt();
            trace::start(&env, style);
            launch(&cli, &words, &env)
        }
        Ok(CliRequest::Print(text)) => print(&text),
        Ok(CliRequest::PrintCompletion(shell)) => print(&generated::completion(shell)),
        Ok(CliRequest::WriteMan(folder)) => match generated::write_man(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(err) => refuse(format_args!("{err:#}")),
        },
        Err(err) => match err.downcast_ref() {
            Some(usage) => show_usage(usage),
            None => refuse(err),
        },
    }
}

fn launch(cli: &Cli, words: &[OsString], env: &Environment) -> ExitCode {
    // Before anything else, so that from here on a signal ends nothing by itself.
    let begun = match cli.dry_run.is_none().then(|| begin(cli)).transpose() {
        Ok(begun) => begun,
        Err(err) => return refuse(format_args!("cannot start: {err}")),
    };
    let node = match Node::read() {
        Ok(node) => node,
        Err(err) => return refuse(format_args!("cannot read the facts of this node: {err}")),
    };
    let plan = match LaunchPlan::new(cli, env, &node) {
        Ok(plan) => plan,
        Err(err) => match err.downcast_ref() {
            Some(Refused::Usage(usage)) => return show_usage(usage),
            _ => return verdict::of_refusal(cli, refuse(err)),
        },
    };
    tracing::debug!(?plan);
    let Some(begun) = begun else {
        return show(&plan, env, cli.dry_run.as_deref() == Some("json"));
    };
    let since = now();
    let end = match run(&plan, env, begun) {
        Ok(end) => end,
        Err(err) => return verdict::of_refusal(cli, refuse(err)),
    };
    match &plan.eval {
        Some(eval) if eval.run.quick => say_how_to_go_on(eval, words, since.elapsed(), end),
        _ => say_how_to_resume(&plan, cli, words, end),
    }
    verdict::exit_code(&plan, end)
}

/// Prints help of `eval` or `serve`, or what is wrong with their words.
fn show_usage(usage: &clap::Error) -> ExitCode {
    let text = usage.render().to_string();
    match usage.exit_code() {
        0 => print(&text),
        code => {
            say::block(Level::Error, &text);
            ExitCode::from(u8::try_from(code).unwrap_or(2))
        }
    }
}

/// The event loop of a launch, and the signals that are kept for it.
type Begun = (Runtime, Caught);

/// Prepares the event loop, and installs the handlers of signals.
fn begin(cli: &Cli) -> io::Result<Begun> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (signals, _) = SignalPlan::new(&cli.signals_to_handle, Sender::Anyone);
    let caught = {
        let _context = runtime.enter();
        Caught::new(&signals.numbers)
    };
    Ok((runtime, caught))
}

/// Prints how long a quick run took, and the command of the whole evaluation.
fn say_how_to_go_on(eval: &EvalPlan, words: &[OsString], took: Duration, end: LaunchEnd) {
    let outcome = match end {
        LaunchEnd::Succeeded => "everything runs",
        _ => "not everything runs",
    };
    let (seconds, folder) = (took.as_secs_f64(), eval.output.display());
    say::say(
        Level::Result,
        format_args!("{outcome}: the quick run took {seconds:.1} s, its results are in `{folder}`"),
    );
    let command = built_in::command_without_quick(words);
    say::say(Level::Result, format_args!("the whole run: {command}"));
}

/// Prints the command that resumes an evaluation that a signal has ended, a user on its page, or
/// another node.
fn say_how_to_resume(plan: &LaunchPlan, cli: &Cli, words: &[OsString], end: LaunchEnd) {
    let is_resumed = |eval: &&EvalPlan| match end {
        LaunchEnd::Stopped { .. } | LaunchEnd::Killed { .. } => true,
        LaunchEnd::Incomplete => !verdict::is_complete(eval),
        LaunchEnd::Succeeded | LaunchEnd::Failed | LaunchEnd::NotStarted => false,
    };
    let eval = plan.eval.as_ref().filter(is_resumed);
    let command = eval.and_then(|eval| {
        let page = eval.page.as_ref().map(|page| page.address());
        built_in::resume_command(cli, words, &eval.output, page, &eval.tracking)
    });
    if let Some(command) = command {
        say::say(Level::Result, format_args!("to resume: {command}"));
    }
}

/// Runs a launch to its end, unless it is refused.
fn run(
    plan: &LaunchPlan,
    env: &Environment,
    (runtime, caught): Begun,
) -> anyhow::Result<LaunchEnd> {
    let mut lock = FolderLock::new(plan);
    let mut signals = {
        let _context = runtime.enter();
        caught.with(&plan.signals)
    };
    look_for_all(plan, |jobs, gpus| missing::check(jobs, env, gpus))?;
    let Some(eval) = &plan.eval else {
        return Ok(agent::launch(plan, &mut lock, runtime, signals));
    };
    let is_alone = plan.rendezvous.is_none();
    if is_alone {
        // Of several nodes, only that of rank 0 needs the packages.
        missing::check_trackers(&eval.tracking, env)?;
        eval.page.as_ref().map_or(Ok(()), LivePage::check)?;
    }
    // The lock makes the folder, if nobody has.
    eval.run.prepare(&RunFolder::new(&eval.output))?;
    let mut told = None;
    if is_alone {
        // Several nodes lock the folder when they have met.
        let launch = jobs::launch::fresh_id()?;
        told = runtime.block_on(lock.take_unless(&launch, signals.ends.arrived()))?;
    }
    if told.is_none() {
        eval.settle(lock.launch())?;
    }
    let end = agent::launch(plan, &mut lock, runtime, signals);
    if end != LaunchEnd::Succeeded {
        verdict::write_report(eval, &lock);
    } else if verdict::is_left_out(eval) {
        say::error("ended early, as asked on its page");
        return Ok(LaunchEnd::Incomplete);
    }
    Ok(end)
}

/// Looks for what the jobs of a plan name, with `look`, which takes jobs and the number of GPUs.
/// Returns what is missing.
fn look_for_all(
    plan: &LaunchPlan,
    look: impl Fn(&[Job], usize) -> Result<(), Missing>,
) -> anyhow::Result<()> {
    if let Some(serve) = &plan.serve {
        look(serve.job.as_slice(), serve.gpus).map_err(|err| anyhow!(err.what))?;
    }
    if let Some(eval) = &plan.eval {
        let file = &eval.run.jobs_file;
        look(&eval.run.jobs, eval.gpus).map_err(|err| anyhow!("`{file}`: {err}"))?;
    }
    Ok(())
}

/// Prints the plan. If it names files or interpreters that are not here, the exit code is that of
/// the refused launch. Modules are not looked for, because that would start an interpreter.
fn show(plan: &LaunchPlan, env: &Environment, is_json: bool) -> ExitCode {
    plan.notes.iter().for_each(Note::say);
    let text = match is_json {
        false => printable(&dry_run::text(plan)).into_owned(),
        true => match serde_json::to_string_pretty(plan) {
            Ok(text) => format!("{}\n", printable_json(&text)),
            Err(err) => return refuse(err),
        },
    };
    let printed = print(&text);
    let look = |jobs: &[Job], gpus| missing::pythons(jobs, env, gpus).map(drop);
    match look_for_all(plan, look) {
        Err(what) => refuse(format_args!("this launch would be refused here: {what}")),
        Ok(()) => printed,
    }
}

fn refuse(err: impl std::fmt::Display) -> ExitCode {
    match Style::current().json {
        true => say::error(err),
        false => say::error(format_args!("error: {err}")),
    }
    ExitCode::FAILURE
}

/// Prints a text. A closed pipe is not an error.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
            refuse(format_args!("cannot print: {err}"))
        }
        _ => ExitCode::SUCCESS,
    }
}
