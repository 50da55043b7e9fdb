use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use jobs::episode::Episode;
use jobs::inputs::InputFile;
use jobs::journal::{EpisodeStart, JobEnd, JobStart, Journal, Line};
use jobs::samples;

use crate::tests::lines::{self, at};

mod overlap;

/// A temporary folder for the folders of a test.
struct MergeFolders {
    dir: TempDir,
}

fn job(name: &str) -> Value {
    json!({"name": name, "num_episodes": 6})
}

impl MergeFolders {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a run of these jobs with its own id.
    fn run(&self, name: &str, entries: &[Value]) -> InputRun {
        let folder = RunFolder::new(&self.path(name));
        fs::create_dir_all(folder.journals()).unwrap();
        let plan = RunPlan {
            id: format!("{:x<32}", name.replace('_', "")),
            created: at(0),
            world_size: 1,
            ..lines::plan(entries.iter().cloned())
        };
        let run = InputRun { folder, plan };
        run.save();
        run
    }

    fn merge(&self, names: &[&str], output: &str) -> Result<Report, Refusal> {
        let dirs: Vec<_> = names.iter().map(|name| self.path(name)).collect();
        let merge = Merge::of(&dirs, &self.path(output))?;
        let context = Context {
            created: at(59),
            ..Context::default()
        };
        Ok(merge.write(context).map_err(Refusal::new)?.0)
    }

    /// Returns everything that a merge has written, except the list of its inputs.
    fn content(&self, output: &str) -> BTreeMap<String, String> {
        let folder = RunFolder::new(&self.path(output));
        let journals = fs::read_dir(folder.journals()).unwrap();
        let journals = journals.map(|entry| entry.unwrap().path());
        let reports = [folder.report(), folder.episodes(), folder.eval_info()];
        let paths = journals.chain(reports).chain([folder.plan()]);
        let text = |path: PathBuf| (folder.relative(&path), fs::read_to_string(path).unwrap());
        paths.map(text).collect()
    }
}

struct InputRun {
    folder: RunFolder,
    plan: RunPlan,
}

impl InputRun {
    fn save(&self) {
        fs::write(self.folder.plan(), serde_json::to_vec(&self.plan).unwrap()).unwrap();
    }

    fn episode(job: &str, number: u64, length: u64) -> Line {
        let file = |end: &str| format!("{job}/{job}_{number}.{end}");
        let episode = Episode {
            seed: number,
            success: Some(number.is_multiple_of(2)),
            length,
            return_: 1.5,
            language_instruction: "say \"file\":\"x\"".to_owned(),
            ended: at(number + length % 7),
            dataset: lines::demo(&file("hdf5"), "demo_0"),
            video: lines::video(&file("mp4"), 0),
            episode_video: Some(file("episode.mp4")),
            ..samples::episode(0, job, number)
        };
        episode.into()
    }

    /// Returns the lines that a rank writes for some episodes.
    fn lines(rank: usize, episodes: &[(&str, u64, u64)]) -> Vec<Line> {
        let start = lines::rank_start(rank, 0, rank as u64);
        let mut written = vec![Line::Rank(Box::new(start))];
        for (job, number, length) in episodes {
            let start = EpisodeStart {
                job: (*job).to_owned(),
                episode: *number,
                ..EpisodeStart::default()
            };
            let end = JobEnd {
                job: (*job).to_owned(),
                rank,
                log: Some("logs/rank0.log".to_owned()),
                ended: at(30),
                ..JobEnd::default()
            };
            written.push(Line::JobStart(JobStart {
                job: (*job).to_owned(),
                ..lines::job_start(0, rank, 1)
            }));
            written.push(Line::EpisodeStart(start));
            written.push(Self::episode(job, *number, *length));
            written.push(Line::JobEnd(Box::new(end)));
        }
        written.push(lines::rank_end(rank, 40));
        written
    }

