//! The built-in words of `rrun` with what help says about each: one row per word. Adding a command
//! is adding a row; tests compare the rows with the commands that exist. [`screen`] is the text of
//! `rrun --help`.

use clap::Command;
use jobs::eval_args;
use jobs::refusal::{LIKE_NAME, most_similar};
use jobs::serve_args;
use jobs::usage::Examples;

/// The group of what a first hour needs, as the help names it.
const START: &str = "Start";

/// The group of what comes after it.
const MORE: &str = "More";

/// One command of the help.
#[derive(Clone, Copy, Debug)]
pub struct CommandRow {
    /// The word after `rrun`, or the value name of a program of the user.
    pub name: &'static str,
    /// Where the help has it.
    pub group: &'static str,
    /// What it does, in at most 59 columns.
    pub does: &'static str,
    /// Command lines at the head of its own help.
    pub examples: Examples,
}

/// The name of the row about programs of the user.
pub const USERS_PROGRAM: &str = "PROGRAM";

/// Columns of a terminal.
const WIDTH: usize = 80;

const HEAD: &str = "\
Evaluate robot policies, and start programs as torchrun does: one rank per GPU

Usage: rrun [OPTIONS] PROGRAM [ARGS]...   or   rrun COMMAND [ARGS]...

";

const OPTIONS: &str = "
Help: `rrun help COMMAND` has examples and options of a command, and
`rrun help options` explains these options, which come before PROGRAM:
";

const fn row(
    name: &'static str,
    group: &'static str,
    does: &'static str,
    examples: Examples,
) -> CommandRow {
    CommandRow {
        name,
        group,
        does,
        examples,
    }
}

/// All commands, in the order of the help. A table: one line per row.
#[rustfmt::skip]
pub const COMMANDS: &[CommandRow] = &[
    row("demo", START, "Evaluate three tasks, with videos and a report", DEMO),
    row("list", START, "List what there is to evaluate, with a job of each", LIST),
    row("eval", START, "Run the jobs of a file and report the results", eval_args::EXAMPLES),
    row("report", START, "Write the report of a run again, or of several as one", REPORT),
    row("compare", START, "Compare two policies on the same episodes", COMPARE),
    row("doctor", START, "Check this machine: GPUs, libraries, disks, limits", DOCTOR),
    row(USERS_PROGRAM, MORE, "Run a Python script in each rank, as torchrun does", PROGRAM),
    row("suite", MORE, "Write the jobs of a known benchmark: LIBERO, Meta-World, …", SUITE),
    row("serve", MORE, "Serve a policy to robots and simulators", serve_args::EXAMPLES),
    row("watch", MORE, "Evaluate every checkpoint of a training while it trains", WATCH),
    row("top", MORE, "Show a run that is under way, from any machine", TOP),
    row("verify", MORE, "Check that a run is complete and its files are whole", VERIFY),
    row("certify", MORE, "Write a certificate of a run, which others can check", CERTIFY),
    row("reproduce", MORE, "Run the jobs of a certificate again, and compare", REPRODUCE),
    row("fit", MORE, "Check whether jobs fit into the memory of the GPUs", FIT),
];

const DEMO: Examples = &[
    ("rrun demo", "in a new folder under TMPDIR"),
    ("rrun demo outputs/demo", "in a folder of your choice"),
];

const DOCTOR: Examples = &[
    ("rrun doctor", "this machine, and the current folder"),
    (
        "rrun doctor --output /scratch/runs --jobs jobs.json",
        "with what the jobs name",
    ),
];

const LIST: Examples = &[
    ("rrun list", "everything, one line each"),
    ("rrun list pusht", "its arguments, and a job to paste"),
    ("rrun list libero_10", "the protocol of a benchmark"),
];

const SUITE: Examples = &[
    (
        "rrun suite libero_10 --policy gr00t --set model_path=mine --output jobs.json",
        "all of its jobs",
    ),
    (
        "rrun suite metaworld_mt10 --policy random_action --tasks 0-4",
        "five of them",
    ),
];

const PROGRAM: Examples = &[
    ("rrun --nproc-per-node 4 train.py --lr 3e-4", "4 ranks"),
    ("rrun --nproc-per-node gpu -m package.train", "one per GPU"),
    ("rrun --nproc-per-node 4 --no-python ./a.out", "any program"),
    (
        "rrun --nnodes 2 --node-rank 0 --master-addr node0 train.py",
        "of two nodes",
    ),
];

const REPORT: Examples = &[
    ("rrun report outputs/tonight", "the files and the tables"),
    (
        "rrun report node0/run node1/run --output outputs/both",
        "merge two runs",
    ),
];

const WATCH: Examples = &[
    (
        "rrun watch --checkpoints runs --jobs jobs.json",
        "until interrupted",
    ),
    (
        "rrun watch --checkpoints runs --jobs jobs.json --order newest",
        "newest first",
    ),
    (
        "rrun watch --checkpoints runs --jobs jobs.json -- --nproc-per-node 2",
        "on two ranks",
    ),
];

