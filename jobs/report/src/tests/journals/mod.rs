//! Tests reports of journals on disk: which lines count, how long ranks lived, and what is damaged.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, Write as _};

use super::*;
use jobs::episode::{DemoRef, VideoRef};
use jobs::journal::{EpisodeStart, Journal, PolicyFiles, RankEnd, RankGpu, RankStart};
use jobs::layout::RunFolder;

mod lives;
mod nearly;

fn at(second: u64) -> String {
    format!("2026-11-21T10:{:02}:{:02}.000Z", second / 60, second % 60)
}

fn rank_start(rank: usize, restart: u32, second: u64) -> Line {
    Line::Rank(Box::new(RankStart {
        rank,
        world_size: 2,
        restart,
        node: rank,
        pid: 100 + restart,
        gpu: Some(RankGpu {
            index: 0,
            name: "H200".to_owned(),
            bytes: 1,
            uuid: format!("GPU-{rank}"),
        }),
        versions: BTreeMap::from([("rrun".to_owned(), format!("0.1.{rank}"))]),
        host: format!("node{rank}"),
        device: format!("cuda:{rank}"),
        device_reason: "LOCAL_RANK".to_owned(),
        started: at(second),
        ..RankStart::default()
    }))
}

fn job_start(job: usize, rank: usize, second: u64) -> Line {
    let settings = BTreeMap::from([
        ("dtype".to_owned(), json!("bfloat16")),
        ("policy_path".to_owned(), json!("model")),
        ("num_envs".to_owned(), json!(job + 1)),
    ]);
    Line::JobStart(JobStart {
        job_index: JobIndex(job),
        rank,
        settings,
        started: at(second),
        ..JobStart::default()
    })
}

fn ended(job: usize, number: u64, second: u64) -> Line {
    line(Episode {
        ended: at(second),
        ..episode(job, number, true)
    })
}

fn job_end(job: usize, rank: usize, second: u64) -> Line {
    let Line::JobEnd(end) = end(job, None) else {
        unreachable!("it is an end")
    };
    Line::JobEnd(Box::new(JobEnd {
        rank,
        ended: at(second),
        peak_vram_bytes: Some(second),
        ..*end
    }))
}

fn rank_end(rank: usize, second: u64) -> Line {
    Line::RankEnd(RankEnd {
        rank,
        wall_s: 20.0,
        busy_s: 12.5,
        ended: at(second),
        ..RankEnd::default()
    })
}

struct JournalFolder {
    dir: tempfile::TempDir,
}

impl JournalFolder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(RunFolder::new(dir.path()).journals()).unwrap();
        Self { dir }
    }

    fn run(&self) -> RunFolder {
        RunFolder::new(self.dir.path())
    }

    fn journal(&self, rank: usize, lines: &[Line]) -> &Self {
        let mut journal = Journal::open(&self.run().journal(rank)).unwrap();
        lines.iter().for_each(|line| journal.append(line).unwrap());
        self
    }

    fn report(&self) -> Report {
        crate::write(
            &self.run(),
            &two_jobs(),
            &Journals::of(&self.run()).unwrap(),
            Context::default(),
        )
        .unwrap()
    }
}

/// Returns a run in which rank 0 died in job a and was restarted, and rank 1 ran job b.
fn night() -> JournalFolder {
    let folder = JournalFolder::new();
    let start = Line::EpisodeStart(EpisodeStart {
        started: at(9),
        ..EpisodeStart::default()
    });
    folder.journal(
        0,
        &[
            rank_start(0, 0, 0),
            job_start(0, 0, 1),
            ended(0, 0, 5),
            ended(0, 1, 7),
            start,
        ],
    );
    folder.journal(
        0,
        &[
            rank_start(0, 1, 20),
            job_start(0, 0, 21),
            ended(0, 3, 25),
            ended(0, 2, 26),
            job_end(0, 0, 30),
        ],
    );
    folder.journal(0, &[rank_end(0, 40)]);
    folder.journal(
        1,
        &[
            rank_start(1, 0, 0),
            job_start(1, 1, 1),
            ended(1, 0, 5),
            ended(1, 1, 7),
            job_end(1, 1, 8),
        ],
    );
    folder.journal(1, &[rank_end(1, 40)]);
    folder
}

#[test]
fn a_job_end_of_an_older_journal_is_read() {
    let text = r#"{"type":"job_end","job_index":0,"rank":0,"error":null,"wall_s":1.0,"env_steps":1,"frames":0,
                   "policy_calls":1,"infer_ms":{"p50":null,"p95":null},"sim_ms":{"p50":null,"p95":null},
                   "peak_rss_bytes":5,"peak_vram_bytes":6,"ended":""}"#;
    let Line::JobEnd(end) = serde_json::from_str(text).unwrap() else {
        panic!("another line")
    };
    assert_eq!(
        (
            end.peak_vram_bytes,
            end.peak_env_bytes,
            end.out_of_memory,
            end.gpu_busy
        ),
        (Some(6), None, 0, None)
    );
}

