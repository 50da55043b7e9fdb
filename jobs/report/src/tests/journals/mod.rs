//! Tests reports of journals on disk: which lines count, how long ranks lived, and what is damaged.

use std::collections::BTreeMap;

use super::*;
use jobs::costs::Costs;
use jobs::journal::{self, Journal, RankGpu};

use crate::tests::lines::{began, ended};

mod lives;
mod nearly;

fn began_rank(rank: usize, restart: u32, second: u64) -> Line {
    Line::Rank(Box::new(RankStart {
        node: rank,
        pid: 100 + restart,
        gpu: Some(RankGpu {
            index: 0,
            name: "H200".to_owned(),
            bytes: 1,
            uuid: format!("GPU-{rank}"),
        }),
        versions: BTreeMap::from([("rrun".to_owned(), format!("0.1.{rank}"))]),
        device: format!("cuda:{rank}"),
        device_reason: "LOCAL_RANK".to_owned(),
        ..rank_start(rank, restart, second)
    }))
}

fn began_job(job: usize, rank: usize, second: u64) -> Line {
    let settings = BTreeMap::from([
        ("dtype".to_owned(), json!("bfloat16")),
        ("policy_path".to_owned(), json!("model")),
        ("num_envs".to_owned(), json!(job + 1)),
    ]);
    Line::JobStart(JobStart {
        settings,
        ..job_start(job, rank, second)
    })
}

fn ended_job(job: usize, rank: usize, second: u64) -> Line {
    Line::JobEnd(Box::new(JobEnd {
        rank,
        ended: at(second),
        costs: Costs {
            peak_vram_bytes: Some(second),
            ..Costs::default()
        },
        ..job_end(job, None)
    }))
}

impl TestRun {
    fn journal(&self, rank: usize, lines: &[Line]) -> &Self {
        let mut journal = Journal::open(&self.folder.journal(rank)).unwrap();
        lines.iter().for_each(|line| journal.append(line).unwrap());
        self
    }

    fn journals(&self) -> Journals {
        Journals::of(&self.folder).unwrap()
    }

    fn report(&self) -> Report {
        let merged = merged(self.journals());
        crate::write(&self.folder, &merged, Context::default()).unwrap()
    }
}

fn empty() -> TestRun {
    TestRun::new(&two_jobs())
}

/// Returns a run in which rank 0 died in job a and was restarted, and rank 1 ran job b.
fn night() -> TestRun {
    let run = empty();
    run.journal(0, &[began_rank(0, 0, 0), began_job(0, 0, 1)]);
    run.journal(0, &[ended(0, 0, 5), ended(0, 1, 7), began(0, 0, 0, 9)]);
    run.journal(0, &[began_rank(0, 1, 20), began_job(0, 0, 21)]);
    run.journal(0, &[ended(0, 3, 25), ended(0, 2, 26), ended_job(0, 0, 30)]);
    run.journal(0, &[rank_end(0, 40)]);
    run.journal(1, &[began_rank(1, 0, 0), began_job(1, 1, 1)]);
    run.journal(1, &[ended(1, 0, 5), ended(1, 1, 7), ended_job(1, 1, 8)]);
    run.journal(1, &[rank_end(1, 40)]);
    run
}

/// Returns when each launch began.
fn launches(run: &RunReport) -> Vec<String> {
    let launches = run.launches.iter();
    launches.map(|launch| launch.started.clone()).collect()
}

#[test]
fn a_run_says_when_it_was_where_and_with_what() {
    let run = night();
    run.journal(1, &[lines::policy_files("model", "5f", &at(0))]);
    let report = run.report();
    let run = &report.run;
    assert_eq!(run.started, Some(at(0)));
    assert_eq!((run.ended.clone(), run.wall_s), (Some(at(40)), Some(40.0)));
    assert_eq!((run.hosts.len(), run.gpus.len()), (2, 2));
    assert_eq!(run.versions["rrun"].len(), 2);
    assert_eq!(launches(run), [at(0)], "a restart is no launch");
    assert_eq!(run.launches[0].world_size, 2);
    assert_eq!(report.config.policies[0].dtypes, ["bfloat16"]);
    let settings: Vec<_> = report.config.settings.keys().collect();
    assert_eq!(settings, ["dtype", "policy_path"], "num_envs differs");
    assert_eq!(report.per_job[1].settings["num_envs"], 2);
}

