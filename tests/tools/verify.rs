//! Tests of `rrun verify`.

use std::fs;
use std::path::PathBuf;

use jobs::episode::{DemoRef, Episode, VideoRef};
use jobs::journal::Journal;
use serde_json::json;

use crate::tools::elsewhere::Elsewhere;
use crate::tools::folder::{Run, at, job, rrun, rrun_with};

/// Three demonstrations of a job `a`; see `make_dataset.py` beside it.
const DATASET: &[u8] = include_bytes!("../fixtures/tools/dataset.hdf5");

/// Returns an mp4 file with two fragments of this many images.
fn film(frames: [u32; 2]) -> Vec<u8> {
    let boxed = |name: &[u8; 4], body: &[u8]| {
        [&(body.len() as u32 + 8).to_be_bytes()[..], name, body].concat()
    };
    let fragment = |frames: u32| {
        let run = [[0; 4], frames.to_be_bytes()].concat();
        [
            boxed(b"moof", &boxed(b"traf", &boxed(b"trun", &run))),
            boxed(b"mdat", &[7; 30]),
        ]
        .concat()
    };
    [
        boxed(b"ftyp", b"isom"),
        boxed(b"moov", &boxed(b"mvhd", &[0; 8])),
        fragment(frames[0]),
        fragment(frames[1]),
    ]
    .concat()
}

/// A run of three episodes with a dataset and a video.
struct Recorded {
    run: Run,
    dataset: PathBuf,
    video: PathBuf,
}

impl Recorded {
    fn new() -> Self {
        let run = Run::new(&[job("a", 3)]);
        run.rank(0, (0..3).map(|number| recorded(&run, number)));
        let folder = run.folder.job("a");
        fs::create_dir(&folder).unwrap();
        let (dataset, video) = (
            folder.join("dataset_a.hdf5"),
            folder.join("a_video_rank0_gpu0_env0.mp4"),
        );
        fs::write(&dataset, DATASET).unwrap();
        fs::write(&video, film([20, 10])).unwrap();
        Self {
            run,
            dataset,
            video,
        }
    }

    #[track_caller]
    fn is_wrong(&self, wrong: &str) {
        let done = rrun(&["verify", self.run.path()]).fails_with(1);
        let told: Vec<String> = done
            .stdout()
            .lines()
            .filter_map(|line| Some(line.strip_prefix("wrong: ")?.to_owned()))
            .collect();
        assert_eq!(told, [wrong], "{}", done.stdout());
    }
}

fn recorded(run: &Run, number: u64) -> Episode {
    recorded_in(run, "a/dataset_a.hdf5", number)
}

fn recorded_in(run: &Run, dataset: &str, number: u64) -> Episode {
    let video = VideoRef {
        file: "a/a_video_rank0_gpu0_env0.mp4".to_owned(),
        first_frame: number * 10,
        frames: 10,
        fps: None,
    };
    Episode {
        dataset: Some(DemoRef {
            file: dataset.to_owned(),
            demo: format!("demo_{number}"),
        }),
        video: Some(video),
        ..run.episode(0, number, 0)
    }
}

#[test]
fn a_whole_run_is_all_there() {
    let recorded = Recorded::new();
    let row = "| a   | 3 of 3   | 0      | 1        | 3              | 1      | 0        |";
    rrun(&["verify", recorded.run.path()])
        .succeeds()
        .says(row)
        .says("is all there");
    rrun(&["verify", "--no-values", recorded.run.path()]).succeeds();
}

#[test]
fn a_dataset_that_is_gone_cut_or_changed_is_found() {
    let recorded = Recorded::new();
    fs::remove_file(&recorded.dataset).unwrap();
    recorded.is_wrong("`a/dataset_a.hdf5` is missing");
    fs::write(&recorded.dataset, b"no HDF5 at all").unwrap();
    let done = rrun(&["verify", recorded.run.path()]).fails_with(1);
    done.says("wrong: `a/dataset_a.hdf5` cannot be read: ");
    fs::write(&recorded.dataset, &DATASET[..DATASET.len() - 1]).unwrap();
    let done = rrun(&["verify", "--no-values", recorded.run.path()]).fails_with(1);
    done.says(&format!(
        "is cut off: it has {} bytes of {}",
        DATASET.len() - 1,
        DATASET.len()
    ));
}

