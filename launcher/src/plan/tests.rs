//! What a command line means: the plan, or a refusal; of an evaluation how many ranks run where.

use std::collections::BTreeMap;
use std::fs;

use clap::ValueEnum as _;
use jobs::count::counted;
use jobs::placement::PlacedProcess;
use jobs::tree::plain;
use proptest::prelude::*;
use serde_json::Value;

use crate::cli::Environment;
use crate::node::{Node, NodeGpu};
use crate::plan::program::Program;
use crate::plan::{Backend, LaunchPlan};
use crate::tests::{self, Start, cases, cli};

const UUID: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";

/// Plans on a machine with four CPUs and two GPUs.
fn planned(given: &str) -> Result<LaunchPlan, String> {
    let node = Node {
        cpus: 4,
        gpus: vec![NodeGpu::default(); 2],
        executable: "/nonexistent/rrun".into(),
        uuid: UUID.to_owned(),
        ..Node::default()
    };
    let Start { env, node, line } = Start::of(given, node, |_| None);
    LaunchPlan::new(&cli(&line, &env), &env, &node).map_err(|err| err.to_string())
}

/// Lists the fields of a plan by their paths.
fn fields(of: &Value, path: &str, all: &mut BTreeMap<String, String>) {
    let below = |name: &dyn std::fmt::Display| match path {
        "" => name.to_string(),
        path => format!("{path}.{name}"),
    };
    match of {
        Value::Object(inner) => {
            for (name, value) in inner {
                fields(value, &below(name), all);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                fields(item, &below(&index), all);
            }
        }
        Value::Array(items) => {
            let words: Vec<_> = items.iter().map(plain).collect();
            all.insert(path.to_owned(), words.join(" "));
        }
        value => drop(all.insert(path.to_owned(), plain(value))),
    }
}

/// A launch of several nodes without further options.
const NODES: &str = "--nnodes 2 x";

fn fields_of(given: &str) -> Result<BTreeMap<String, String>, String> {
    let (plan, mut all) = (planned(given)?, BTreeMap::new());
    fields(&serde_json::to_value(plan).unwrap(), "", &mut all);
    Ok(all)
}

/// Says how the plan differs from that of the plain program `x`: a rank from its only one, and the
/// rendezvous from that of [`NODES`]. Of these two, all is said.
fn answer(given: &str) -> String {
    let found = match fields_of(given) {
        Ok(found) => found,
        Err(err) => return err,
    };
    let (plain, nodes) = (fields_of("x").unwrap(), fields_of(NODES).unwrap());
    let usual = |path: &str| match path.split_once('.') {
        _ if given == "x" => None,
        Some(("rendezvous", _)) if given == NODES => None,
        Some(("rendezvous", _)) => nodes.get(path),
        Some(("ranks", rank)) => {
            let (_, field) = rank.split_once('.').unwrap();
            plain.get(&format!("ranks.0.{field}"))
        }
        _ => plain.get(path),
    };
    let new = found
        .iter()
        .filter(|(path, value)| usual(path) != Some(value));
    let new = new.map(|(path, value)| format!("{path}: {value}"));
    let gone = plain.keys().filter(|path| path.starts_with("env."));
    let gone = gone.filter(|path| !found.contains_key(*path));
    let gone = gone.map(|path| format!("{path} is not there"));
    let lines: Vec<String> = new.chain(gone).collect();
    match lines.is_empty() {
        true => "the same plan".to_owned(),
        false => lines.join("\n"),
    }
}

#[test]
fn a_command_line_means_a_plan() {
    rig::cases::check(cases("plan/plans.txt"), answer);
}

#[test]
fn what_torchrun_refuses_is_refused_in_its_words() {
    rig::cases::evidence(cases("plan/torchrun.txt"), answer);
}

fn of_evaluation(given: &str) -> String {
    let plan = match tests::planned(&format!("OMP_NUM_THREADS=1 {given}"), |_| None) {
        Ok(plan) => plan,
        Err(err) => return err,
    };
    let eval = plan.eval.expect("an evaluation");
    let placed = eval.seating.placement.rollout.iter();
    let gpus: Vec<_> = placed
        .map(|rank| PlacedProcess::gpu(rank).to_string())
        .collect();
    let ranks = format!(
        "{} here, GPUs of all: {}",
        counted(plan.ranks.len(), "rank"),
        gpus.join(" ")
    );
    let notes = plan.notes.iter().map(|note| note.text.clone());
    let lines: Vec<_> = [ranks].into_iter().chain(notes).collect();
    lines.join("\n")
}

#[test]
fn an_evaluation_means_a_plan_or_is_refused() {
    rig::cases::check(cases("plan/evaluations.txt"), of_evaluation);
}

#[test]
fn threads_of_an_evaluation_sleep_while_they_wait_unless_the_user_says_otherwise() {
    for (given, wanted) in [
        ("EVAL", Some("passive")),
        ("OMP_WAIT_POLICY=1 EVAL", None),
        ("GOMP_SPINCOUNT=1 EVAL", None),
    ] {
        let plan = tests::planned(given, |_| None).unwrap();
        let set = plan.env.get("OMP_WAIT_POLICY").map(String::as_str);
        assert_eq!(set, wanted, "{given}");
    }
}

#[test]
fn a_script_that_is_run_by_its_path_is_an_argument_of_our_own() {
    let plan = planned("--run-path --no-python -m s.py a").unwrap();
    let argv = &plan.ranks[0].argv;
    assert_eq!(plan.title, "run_script_path");
    assert_eq!(
        (&argv[..2], &argv[3..]),
        (
            &["py", "-c"].map(Into::into)[..],
            &["s.py", "a"].map(Into::into)[..]
        )
    );
}

#[test]
fn eval_runs_the_binary_beside_rrun_with_its_words_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("rrun-rank");
    fs::write(&binary, "").unwrap();
    let node = Node {
        executable: folder.path().join("rrun"),
        ..Node::default()
    };
    let env = Environment::default();
    let cli = cli("--nproc-per-node 2 eval --jobs ${local_rank}$$", &env);
    let program = Program::new(&cli, &env, &node).unwrap();
    assert_eq!(program.title, "eval");
    let words: [std::ffi::OsString; 3] = ["eval", "--jobs", "${local_rank}$$"].map(Into::into);
    assert_eq!(program.argv(1), [&[binary.into()][..], &words].concat());
}

proptest! {
    #[test]
    fn any_value_is_planned_or_refused(
        option in prop::sample::select(&[
            "--nnodes", "--nproc-per-node", "--redirects", "--rdzv-endpoint", "--rdzv-conf",
            "--local-ranks-filter", "--duplicate-stdout-filters", "--signals-to-handle",
        ][..]),
        value in "[0-9a-z:,.=\\[\\]/-]{0,20}",
    ) {
        let _ = planned(&format!("{option}={value} x"));
    }
}

#[test]
fn the_help_names_every_backend() {
    let help = include_str!("../cli/help.txt");
    let (_, rest) = help.split_once("--rdzv-backend <NAME>").unwrap();
    let about = rest.split("--").next().unwrap();
    for backend in Backend::value_variants() {
        let name = backend.name();
        assert!(about.contains(name), "{name} is not in {about:?}");
        assert_eq!(Backend::of(name), Some(*backend));
    }
}