#[test]
fn a_run_that_was_gone_on_with_says_when() {
    let run = night();
    run.journal(0, &[began_rank(0, 0, 100), rank_end(0, 101)]);
    assert_eq!(launches(&run.report().run), [at(0), at(100)]);
}

#[test]
fn files_that_counted_episodes_name_are_told_by_job() {
    let run = empty();
    let of = |number: u64, rank: usize| {
        let file = |end: &str| format!("a/{rank}.{end}");
        line(Episode {
            rank,
            dataset: lines::demo(&file("hdf5"), &format!("demo_{number}")),
            video: lines::video(&file("mp4"), 0),
            ..episode(0, number, number > 1)
        })
    };
    run.journal(0, &[of(0, 0), of(1, 0)])
        .journal(1, &[of(2, 1), of(3, 1)]);
    let report = run.report();
    assert_eq!(report.per_job[0].datasets, ["a/0.hdf5", "a/1.hdf5"]);
    assert_eq!(report.per_job[0].videos, ["a/0.mp4", "a/1.mp4"]);
    assert_eq!((report.unsolved_count, report.unsolved[1].episode), (2, 1));
    assert_eq!(report.unsolved[0].video.as_ref().unwrap().file, "a/0.mp4");
}

#[test]
fn a_journal_that_a_rank_delivered_and_the_shared_folder_has_is_one() {
    let run = night();
    let bytes = std::fs::read(run.folder.journal(1)).unwrap();
    let longer = [bytes.as_slice(), b"{\"type\":\"rank_end\""].concat();
    let report = |delivered: Vec<u8>| {
        let merged = merged(run.journals().and_delivered([(1, delivered)]));
        Report::of(&merged, Context::default()).unwrap()
    };
    for delivered in [bytes.clone(), bytes[..bytes.len() / 2].to_vec(), longer] {
        assert_eq!(report(delivered), run.report());
    }
    std::fs::remove_file(run.folder.journal(1)).unwrap();
    assert!(report(bytes).complete());
}

#[test]
fn episodes_are_written_in_order_without_the_word_that_says_what_they_are() {
    let run = night();
    // The same line with its fields in another order, as another program might write it.
    let other = serde_json::to_value(ended(0, 1, 6)).unwrap();
    let other: BTreeMap<String, serde_json::Value> = serde_json::from_value(other).unwrap();
    run.append(1, format!("{}\n", json!(other)).as_bytes());
    let report = run.report();
    let text = std::fs::read_to_string(run.folder.episodes()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let episodes: Vec<Episode> = lines.collect();
    let numbers = episodes
        .iter()
        .map(|episode| (&*episode.job, episode.episode));
    let wanted = [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)];
    assert_eq!(numbers.collect::<Vec<_>>(), wanted);
    assert_eq!(episodes[1].ended, at(6), "the first that was scored");
    let [twice] = &report.duplicates[..] else {
        panic!("one: {:?}", report.duplicates)
    };
    assert_eq!((&*twice.job, twice.episode, twice.agree), ("a", 1, true));
    assert!(!text.contains("\"type\""));
}

#[test]
fn lines_that_say_nothing_are_named_and_the_rest_counts() {
    let run = night();
    let text = "nonsense\n{\"type\":\"episode\",\"job\":\"a\"}\n{\"type\":\"epis";
    run.append(1, text.as_bytes());
    let merged = merged(run.journals());
    let damage: Vec<_> = merged.damage().cloned().collect();
    let wanted = Damage {
        journal: "journal/journal_rank1.jsonl".to_owned(),
        lines: vec![7, 8],
        torn: 13,
        ..Damage::default()
    };
    assert_eq!(damage, [wanted]);
    assert!(Report::of(&merged, Context::default()).unwrap().complete());
}