#[test]
fn a_flipped_bit_in_compressed_values_is_found() {
    let recorded = Recorded::new();
    // The last bytes of the file are values of the last demonstration or its tables: flip a bit
    // where there are only values.
    let at = DATASET.windows(2).rposition(|window| {
        window == [0x78, 0x5e] || window == [0x78, 0x01] || window == [0x78, 0x9c]
    });
    let mut bytes = DATASET.to_vec();
    bytes[at.unwrap() + 20] ^= 1;
    fs::write(&recorded.dataset, bytes).unwrap();
    let done = rrun(&["verify", recorded.run.path()]).fails_with(1);
    done.says("wrong: `a/dataset_a.hdf5` episode 2 is not whole: ");
    rrun(&["verify", "--no-values", recorded.run.path()]).succeeds();
}

#[test]
fn an_episode_that_is_not_in_its_dataset_is_found() {
    let recorded = Recorded::new();
    let text = fs::read_to_string(recorded.run.folder.journal(0)).unwrap();
    let journal = |text: String| fs::write(recorded.run.folder.journal(0), text).unwrap();
    journal(text.replace("demo_1", "demo_7"));
    let done = rrun(&["verify", recorded.run.path()]).fails_with(1);
    let done = done.says("wrong: `a/dataset_a.hdf5` episode 1 is missing");
    done.says(
        "wrong: `a/dataset_a.hdf5` also has demo_1 (episode 1), which no line of the journals names",
    );
    journal(text.replace("\"length\":11", "\"length\":12"));
    recorded
        .is_wrong("`a/dataset_a.hdf5` episode 1 is there with another length than in the journal");
    journal(
        text.replace("demo_1\"", "demo_x\"")
            .replace("demo_2\"", "demo_1\"")
            .replace("demo_x\"", "demo_2\""),
    );
    let done = rrun(&["verify", recorded.run.path()]).fails_with(1);
    done.says("episodes 1-2 are there with another seed than in the journal");
}

#[test]
fn an_outcome_that_a_dataset_contradicts_is_found() {
    let recorded = Recorded::new();
    let text = fs::read_to_string(recorded.run.folder.journal(0)).unwrap();
    let journal = |text: String| fs::write(recorded.run.folder.journal(0), text).unwrap();
    let flipped = text.replace("\"success\":true", "\"success\":false");
    assert_ne!(flipped, text);
    journal(flipped);
    recorded.is_wrong(
        "`a/dataset_a.hdf5` episodes 0-1 are there with another success than in the journal",
    );
    journal(text.replace("\"return\":0.3333333333333333", "\"return\":0.4"));
    recorded.is_wrong(
        "`a/dataset_a.hdf5` episode 1 is there with another sum of rewards than in the journal",
    );
}

#[test]
fn a_dataset_that_no_line_names_is_found() {
    let recorded = Recorded::new();
    let left = recorded.run.folder.job("a").join("dataset_a_rank3.hdf5");
    fs::write(left, DATASET).unwrap();
    recorded.is_wrong(
        "`a/dataset_a_rank3.hdf5` also has demo_0 (episode 0), demo_1 (episode 1), \
         demo_2 (episode 2), which no line of the journals names",
    );
}

#[test]
fn a_demonstration_of_a_line_that_does_not_count_is_a_note() {
    let recorded = Recorded::new();
    let folder = &recorded.run.folder;
    fs::write(folder.job("a").join("dataset_a_rank1.hdf5"), DATASET).unwrap();
    let again = (0..3).map(|number| Episode {
        ended: at(70 + number),
        ..recorded_in(&recorded.run, "a/dataset_a_rank1.hdf5", number)
    });
    recorded.run.rank(1, again);
    rrun(&["verify", recorded.run.path()]).succeeds().says(
        "note: `a/dataset_a_rank1.hdf5` also has demo_0 (episode 0), demo_1 (episode 1), \
         demo_2 (episode 2), which no episode that counts names",
    );
}

