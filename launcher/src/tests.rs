//! What the unit tests of several modules have in common.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobs::samples::entry;
use serde_json::json;

use crate::cli::{Cli, CliRequest, Environment, parse};
use crate::hang::HangPlan;
use crate::node::nvml::GpuMemory;
use crate::node::{Node, NodeGpu};
use crate::plan::{
    EventLog, FailurePolicy, LaunchPlan, LogPlan, RankPlan, Sender, SignalPlan, StorePlan, Streams,
};
use crate::rank_id::RankId;

/// Returns the path of a file of cases, which lies beside the sources.
pub fn cases(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)
}

/// Writes a file, and the folders above it.
pub fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

/// Divides a line at blanks, see [`word`].
pub fn words(line: &str) -> Vec<OsString> {
    let words = line.split_whitespace();
    words.map(|text| OsString::from(word(text))).collect()
}

/// Returns what a word of a case means: `''` is an empty word, `␣` a blank, `⇥` a tab and `␤`
/// the end of a line.
pub fn word(text: &str) -> String {
    text.replace("''", "")
        .replace('␣', " ")
        .replace('␤', "\n")
        .replace('⇥', "\t")
}

pub fn environment<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Environment {
    variables.into_iter().collect()
}

/// Reads a command line that asks for a launch.
pub fn cli(line: &str, env: &Environment) -> Cli {
    match parse(&words(line), env).expect("a command line") {
        CliRequest::Launch(cli) => *cli,
        other => panic!("no launch but {other:?}"),
    }
}

/// Returns a rank of a launch with one node.
pub fn rank(index: usize) -> RankId {
    RankId {
        index,
        local: index,
        global: index,
    }
}

/// Variables, as SLURM or Kubernetes sets them.
pub type Variables = &'static [(&'static str, &'static str)];

/// Where a command line is run.
pub struct Start {
    pub env: Environment,
    pub node: Node,
    /// The command line.
    pub line: String,
}

impl Start {
    /// Divides what a case gives. In front of the command line are variables, names of `known`
    /// ones, and facts about the machine: `host=`, `cpus=`, `gpus=`, `memory=` in GiB, and
    /// `gpu_memory=80-10`, of which 10 GiB are used.
    pub fn of(given: &str, node: Node, known: fn(&str) -> Option<Variables>) -> Start {
        let mut start = Start {
            env: environment([("PYTHON_EXEC", "py"), ("PATH", "/usr/bin:/bin")]),
            node,
            line: String::new(),
        };
        let mut words = given.split_whitespace().peekable();
        while let Some(word) = words.peek() {
            match (known(word), word.split_once('=')) {
                (Some(variables), _) => variables.iter().for_each(|it| start.set(it.0, it.1)),
                (None, Some((name, value))) if !name.starts_with('-') => start.set(name, value),
                _ => break,
            }
            words.next();
        }
        start.line = words.collect::<Vec<_>>().join(" ");
        start
    }

    fn set(&mut self, name: &str, value: &str) {
        match name {
            "host" => self.node.full_name = value.to_owned(),
            "cpus" => self.node.cpus = value.parse().expect("a number"),
            "gpus" => self.node.gpus = vec![NodeGpu::default(); value.parse().expect("a number")],
            "memory" => self.node.memory = Some(gib(value)),
            "gpu_memory" => {
                let (total, used) = value.split_once('-').expect("two numbers");
                let (total, used) = (gib(total), gib(used));
                GPU_MEMORY.set(vec![GpuMemory { total, used }; self.node.gpus.len()]);
                self.node.gpu_memory = Some(|| GPU_MEMORY.with_borrow(Vec::clone));
            }
            _ => drop(self.env.variables.insert(name.into(), word(value).into())),
        }
    }
}

thread_local! {
    /// What the driver tells about the GPUs of a case.
    static GPU_MEMORY: RefCell<Vec<GpuMemory>> = const { RefCell::new(Vec::new()) };
}

fn gib(count: &str) -> u64 {
    count.parse::<u64>().expect("a number") << 30
}