#[test]
fn a_line_with_one_field_of_another_kind_counts_nowhere_and_ends_no_report() {
    for field in ["\"latency\":3", "\"metrics\":[1]", "\"episode_video\":{}"] {
        let run = empty();
        let mut text = serde_json::to_string(&ended(0, 0, 5)).unwrap();
        text.truncate(text.len() - 1);
        run.append(0, format!("{text},{field}}}\n").as_bytes());
        run.append(0, format!("{text}}}\n").as_bytes());
        let merged = merged(run.journals());
        let damage: Vec<_> = merged.damage().map(|damage| &*damage.lines).collect();
        assert_eq!(damage, [[1]], "{field}");
        let report = Report::of(&merged, Context::default()).unwrap();
        assert_eq!(report.overall.episodes, 1);
        let accepted = merged.plan.accepted();
        let resumed = journal::read_all(&run.folder.journals(), &accepted).unwrap();
        let [resumed] = &resumed[..] else { panic!() };
        assert_eq!((&*resumed.damaged, resumed.lines.len()), (&[1][..], 1));
    }
}

#[test]
fn lists_are_bounded_and_counts_are_not() {
    let plan = plan([job("a", 5000)]);
    let errored = |number: u64| broken(episode(0, number, false), &format!("error {}", number % 3));
    let lines: Vec<_> = (0..2000).map(|number| line(errored(number))).collect();
    let report = Report::new(&plan, &lines, Context::default());
    assert_eq!((report.missing.len(), report.missing_count), (1000, 3000));
    assert_eq!((report.failures.len(), report.failures_count), (1000, 2000));
    let reasons = report.failures_by_reason.iter().map(|reason| reason.count);
    assert_eq!(reasons.collect::<Vec<_>>(), [667, 667, 666]);
    assert_eq!(report.missing[0].episode, 2000);
}

#[test]
fn jobs_are_grouped_by_each_variation_and_by_their_set() {
    let varied = |(name, light): (&str, u64)| {
        let args = json!({"environment": "reach", "eval_set": "base"});
        let variations = json!({"light": {"intensity": light}});
        json!({"name": name, "num_episodes": 1, "arena_env_args": args, "variations": variations})
    };
    let plan = plan([("a", 500), ("b", 500), ("c", 900)].map(varied));
    let last = Episode {
        job: "c".to_owned(),
        ..episode(0, 0, false)
    };
    let lines = [episode(0, 0, true), last].map(line);
    let groups = Report::new(&plan, &lines, Context::default()).per_group;
    let of = |by: &str, value: &str| {
        let mut groups = groups.iter();
        let found = groups.find(|group| group.by == by && group.value == value);
        found.unwrap()
    };
    let light = of("variations.light.intensity", "500");
    assert_eq!((light.jobs, light.rates.expected), (2, Some(2)));
    assert_eq!(light.rates.successes, 1);
    let bright = of("variations.light.intensity", "900");
    assert_eq!(bright.rates.success_rate, Some(0.0));
    assert_eq!(of("eval_set", "base").jobs, 3);
    assert_eq!(of("task", "reach").jobs, 3);
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
            let journals = parts.into_iter().enumerate().fold(Journals::default(), |journals, (rank, lines)| {
                let part = lines.iter().flat_map(|line| serde_json::to_vec(line).unwrap().into_iter().chain([b'\n']));
                journals.and_delivered([(rank, part.collect())])
            });
            let merged = merged(journals);
            let mut bytes = Vec::new();
            merged.write_episodes(&mut bytes).unwrap();
            (bytes, Report::of(&merged, Context::default()).unwrap())
        };
        prop_assert_eq!(text([first, second]), text([second, first]));
    }
}