    fn rank(&self, rank: usize, episodes: &[(&str, u64, u64)]) -> &Self {
        let journal = Journal::open(&self.folder.journal(rank)).unwrap();
        let mut journal = journal.stamped(self.plan.stamps(None));
        for line in Self::lines(rank, episodes) {
            journal.append(&line).unwrap();
        }
        self
    }
}

fn all(job: &'static str, numbers: std::ops::Range<u64>) -> Vec<(&'static str, u64, u64)> {
    numbers.map(|number| (job, number, 10)).collect()
}

#[test]
fn workers_that_had_parts_of_one_list_are_one_run() {
    let place = MergeFolders::new();
    place
        .run("out/worker_0", &[job("a"), job("b")])
        .rank(0, &all("a", 0..6));
    place
        .run("out/worker_1", &[job("a"), job("b")])
        .rank(0, &all("b", 0..6));
    let report = place.merge(&["out"], "out/merged").unwrap();
    assert!(report.complete());
    assert_eq!(report.overall.episodes, 12);
    let ranks = report.per_rank.len();
    assert_eq!(ranks, 2, "both were rank 0 of a run of their own");
    let merged = RunFolder::new(&place.path("out/merged"));
    let episodes = fs::read_to_string(merged.episodes()).unwrap();
    let first: Episode = serde_json::from_str(episodes.lines().next().unwrap()).unwrap();
    assert_eq!(first.dataset.unwrap().file, "../worker_0/a/a_0.hdf5");
    let film = first.episode_video.unwrap();
    assert_eq!(film, "../worker_0/a/a_0.episode.mp4");
    assert_eq!(first.language_instruction, "say \"file\":\"x\"");
    assert_eq!(report.per_job[1].videos[0], "../worker_1/b/b_0.mp4");
}

#[test]
fn a_merged_folder_is_never_its_own_input() {
    let place = MergeFolders::new();
    place
        .run("out/worker_0", &[job("a")])
        .rank(0, &all("a", 0..3));
    place
        .run("out/worker_1", &[job("a")])
        .rank(0, &all("a", 3..6));
    let first = place.merge(&["out"], "out/merged").unwrap();
    let content = place.content("out/merged");
    // The output is inside a named folder, and named itself, as with a shell's `out/*`.
    for inputs in [
        &["out"][..],
        &["out/worker_0", "out/worker_1", "out/merged"],
    ] {
        assert_eq!(place.merge(inputs, "out/merged").unwrap(), first);
    }
    assert_eq!(place.content("out/merged"), content);
    // The output is above its inputs.
    place.merge(&["out"], "out").unwrap();
    assert_eq!(place.merge(&["out"], "out").unwrap().overall.episodes, 6);
    let only = place.merge(&["out/merged"], "out/merged").unwrap_err();
    let told = "out/merged` is the output of this merge, which is not read";
    assert!(only.to_string().ends_with(told), "{only}");
}

#[test]
fn other_jobs_are_put_beside_each_other_by_name() {
    let place = MergeFolders::new();
    place
        .run("x", &[job("d"), job("b")])
        .rank(0, &all("d", 0..6))
        .rank(1, &all("b", 0..6));
    place
        .run("y", &[job("c"), job("b")])
        .rank(0, &all("c", 0..6));
    let report = place.merge(&["x", "y"], "out").unwrap();
    assert!(report.complete(), "{:?}", report.missing);
    let jobs = report.per_job.iter();
    let names: Vec<_> = jobs
        .map(|job| (job.name.as_str(), job.index.0, job.attempts))
        .collect();
    assert_eq!(names, [("b", 0, 1), ("c", 1, 1), ("d", 2, 1)]);
    assert_eq!(report.per_rank[0].spans[0].job, "d");
}

#[test]
fn jobs_of_one_name_that_differ_are_refused_with_what_differs() {
    let place = MergeFolders::new();
    let mut other = job("a");
    other["seed"] = json!(7);
    place
        .run("x", &[job("a"), job("b")])
        .rank(0, &all("a", 0..6));
    place.run("y", &[job("c"), other]).rank(0, &all("a", 0..6));
    let refusal = place.merge(&["x", "y"], "out").unwrap_err().to_string();
    let told = "ran different jobs under the same names:\n  a: seed --seed 42 → 7";
    assert!(refusal.ends_with(told), "{refusal}");
    assert!(!place.path("out").exists());
}