#[test]
fn a_video_that_is_short_or_no_video_is_found() {
    let recorded = Recorded::new();
    fs::write(&recorded.video, film([20, 9])).unwrap();
    recorded
        .is_wrong("`a/a_video_rank0_gpu0_env0.mp4` has 29 pictures: episode 2 is beyond its end");
    fs::write(&recorded.video, b"nothing").unwrap();
    recorded.is_wrong("`a/a_video_rank0_gpu0_env0.mp4` cannot be read: it has no `moov`");
}

#[test]
fn every_missing_episode_is_listed() {
    let run = Run::new(&[job("a", 3000), job("b", 2)]);
    run.rank(
        0,
        (0..3000)
            .filter(|number| !(10..2990).contains(number))
            .map(|number| run.episode(0, number, 0)),
    );
    let done = rrun(&["verify", run.path()]).fails_with(1);
    let done = done
        .says("wrong: a: episodes 10-2989 are missing\n")
        .says("wrong: b: episodes 0-1 are missing\n");
    done.says("2 findings in");
}

#[test]
fn an_episode_with_an_error_or_two_outcomes_is_found() {
    let run = Run::new(&[job("a", 3)]);
    run.rank(0, (0..3).map(|number| run.episode(0, number, 0)));
    run.rank(
        1,
        [Episode {
            length: 99,
            ended: at(80),
            ..run.episode(0, 1, 1)
        }],
    );
    rrun(&["verify", run.path()])
        .fails_with(1)
        .says("a: episode 1 is scored more than once, with different outcomes");
    let run = Run::new(&[job("a", 2)]);
    let broken = Episode {
        success: None,
        error: Some("NaN".to_owned()),
        ..run.episode(0, 1, 0)
    };
    run.rank(0, [run.episode(0, 0, 0), broken]);
    rrun(&["verify", run.path()])
        .fails_with(1)
        .says("wrong: a: episode 1 is broken by an error");
}

#[test]
fn a_torn_last_line_is_worth_a_word_and_a_damaged_one_is_wrong_while_an_episode_is_missing() {
    let run = Run::new(&[job("a", 2)]);
    run.whole();
    let text = fs::read_to_string(run.folder.journal(0)).unwrap();
    fs::write(run.folder.journal(0), format!("{text}{{\"type\"")).unwrap();
    let torn = "note: `journal/journal_rank0.jsonl`: the last line is torn (7 bytes)";
    rrun(&["verify", run.path()]).succeeds().says(torn);
    fs::write(run.folder.journal(0), format!("{text}\0\0\0\n")).unwrap();
    let damaged = "`journal/journal_rank0.jsonl`: 1 damaged line (7)";
    rrun(&["verify", run.path()])
        .succeeds()
        .says(&format!("note: {damaged}"));
    let missing = text.replacen("\"episode\":1,", "\"episode\":0,", 1);
    fs::write(run.folder.journal(0), format!("{missing}\0\0\0\n")).unwrap();
    rrun(&["verify", run.path()])
        .fails_with(1)
        .says(&format!("wrong: {damaged}"));
}

#[test]
fn what_a_merged_folder_names_is_found_where_it_is() {
    let recorded = Recorded::new();
    let merged = recorded.run.dir.path().join("deep/merged");
    let merged = merged.to_str().unwrap();
    rrun(&["merge", recorded.run.path(), "--output", merged]).succeeds();
    rrun(&["verify", merged]).succeeds();
    fs::remove_file(&recorded.video).unwrap();
    rrun(&["verify", merged])
        .fails_with(1)
        .says("wrong: `../../run/a/a_video_rank0_gpu0_env0.mp4` is missing");
}

#[test]
fn episodes_that_come_out_the_same_elsewhere_leave_nothing_behind() {
    let elsewhere = Elsewhere::new(Some);
    let done = elsewhere.verify(&["--determinism", "4"]).succeeds();
    done.says("note: run again: 4 episodes, by 1 rank with 2 environments")
        .says("is all there");
    let words = elsewhere.words();
    assert_eq!(words.lines().count(), 2);
    assert!(
        words.contains("rank 1 of 2, 7 threads, COMPATIBLE: --resume")
            && words.contains("--num-envs 2 --no-video --no-dataset"),
        "{words}"
    );
    let left: Vec<_> = fs::read_dir(elsewhere.run.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with("rrun-verify")),
        "{left:?}"
    );
}