#[test]
fn a_run_says_when_it_was_where_and_with_what() {
    let folder = night();
    let files = PolicyFiles {
        policy_type: "gr00t".to_owned(),
        path: "model".to_owned(),
        sha256: "5f".to_owned(),
        bytes: 9,
        at: at(0),
    };
    folder.journal(1, &[Line::PolicyFiles(files)]);
    let report = folder.report();
    let run = &report.run;
    assert_eq!(
        (run.started.clone(), run.ended.clone(), run.wall_s),
        (Some(at(0)), Some(at(40)), Some(40.0))
    );
    assert_eq!(
        (
            run.hosts.len(),
            run.gpus.len(),
            run.versions["rrun"].len(),
            run.id.len()
        ),
        (2, 2, 2, 32)
    );
    assert_eq!(
        run.launches,
        [LaunchReport {
            started: at(0),
            world_size: 2
        }],
        "a restart is no launch"
    );
    assert_eq!(report.config.policies[0].dtypes, ["bfloat16"]);
    assert_eq!(
        report.config.settings.keys().collect::<Vec<_>>(),
        ["dtype", "policy_path"],
        "num_envs differs"
    );
    assert_eq!(report.per_job[1].settings["num_envs"], 2);
}

#[test]
fn a_run_that_was_gone_on_with_says_when() {
    let folder = night();
    folder.journal(0, &[rank_start(0, 0, 100), rank_end(0, 101)]);
    let run = folder.report().run;
    assert_eq!(
        run.launches
            .iter()
            .map(|launch| launch.started.clone())
            .collect::<Vec<_>>(),
        [at(0), at(100)]
    );
}

#[test]
fn files_that_counted_episodes_name_are_told_by_job() {
    let folder = JournalFolder::new();
    let of = |number: u64, rank: usize| {
        let file = |end: &str| format!("a/{rank}.{end}");
        line(Episode {
            rank,
            dataset: Some(DemoRef {
                file: file("hdf5"),
                demo: format!("demo_{number}"),
            }),
            video: Some(VideoRef {
                file: file("mp4"),
                first_frame: 0,
                frames: 10,
                fps: None,
            }),
            ..episode(0, number, number > 1)
        })
    };
    folder
        .journal(0, &[of(0, 0), of(1, 0)])
        .journal(1, &[of(2, 1), of(3, 1)]);
    let report = folder.report();
    assert_eq!(report.per_job[0].datasets, ["a/0.hdf5", "a/1.hdf5"]);
    assert_eq!(report.per_job[0].videos, ["a/0.mp4", "a/1.mp4"]);
    assert_eq!((report.unsolved_count, report.unsolved[1].episode), (2, 1));
    assert_eq!(report.unsolved[0].video.as_ref().unwrap().file, "a/0.mp4");
}

#[test]
fn a_journal_that_a_rank_delivered_and_the_shared_folder_has_is_one() {
    let folder = night();
    let bytes = std::fs::read(folder.run().journal(1)).unwrap();
    let longer = [bytes.as_slice(), b"{\"type\":\"rank_end\""].concat();
    for delivered in [bytes.clone(), bytes[..bytes.len() / 2].to_vec(), longer] {
        let journals = Journals::of(&folder.run())
            .unwrap()
            .and_delivered([(1, delivered)]);
        let plan = two_jobs();
        let merged = Merged::new(&plan, &journals).unwrap();
        assert_eq!(
            Report::of(&merged, Context::default()).unwrap(),
            folder.report()
        );
    }
    std::fs::remove_file(folder.run().journal(1)).unwrap();
    let (plan, journals) = (
        two_jobs(),
        Journals::of(&folder.run())
            .unwrap()
            .and_delivered([(1, bytes)]),
    );
    assert!(
        Report::of(&Merged::new(&plan, &journals).unwrap(), Context::default())
            .unwrap()
            .complete()
    );
}

#[test]
fn episodes_are_written_in_order_without_the_word_that_says_what_they_are() {
    let folder = night();
    // The same line with its fields in another order, as another program might write it.
    let other = serde_json::to_value(ended(0, 1, 6)).unwrap();
    let other: BTreeMap<String, serde_json::Value> = serde_json::from_value(other).unwrap();
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(folder.run().journal(1))
        .unwrap();
    writeln!(file, "{}", serde_json::to_string(&other).unwrap()).unwrap();
    let report = folder.report();
    let text = std::fs::read_to_string(folder.run().episodes()).unwrap();
    let episodes: Vec<Episode> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let numbers: Vec<_> = episodes
        .iter()
        .map(|episode| (episode.job.as_str(), episode.episode))
        .collect();
    assert_eq!(
        numbers,
        [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)]
    );
    assert_eq!(episodes[1].ended, at(6), "the first that was scored");
    assert_eq!(
        report.duplicates,
        [Duplicate {
            job: "a".to_owned(),
            episode: 1,
            agree: true
        }]
    );
    assert!(!text.contains("\"type\""));
}