const TOP: Examples = &[
    ("rrun top outputs/tonight", "until the run ends"),
    ("rrun top outputs/tonight --once", "one frame, for scripts"),
];

const VERIFY: Examples = &[
    (
        "rrun verify outputs/tonight",
        "read every dataset and video",
    ),
    (
        "rrun verify outputs/tonight --no-values",
        "the same without their values",
    ),
    (
        "rrun verify outputs/tonight --rerun 8",
        "run 8 episodes again",
    ),
    (
        "rrun verify certificate.json --rerun 20 -- --nproc-per-node 3",
        "run 20 of its episodes again",
    ),
];

const CERTIFY: Examples = &[
    (
        "rrun certify outputs/tonight",
        "runs 8 of the episodes again",
    ),
    (
        "rrun certify outputs/tonight --rerun 50",
        "runs 50 of them again",
    ),
];

const COMPARE: Examples = &[
    (
        "rrun compare outputs/base outputs/new",
        "jobs of the same name",
    ),
    (
        "rrun compare outputs/all outputs/all --pair reach=reach_new",
        "jobs of one run",
    ),
    (
        "rrun compare outputs/base outputs/new --fail-on regression",
        "exit code 1 if new is worse",
    ),
    (
        "rrun compare base/report.json new/report.json --json",
        "without the run folders",
    ),
];

const REPRODUCE: Examples = &[
    (
        "rrun reproduce certificate.json -- --nproc-per-node 2",
        "until it is decided",
    ),
    (
        "rrun reproduce certificate.json --path /data/model -- eval --stop-when end",
        "with all episodes",
    ),
];

const FIT: Examples = &[
    ("rrun fit --jobs jobs.json", "the GPUs of this machine"),
    (
        "rrun fit --jobs jobs.json --gpu-memory 24GiB",
        "GPUs that it does not have",
    ),
    (
        "rrun fit --jobs jobs.json --measured outputs/tonight",
        "with what a run has measured",
    ),
];

/// Returns the names of the programs and tools.
pub fn names() -> impl Iterator<Item = &'static str> {
    let names = COMMANDS.iter().map(|row| row.name);
    names.filter(|name| *name != USERS_PROGRAM)
}

/// Returns the examples of a command; there are none for an unknown one.
pub fn examples(name: &str) -> Examples {
    COMMANDS
        .iter()
        .find(|row| row.name == name)
        .map_or(&[], |row| row.examples)
}

/// Returns the built-in word that one in other letters probably means, if it is similar enough.
pub fn meant(word: &str) -> Option<&'static str> {
    most_similar(&word.to_lowercase(), names().chain(["help"]), LIKE_NAME)
}

/// Returns the names of the tools, which launch nothing.
pub fn tools() -> impl Iterator<Item = &'static str> {
    names().filter(|name| !matches!(*name, "eval" | "serve"))
}

/// Returns whether a word is the name of a tool.
pub fn is_tool(word: &str) -> bool {
    tools().any(|tool| tool == word)
}

/// Returns the text of `rrun --help`, one screen: commands first, then the names of all options of
/// `command`, which torchrun's help also has. `rrun help options` explains them.
pub fn screen(command: &Command) -> String {
    let rows = [START, MORE].map(rows).concat();
    format!("{HEAD}{rows}{OPTIONS}{}", filled(&words(command)))
}

/// Returns the lines of a group, its title at the first.
fn rows(group: &str) -> String {
    let rows = COMMANDS.iter().filter(|row| row.group == group);
    let line = |(index, row): (usize, &CommandRow)| {
        let title = if index == 0 { group } else { "" };
        format!("{title:<8} {:<11} {}\n", row.name, row.does)
    };
    rows.enumerate().map(line).collect()
}

/// Returns the headings of the options, each followed by their names.
fn words(command: &Command) -> Vec<String> {
    let (mut words, mut heading) = (Vec::<String>::new(), None);
    for option in command.get_arguments() {
        let Some(long) = option.get_long() else {
            continue;
        };
        let its_heading = option.get_help_heading();
        if heading != its_heading {
            heading = its_heading;
            if let Some(last) = words.last_mut() {
                *last += " ·";
            }
            words.extend(heading.map(|title| format!("{title}:")));
        }
        let short = option.get_short().map(|short| format!("-{short} "));
        words.push(format!("{}--{long}", short.unwrap_or_default()));
    }
    words
}

/// Returns the words in lines that fit.
fn filled(words: &[String]) -> String {
    let (mut text, mut line) = (String::new(), String::from(" "));
    for word in words {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text += &line;
            text.push('\n');
            line = String::from(" ");
        }
        line.push(' ');
        line += word;
    }
    text + &line + "\n"
}