#[test]
fn runs_of_one_job_with_other_contents_of_a_file_are_refused() {
    let folders = MergeFolders::new();
    let file = |sum: &str| InputFile {
        bytes: 9,
        modified: 1,
        sha256: Some(sum.to_owned()),
    };
    let run = |name: &str, job_of: &str, sum: &str| {
        let mut run = folders.run(name, &[job(job_of)]);
        run.plan.inputs = [("policy.py".to_owned(), file(sum))].into();
        run.save();
        run.rank(0, &[(job_of, 0, 5)]);
    };
    run("a", "reach", "1234");
    run("b", "reach", "5678");
    run("c", "other", "5678");
    run("d", "reach", "1234");
    let refused = folders.merge(&["a", "b"], "out").unwrap_err().to_string();
    let told = "`policy.py`: SHA-256 1234… → SHA-256 5678…";
    assert!(refused.contains(told), "{refused}");
    assert!(folders.merge(&["a", "c", "d"], "out").is_ok());
}

#[test]
fn another_base_seed_is_refused_where_a_job_goes_by_it() {
    let place = MergeFolders::new();
    let mut own = job("b");
    own["seed"] = json!(7);
    place.run("x", &[job("a")]).rank(0, &all("a", 0..6));
    let mut other = place.run("y", &[own]);
    other.plan.seed = 43;
    other.save();
    let merged = place.merge(&["x", "y"], "out");
    assert!(merged.is_ok(), "b has a seed of its own");
    let mut third = place.run("z", &[job("c")]);
    third.plan.seed = 44;
    third.save();
    let refusal = place.merge(&["x", "z"], "other").unwrap_err().to_string();
    let told = "is 44: only jobs with a seed field of their own can be merged";
    assert!(refusal.contains("is 42, that of"), "{refusal}");
    assert!(refusal.contains(told), "{refusal}");
}

#[test]
fn a_run_is_not_written_over() {
    let place = MergeFolders::new();
    place.run("x", &[job("a")]).rank(0, &all("a", 0..3));
    place.run("y", &[job("a")]).rank(0, &all("a", 3..6));
    let is_refused = |output: &str| {
        let refusal = place.merge(&["x"], output).unwrap_err().to_string();
        let told = format!("{output}` contains another run: choose another --output");
        assert!(refusal.ends_with(&told), "{refusal}");
    };
    is_refused("y");
    place.merge(&["x"], "out").unwrap();
    // A journal without a suffix: the merged run was continued, so it is a run now.
    let folder = RunFolder::new(&place.path("out"));
    let mut plan = RunPlan::read(&folder).unwrap();
    plan.provenance.runs.push(plan.id.clone());
    let continued = InputRun { folder, plan };
    continued.save();
    continued.rank(0, &all("a", 3..6));
    is_refused("out");
    let as_one = place.merge(&["x", "out"], "new").unwrap();
    assert!(as_one.complete(), "and can be merged as one");
}

#[test]
fn folders_without_runs_are_named() {
    let place = MergeFolders::new();
    fs::create_dir(place.path("empty")).unwrap();
    let refusal = |input: &str| place.merge(&[input], "out").unwrap_err().to_string();
    assert!(refusal("empty").contains("empty` is not a run folder and contains none"));
    assert!(refusal("none").contains("cannot read folder"));
}