#[test]
fn lines_that_say_nothing_are_named_and_the_rest_counts() {
    let folder = night();
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(folder.run().journal(1))
        .unwrap();
    file.write_all(b"nonsense\n{\"type\":\"episode\",\"job\":\"a\"}\n{\"type\":\"epis")
        .unwrap();
    let (plan, journals) = (two_jobs(), Journals::of(&folder.run()).unwrap());
    let merged = Merged::new(&plan, &journals).unwrap();
    let damage: Vec<_> = merged.damage().cloned().collect();
    let journal = "journal/journal_rank1.jsonl".to_owned();
    assert_eq!(
        damage,
        [Damage {
            journal,
            lines: vec![7, 8],
            torn: 13,
            ..Damage::default()
        }]
    );
    assert!(Report::of(&merged, Context::default()).unwrap().complete());
}

#[test]
fn lists_are_bounded_and_counts_are_not() {
    let mut entry = job("a", 5000);
    entry["num_episodes"] = 5000.into();
    let plan = plan(json!([entry]));
    let errored = |number: u64| Episode {
        success: None,
        error: Some(format!("error {}", number % 3)),
        ..episode(0, number, false)
    };
    let lines: Vec<_> = (0..2000).map(|number| line(errored(number))).collect();
    let report = Report::new(&plan, &lines, Context::default());
    assert_eq!((report.missing.len(), report.missing_count), (1000, 3000));
    assert_eq!((report.failures.len(), report.failures_count), (1000, 2000));
    assert_eq!(
        report
            .failures_by_reason
            .iter()
            .map(|reason| reason.count)
            .collect::<Vec<_>>(),
        [667, 667, 666]
    );
    assert_eq!(report.missing[0].episode, 2000);
}

#[test]
fn jobs_are_grouped_by_each_variation_and_by_their_set() {
    let mut entries = [job("a", 1), job("b", 1), job("c", 1)];
    for (entry, light) in entries.iter_mut().zip([500, 500, 900]) {
        entry["variations"] = json!({"light": {"intensity": light}});
        entry["arena_env_args"]["eval_set"] = json!("base");
    }
    let plan = plan(json!(entries));
    let lines = [
        line(episode(0, 0, true)),
        line(Episode {
            job_index: JobIndex(2),
            ..episode(0, 0, false)
        }),
    ];
    let groups = Report::new(&plan, &lines, Context::default()).per_group;
    let of = |by: &str, value: &str| {
        groups
            .iter()
            .find(|group| group.by == by && group.value == value)
            .unwrap()
    };
    let light = of("variations.light.intensity", "500");
    assert_eq!(
        (light.jobs, light.rates.expected, light.rates.successes),
        (2, Some(2), 1)
    );
    assert_eq!(
        of("variations.light.intensity", "900").rates.success_rate,
        Some(0.0)
    );
    assert_eq!(
        (of("eval_set", "base").jobs, of("task", "reach").jobs),
        (3, 3)
    );
}

proptest! {
    #[test]
    fn the_order_of_journals_changes_nothing(
        picks in proptest::collection::vec((0usize..2, 0u64..3, any::<bool>(), 0u64..3, any::<bool>()), 0..30),
        cut in 0usize..30
    ) {
        let lines: Vec<_> = picks.iter().map(|(job, number, success, second, errored)| line(Episode {
            ended: at(*second),
            error: errored.then(|| "NaN".to_owned()),
            ..episode(*job, *number, *success)
        })).collect();
        let (first, second) = lines.split_at(cut.min(lines.len()));
        let text = |parts: [&[Line]; 2]| {
            let (plan, mut file) = (two_jobs(), tempfile::tempfile().unwrap());
            let journals = parts.into_iter().enumerate().fold(Journals::default(), |journals, (rank, lines)| {
                let part = lines.iter().flat_map(|line| serde_json::to_vec(line).unwrap().into_iter().chain([b'\n']));
                journals.and_delivered([(rank, part.collect())])
            });
            let merged = Merged::new(&plan, &journals).unwrap();
            merged.write_episodes(&file).unwrap();
            let mut bytes = Vec::new();
            file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
            (bytes, Report::of(&merged, Context::default()).unwrap())
        };
        prop_assert_eq!(text([first, second]), text([second, first]));
    }
}
