//! Tests of `rrun compare`.

use std::fs;

use jobs::episode::{End, Episode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tools::folder::{Run, job, rrun, rrun_in, rrun_with};

/// Returns two runs of the same jobs, in which B solves every episode whose number is not a
/// multiple of 5.
fn runs() -> (TempDir, Run, Run) {
    let dir = tempfile::tempdir().unwrap();
    let jobs = [job("a", 30), job("b", 10)];
    let [a, b] = ["base", "new"].map(|name| Run::at(&dir.path().join(name), &jobs));
    a.whole();
    let better = |job: usize, number: u64| {
        let is_solved = !number.is_multiple_of(5);
        let end = if is_solved {
            End::Success
        } else {
            End::TimeLimit
        };
        Episode {
            success: Some(is_solved),
            end,
            length: 9 + number,
            ..b.episode(job, number, 0)
        }
    };
    b.rank(
        0,
        [(0, 30), (1, 10)]
            .into_iter()
            .flat_map(|(job, count)| (0..count).map(move |number| better(job, number))),
    );
    (dir, a, b)
}

#[test]
fn two_runs_are_compared_pair_by_pair() {
    let (dir, ..) = runs();
    let done = rrun_in(dir.path(), &["compare", "base", "new", "--per-job"]).succeeds();
    // B solves 10 of the 15 pairs that differ; Newcombe's interval from Python's statsmodels is
    // -6.8 to +30.7.
    let table = "\
+------+-------+--------+--------+-------+---------------+-----------+
| Task | Pairs | A      | B      | B − A | 95 %          | McNemar p |
+------+-------+--------+--------+-------+---------------+-----------+
| all  | 40    | 67.5 % | 80.0 % | +12.5 | -6.8 to +30.7 | 0.3018    |
+------+-------+--------+--------+-------+---------------+-----------+
";
    let done = done.says("A: base (scripted), 40 episodes\nB: new (scripted), 40 episodes");
    let done = done
        .says(table)
        .says("22 solved by both, 5 by A alone, 10 by B alone, 3 by neither");
    done.says("| a   | 30 ")
        .says("steps: -1.0000 (95 %: -1.0000 to -1.0000)");
}

#[test]
fn report_files_are_compared_as_their_folders_are() {
    let (dir, a, b) = runs();
    let folders: Value = serde_json::from_str(
        &rrun_in(dir.path(), &["compare", "base", "new", "--json"])
            .succeeds()
            .stdout(),
    )
    .unwrap();
    [&a, &b]
        .iter()
        .for_each(|run| drop(rrun(&["report", run.path()]).succeeds()));
    let files = ["base/report.json", "new/final_benchmark_report.json"];
    let done = rrun_in(dir.path(), &["compare", files[0], files[1], "--json"]).succeeds();
    let files: Value = serde_json::from_str(&done.stdout()).unwrap();
    assert_eq!(
        (&files["overall"], &files["per_job"]),
        (&folders["overall"], &folders["per_job"])
    );
    assert_eq!(
        (&folders["schema"], &folders["overall"]["pairs"]),
        (&json!("rrun/compare/1"), &json!(40))
    );
    let lines = rrun_in(
        dir.path(),
        &["compare", "base/episodes.jsonl", "new", "--json"],
    )
    .succeeds();
    let lines: Value = serde_json::from_str(&lines.stdout()).unwrap();
    assert_eq!(lines["overall"], folders["overall"]);
}

#[test]
fn other_seeds_and_missing_episodes_are_said() {
    let (dir, _, b) = runs();
    let text = fs::read_to_string(b.folder.journal(0)).unwrap();
    let seed = b.episode(0, 3, 0).seed.to_string();
    let kept = text
        .lines()
        .filter(|line| !line.contains("\"job\":\"b\""))
        .map(|line| line.replace(&seed, "1") + "\n");
    fs::write(b.folder.journal(0), kept.collect::<String>()).unwrap();
    let done = rrun_in(dir.path(), &["compare", "base", "new"])
        .succeeds()
        .says("not paired: 1 episode from different seeds");
    done.says("not paired: 10 episodes only in A");
}

/// Returns a job with its own seed.
fn seeded(name: &str, seed: u64) -> Value {
    let mut job = job(name, 4);
    job["seed"] = json!(seed);
    job
}

#[test]
fn jobs_of_one_run_are_compared_where_their_seeds_are_equal_by_design() {
    let run = Run::new(&[seeded("old", 7), seeded("new", 7), job("other", 4)]);
    run.whole();
    let done = rrun(&[
        "compare",
        run.path(),
        run.path(),
        "--pair",
        "old=new",
        "--per-job",
    ])
    .succeeds();
    let done = done.says("| old | 4 ").says("| all  | 4 ");
    assert!(
        !done.stdout().contains("| other"),
        "a job is not compared with itself: {}",
        done.stdout()
    );
}

#[test]
fn a_job_that_is_paired_twice_is_refused() {
    let run = Run::new(&[job("old", 4), job("new", 4), job("other", 4)]);
    run.whole();
    let paired = |pairs: [&str; 2]| {
        let words = [
            "compare",
            run.path(),
            run.path(),
            "--pair",
            pairs[0],
            "--pair",
            pairs[1],
        ];
        rrun(&words).fails_with(1)
    };
    paired(["old=new", "old=other"])
        .complains("--pair names the job `old` of A twice, expected each job once");
    paired(["old=new", "other=new"])
        .complains("--pair names the job `new` of B twice, expected each job once");
}

#[test]
fn without_a_pair_the_comparison_has_failed_and_says_why() {
    let run = Run::new(&[job("old", 4), job("new", 4)]);
    run.whole();
    let done = rrun(&["compare", run.path(), run.path(), "--pair", "old=new"]).fails_with(1);
    let done = done.says("4 episodes from different seeds");
    done.complains(
        "no episodes can be paired: their episodes are from different seeds; jobs of different \
         names have the same",
    );
    let other = Run::new(&[job("x", 4)]);
    other.whole();
    rrun(&["compare", run.path(), other.path(), "--json"])
        .fails_with(1)
        .complains("--pair JOB=JOB pairs those of");
    let begun = Run::new(&[job("old", 4)]);
    rrun(&["compare", run.path(), begun.path()])
        .fails_with(1)
        .complains("no episode was finished in both");
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    let (dir, a, _) = runs();
    rrun_in(dir.path(), &["compare", "base", "none"])
        .fails_with(1)
        .complains("`none` is neither a run folder");
    fs::write(
        dir.path().join("x.jsonl"),
        format!(
            "{}\n{{}}\n",
            serde_json::to_string(&a.episode(0, 0, 0)).unwrap()
        ),
    )
    .unwrap();
    rrun_in(dir.path(), &["compare", "base", "x.jsonl"])
        .fails_with(1)
        .complains("`x.jsonl` line 2 is not an episode: missing field");
    fs::write(dir.path().join("r.json"), "{\n \"schema\": 3}").unwrap();
    rrun_in(dir.path(), &["compare", "base", "r.json"])
        .fails_with(1)
        .complains("`r.json` is not a report: invalid type: integer `3`");
    let done = rrun_in(dir.path(), &["compare", "base", "new", "--pair", "a=z"]).fails_with(1);
    done.complains("`new` has no job `z`");
    rrun_in(dir.path(), &["compare", "base", "new", "--pair", "a"])
        .fails_with(2)
        .complains("`a` is not a pair");
}

/// Compares two run folders in `dir`, with further words. Returns exit code and standard output.
fn judged(dir: &TempDir, sides: [&str; 2], words: &[&str]) -> (Option<i32>, String) {
    let sides = sides.map(|side| dir.path().join(side).to_string_lossy().into_owned());
    let words: Vec<&str> = ["compare", &sides[0], &sides[1]]
        .iter()
        .chain(words)
        .copied()
        .collect();
    let summary = dir.path().join("summary.md");
    let done = rrun_with(
        &[("GITHUB_STEP_SUMMARY", &summary.to_string_lossy())],
        &words,
    );
    (done.output.status.code(), done.stdout())
}

#[test]
fn a_gate_passes_a_gain_and_waits_for_more_episodes() {
    let (dir, ..) = runs();
    let (code, said) = judged(&dir, ["base", "new"], &["--fail-on", "regression:10"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("passed: B has not lost 10 points or more"),
        "{said}"
    );

    let (code, said) = judged(&dir, ["new", "base"], &["--fail-on", "regression"]);
    assert_eq!(code, Some(3), "10 against 5 is no significant loss: {said}");
    assert!(
        said.contains("undecided: ") && said.contains(" pairs would do"),
        "{said}"
    );
}

#[test]
fn a_significant_loss_ends_with_1_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = [job("a", 20)];
    let [a, b] = ["base", "new"].map(|name| Run::at(&dir.path().join(name), &jobs));
    a.rank(0, (0..20).map(|number| solved(&a, number, true)));
    b.rank(0, (0..20).map(|number| solved(&b, number, false)));
    let summary = dir.path().join("summary.md");
    for (format, wanted) in [
        (
            "text",
            "regression: B has solved significantly fewer episodes",
        ),
        ("json", "\"verdict\": \"regression\""),
        ("markdown", "| all | 20 | 100.0 % | 0.0 % | -100.0 | "),
        ("junit", "<failure message=\"regression: B has solved"),
        (
            "github",
            "::error title=rrun compare::regression: B has solved",
        ),
    ] {
        assert!(!summary.exists(), "only the last format has a summary");
        let words = ["--fail-on", "regression", "--format", format];
        let (code, said) = judged(&dir, ["base", "new"], &words);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(wanted), "{format}: {said}");
    }
    let summary = fs::read_to_string(summary).unwrap();
    assert!(summary.contains("| all | 20 | "), "{summary}");
}

fn solved(run: &Run, number: u64, is_solved: bool) -> Episode {
    let end = if is_solved {
        End::Success
    } else {
        End::TimeLimit
    };
    Episode {
        success: Some(is_solved),
        end,
        ..run.episode(0, number, 0)
    }
}

#[test]
fn errors_of_a_gate_are_no_regressions() {
    let (dir, ..) = runs();
    let (code, _) = judged(&dir, ["base", "missing"], &["--fail-on", "regression"]);
    assert_eq!(code, Some(2));
    let other = Run::at(&dir.path().join("other"), &[job("z", 1)]);
    other.whole();
    let (code, _) = judged(&dir, ["base", "other"], &["--fail-on", "regression"]);
    assert_eq!(code, Some(2), "nothing can be paired");
    for condition in ["regression:0", "regression:100", "regression:x", "loss"] {
        let (code, _) = judged(&dir, ["base", "new"], &["--fail-on", condition]);
        assert_eq!(code, Some(2), "{condition}");
    }
}