#[test]
fn an_episode_that_comes_out_otherwise_elsewhere_is_found() {
    let other = |episode: Episode| {
        let return_ = episode.return_ + f64::EPSILON * 4.0;
        Some(if episode.job == "b" {
            Episode { return_, ..episode }
        } else {
            episode
        })
    };
    let elsewhere = Elsewhere::new(other);
    let done = elsewhere
        .verify(&[
            "--determinism",
            "99",
            "--nproc-per-node",
            "3",
            "--num-envs",
            "6",
        ])
        .fails_with(1);
    let done = done
        .says("note: run again: 8 episodes, by 1 rank with 6 environments; the results are in `");
    done.says("wrong: b: episode 0 had a different result: return 0.0, then 8.8")
        .says("wrong: b: episode 1 had a different result");
}

#[test]
fn a_plan_that_the_user_has_not_begun_a_run_with_is_run_again_when_it_is_trusted() {
    let run = Run::new(&[
        json!({"name": "a", "arena_env_args": {"environment": "gym:X-v0", "python": "/tmp/stranger"},
                                "policy_type": "scripted", "num_episodes": 2}),
    ]);
    run.whole();
    let home = run.dir.path().to_str().unwrap();
    let words = ["verify", "--determinism", "1", run.path()];
    let done = rrun_with(
        &[("HOME", home), ("XDG_STATE_HOME", home), ("TMPDIR", home)],
        &words,
    )
    .fails_with(1);
    let told = format!(
        "the plan of `{}` names programs or servers that you have not started a run with here",
        run.path()
    );
    let done = done
        .complains(&told)
        .complains("the environment `gym:X-v0` by `/tmp/stranger`");
    let text = done
        .complains("use --trust-plan beside --determinism to run what it names")
        .stderr();
    assert!(
        !text.contains("--jobs") && !text.contains("rrun-verify"),
        "{text}"
    );
}

#[test]
fn episodes_that_cannot_be_run_again_are_said() {
    let elsewhere = Elsewhere::new(Some);
    fs::write(
        elsewhere.bin.join("rrun-rank"),
        "#!/bin/sh\necho no GPU here >&2\nexit 3\n",
    )
    .unwrap();
    let done = elsewhere.verify(&["--determinism", "1"]).fails_with(1);
    done.says("| a   | 6 of 6   |")
        .complains("the episodes could not be run again (exit status: 1)");
    let nothing = Run::new(&[job("a", 2)]);
    rrun(&["verify", "--determinism", "1", nothing.path()])
        .fails_with(1)
        .complains("no episode can be run again");
    rrun(&["verify", "--num-envs", "1", nothing.path()])
        .fails_with(2)
        .complains("--determinism <K>");
}

#[test]
fn a_run_that_is_under_way_is_looked_at_without_being_in_its_way() {
    let run = Run::new(&[job("a", 2)]);
    run.rank(0, [run.episode(0, 0, 0)]);
    let lock = jobs::launch::LaunchLock::take(&run.folder, "launch1", |_| ()).unwrap();
    let done = rrun(&["verify", run.path()]).succeeds();
    assert!(
        done.stdout().starts_with("the run is under way: process "),
        "{}",
        done.stdout()
    );
    let done = done
        .says("note: unfinished: a: episode 1 is missing")
        .says("has no findings so far");
    assert!(!done.stdout().contains("is all there"), "{}", done.stdout());
    drop(lock);
    let journal = Journal::open(&run.folder.journal(0)).unwrap();
    rrun(&["verify", run.path()])
        .succeeds()
        .says("the run is under way: a rank is running\n");
    let under_way = "the run is under way: a rank is running; 1 of 2 episodes so far\n";
    rrun(&["report", run.path()]).succeeds().says(under_way);
    let elsewhere = tempfile::tempdir().unwrap();
    let output = elsewhere.path().join("merged");
    rrun(&["merge", run.path(), "--output", output.to_str().unwrap()])
        .succeeds()
        .says(under_way);
    drop(journal);
    let done = rrun(&["verify", run.path()]).fails_with(1);
    assert!(
        !done
            .says("wrong: a: episode 1 is missing")
            .stdout()
            .contains("under way")
    );
}