#[test]
fn a_line_is_rewritten_in_the_paths_of_its_files_alone() {
    let place = MergeFolders::new();
    place.run("deep/x", &[job("b"), job("a")]);
    place.run("y", &[job("c")]);
    let merge = Merge::of(&[place.path("deep"), place.path("y")], &place.path("out")).unwrap();
    let rewrite = rewrite::Rewrite::new(&merge.inputs[0], merge.output.root());
    let rewritten = |text: &str| {
        let mut line = Vec::new();
        rewrite.line(text.as_bytes(), &mut line);
        String::from_utf8(line).unwrap()
    };
    for line in InputRun::lines(0, &[("a", 3, 9), ("b", 4, 9)]) {
        let text = serde_json::to_string(&line).unwrap();
        let mut wanted = json!(line);
        for file in ["/dataset/file", "/video/file", "/episode_video", "/log"] {
            if let Some(file) = wanted.pointer_mut(file) {
                *file = format!("../deep/x/{}", file.as_str().unwrap()).into();
            }
        }
        assert_eq!(rewritten(&text), format!("{wanted}\n"));
        // The same line with its fields in another order, as another program might write it.
        let sorted: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
        let sorted: Value = serde_json::from_str(&rewritten(&json!(sorted).to_string())).unwrap();
        assert_eq!(sorted, wanted);
        // A damaged line stays one: which of the two values was meant is not known.
        let twice = "\"job\":\"b\",\"job\":";
        let damaged = text.replacen("\"job\":", twice, 1);
        assert_eq!(rewritten(&damaged).contains(twice), damaged != text);
    }
    let nonsense = "{\"type\":\"episode\",nonsense";
    assert_eq!(rewritten(nonsense), format!("{nonsense}\n"));
}

/// Whether a run has jobs `a` and `b`, or `c` and `b`; which job each episode belongs to (the
/// second one?), its number and length; and whether a second rank has the same.
type RunOf = (bool, Vec<(bool, u64, u64)>, bool);

fn runs() -> impl Strategy<Value = Vec<RunOf>> {
    let episode = (any::<bool>(), 0u64..6, 10u64..12);
    let episodes = proptest::collection::vec(episode, 0..5);
    proptest::collection::vec((any::<bool>(), episodes, any::<bool>()), 3..=3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(15))]
    #[test]
    fn merging_is_associative_commutative_and_idempotent(runs in runs()) {
        let place = MergeFolders::new();
        for (number, (is_ab, episodes, has_two_ranks)) in runs.iter().enumerate() {
            let jobs = if *is_ab { ["a", "b"] } else { ["c", "b"] };
            let run = place.run(&format!("r{number}"), &jobs.map(job));
            let named: Vec<_> = episodes.iter().map(|(second, n, length)| (jobs[usize::from(*second)], *n, *length)).collect();
            run.rank(0, &named);
            if *has_two_ranks {
                run.rank(1, &named);
            }
        }
        place.merge(&["r0", "r1"], "m01").unwrap();
        place.merge(&["m01", "r2"], "left").unwrap();
        place.merge(&["r2", "r1"], "m12").unwrap();
        place.merge(&["r0", "m12"], "right").unwrap();
        place.merge(&["r2", "r0", "r1"], "flat").unwrap();
        place.merge(&["left", "right", "r1"], "again").unwrap();
        let flat = place.content("flat");
        for other in ["left", "right", "again"] {
            prop_assert_eq!(&place.content(other), &flat, "{}", other);
        }
    }
}

#[test]
fn a_merge_has_as_many_ranks_as_its_largest_run_whichever_started_last() {
    let folders = MergeFolders::new();
    for (name, world_size) in [("large", 8), ("small", 4)] {
        let mut run = folders.run(name, &[job("a")]);
        run.plan.world_size = world_size;
        run.save();
        run.rank(
            usize::from(name == "small"),
            &[("a", world_size as u64 - 4, 5)],
        );
    }
    let report = folders.merge(&["large", "small"], "merged").unwrap();
    let sizes = (report.run.world_size, report.config.world_size_at_start);
    assert_eq!(sizes, (8, 8), "it did not change");
}

#[test]
fn only_the_name_of_a_journal_is_text() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(&dir.path().join(OsStr::from_bytes(b"\xff")));
    fs::create_dir_all(folder.journals()).unwrap();
    fs::write(folder.merge(), "{}").unwrap();
    fs::write(folder.journals().join("journal_rank0_5f1c.jsonl"), "").unwrap();
    assert!(!journals::is_run(&folder).unwrap());
}