/// Plans what a case gives, on a machine with eight CPUs. In the command line, `EVAL` is an
/// evaluation of the jobs whose fields are the lines in braces, or of four jobs. Other files have
/// lines of their own: `NAME {…}`.
pub fn planned(given: &str, known: fn(&str) -> Option<Variables>) -> Result<LaunchPlan, String> {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let write = |name: &str, text: &str| write(dir.path(), name, text);
    let (mut jobs, mut words) = (Vec::new(), Vec::new());
    for line in given.lines() {
        match line.split_once('{') {
            Some(("", _)) => jobs.push(entry(serde_json::from_str(line).expect("fields"))),
            Some((name, text)) if name.ends_with(' ') => write(name.trim(), &format!("{{{text}")),
            _ => words.push(line),
        }
    }
    if jobs.is_empty() {
        jobs.resize(4, entry(json!({"num_episodes": 1})));
    }
    for (index, job) in jobs.iter_mut().enumerate() {
        job["name"] = format!("job{index}").into();
    }
    write("JOBS", &json!({ "jobs": jobs }).to_string());
    write("rrun-rank", "");
    let node = Node {
        cpus: 8,
        executable: at("rrun"),
        uuid: "uuid".to_owned(),
        ..Node::default()
    };
    let given = words
        .join(" ")
        .replace("EVAL", "eval --jobs JOBS --output OUT");
    let start = Start::of(&given, node, known);
    let is_here = |word: &str| word == "OUT" || !word.is_empty() && at(word).exists();
    let in_folder = |word: &str| match is_here(word) {
        true => at(word).display().to_string(),
        false => word.to_owned(),
    };
    let line: Vec<String> = start.line.split(' ').map(in_folder).collect();
    let cli = cli(&line.join(" "), &start.env);
    let plan = LaunchPlan::new(&cli, &start.env, &start.node);
    assert!(!at("OUT").exists(), "planning writes nothing");
    let folder = format!("{}/", dir.path().display());
    plan.map_err(|err| err.to_string().replace(&folder, ""))
}

/// Returns the plan of `nproc` ranks with default options.
pub fn plan(argv: &[&str], nproc: usize) -> LaunchPlan {
    let rank = |local_rank: usize| RankPlan {
        local_rank,
        argv: argv.iter().map(OsString::from).collect(),
        env: BTreeMap::from([("LOCAL_RANK".to_owned(), local_rank.to_string())]),
        redirect: Streams::default(),
        tee: Streams::default(),
        cpus: None,
        shown: true,
    };
    LaunchPlan {
        nnodes: 1,
        run_id: "none".to_owned(),
        role: "default".to_owned(),
        failure_policy: FailurePolicy::Torchrun,
        max_restarts: 0,
        shutdown_timeout: Duration::from_secs(30),
        hang: HangPlan::default(),
        store: StorePlan {
            master_addr: "127.0.0.1".to_owned(),
            port: None,
            may_move: false,
            is_shared: true,
        },
        rendezvous: None,
        // This must not be a signal that ends the test process.
        signals: SignalPlan {
            sender: Sender::Anyone,
            spec: "SIGUSR2".to_owned(),
            numbers: vec![libc::SIGUSR2],
        },
        logs: LogPlan {
            dir: None,
            disabled: true,
            duplicate_stdout: Vec::new(),
            duplicate_stderr: Vec::new(),
            prefix_template: None,
        },
        title: "test".to_owned(),
        env: BTreeMap::new(),
        ranks: (0..nproc).map(rank).collect(),
        open_files: None,
        events: EventLog::None,
        reports_usage: false,
        is_built_in: false,
        notes: Vec::new(),
        model_server: None,
        serve: None,
        eval: None,
    }
}

/// Writes a program that `/bin/sh` runs. Another process does, because a child that another test
/// forks meanwhile would inherit a file that is open for writing here, and such a file cannot be
/// executed.
pub fn write_program(path: &Path, script: &str) {
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", write])
        .args([path.as_os_str(), script.as_ref()])
        .status();
    assert!(status.expect("a shell").success());
}

/// Compiles a library in the place of the driver's, which tells of two GPUs.
pub fn nvml(folder: &Path) -> PathBuf {
    let library = folder.join("libnvidia-ml.so.1");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/nvml.c");
    let status = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([library.as_path(), source.as_ref()])
        .status();
    assert!(status.expect("a C compiler").success());
    library
}
