//! Shell scripts on run folders, as a user would write them, and what they print.

use std::fs;
use std::path::Path;

use jobs::episode::{DemoRef, End, Episode};
use serde_json::json;

use crate::tools::again;
use crate::tools::runs::{Run, at, job};

/// Three demonstrations of a job `a`; see `make_dataset.py` beside it.
const DATASET: &[u8] = include_bytes!("../fixtures/tools/dataset.hdf5");

/// A program for ranks that answers every question of `rrun doctor` at once.
const RANK: &str = r#"
case "$2" in
    libraries) echo '[{"name":"rrun-rank","outcome":"ok","found":"of rrun '$3'","do":null}]' ;;
    egl) echo '[{"name":"EGL","outcome":"failed","found":"no libEGL","do":"install libegl1"}]'
         exit 1 ;;
esac
"#;

/// Checks the scripts of a file in `cases`. Each runs in a folder of its own, line by line, with
/// the runs of [`RUNS`] that it names.
#[track_caller]
pub fn check(file: &str) {
    let path = rig::root().join("tests/tools/cases").join(file);
    rig::cases::check(path, |script| {
        let scene = rig::script::Scene::new();
        let is_named = |name: &str| {
            let mut words = script.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|word| word == name)
        };
        for (_, make) in RUNS.iter().filter(|(name, _)| is_named(name)) {
            make(scene.path());
        }
        scene.said(script)
    });
}

/// Writes a run folder.
type Write = fn(&Path);

/// What a script may name, and how it is made in the folder of the script.
const RUNS: [(&str, Write); 25] = [
    ("whole", |dir| {
        whole(dir, "whole").whole();
    }),
    ("planned", |dir| drop(run(dir, "planned", 2))),
    ("begun", |dir| {
        whole(dir, "begun").solve(0, 0..3);
    }),
    ("halves", |dir| {
        run(dir, "halves", 4).solve(0, 0..2).solve(1, 2..4);
    }),
    ("beyond", |dir| {
        run(dir, "beyond", 4).solve(0, 0..5);
    }),
    ("one", |dir| {
        run(dir, "one", 2).whole();
    }),
    ("three", |dir| {
        run(dir, "three", 3).whole();
    }),
    ("longer", |dir| {
        let run = run(dir, "longer", 2);
        let episode = Episode {
            length: 51,
            ..run.episode(0, 1, 0)
        };
        run.rank(0, [episode]);
    }),
    ("holes", |dir| {
        let run = Run::at(&dir.join("holes"), &[job("a", 3000), job("b", 2)]);
        run.solve(0, (0..10).chain(2990..3000));
    }),
    ("twice", |dir| {
        let run = run(dir, "twice", 3);
        let again = Episode {
            length: 99,
            ended: at(80),
            ..run.episode(0, 1, 1)
        };
        run.solve(0, 0..3).rank(1, [again]);
    }),
    ("broken", |dir| {
        let run = run(dir, "broken", 2);
        let error = Episode {
            success: None,
            error: Some("NaN".to_owned()),
            ..run.episode(0, 1, 0)
        };
        run.rank(0, [run.episode(0, 0, 0), error]);
    }),
    ("hostile", hostile),
    ("workers", workers),
    ("recorded", |dir| drop(recorded(dir, "recorded"))),
    ("unnamed", |dir| {
        recorded(dir, "unnamed");
        fs::write(dir.join("unnamed/a/dataset_a_rank3.hdf5"), DATASET).unwrap();
    }),
    ("uncounted", |dir| {
        let run = recorded(dir, "uncounted");
        fs::write(dir.join("uncounted/a/dataset_a_rank1.hdf5"), DATASET).unwrap();
        let later = |number| Episode {
            ended: at(70 + number),
            ..run.recorded(0, number, "dataset_a_rank1")
        };
        run.rank(1, (0..3).map(later));
    }),
    ("base", |dir| {
        compared(dir, "base", |number| number % 3 != 2);
    }),
    ("new", |dir| {
        compared(dir, "new", |number| !number.is_multiple_of(5));
    }),
    ("lost", |dir| {
        compared(dir, "lost", |_| false);
    }),
    ("now", |dir| {
        Run::at(&dir.join("now"), &[job("reach", 20)]).solve(0, 0..12);
    }),
    ("seeds", |dir| {
        let seeded = |name: &str| {
            let mut job = job(name, 4);
            job["seed"] = 7.into();
            job
        };
        Run::at(
            &dir.join("seeds"),
            &[seeded("old"), seeded("new"), job("other", 4)],
        )
        .whole();
    }),
    ("stranger", |dir| {
        let mut job = job("a", 2);
        job["arena_env_args"] = json!({"environment": "gym:X-v0", "python": "/tmp/stranger"});
        Run::at(&dir.join("stranger"), &[job]).whole();
    }),
    ("doctor", |dir| {
        again::install_with_rank(dir, RANK);
    }),
    ("again", |dir| again::install(dir, "again", Some)),
    ("otherwise", |dir| {
        let other = |episode: Episode| Episode {
            return_: episode.return_ + f64::EPSILON * 4.0,
            ..episode
        };
        again::install(dir, "otherwise", |episode| {
            Some(if episode.job == "b" {
                other(episode)
            } else {
                episode
            })
        });
    }),
];

/// Creates a run of two jobs.
fn whole(dir: &Path, name: &str) -> Run {
    Run::at(&dir.join(name), &[job("a", 4), job("b", 2)])
}

/// Creates a run of one job, `a`.
fn run(dir: &Path, name: &str, episodes: u64) -> Run {
    Run::at(&dir.join(name), &[job("a", episodes)])
}

/// Creates a run whose only line of an episode would command a terminal, and adds lines to what is
/// printed.
fn hostile(dir: &Path) {
    let run = run(dir, "hostile", 1);
    let episode = Episode {
        error: Some("\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}".to_owned()),
        success: None,
        dataset: Some(DemoRef {
            file: "a/x\nwrong: \u{1b}[31m.hdf5".to_owned(),
            demo: "d".to_owned(),
        }),
        ..run.episode(0, 0, 0)
    };
    run.rank(0, [episode]);
}

/// Creates the runs of two workers that had a job each, with their datasets.
fn workers(dir: &Path) {
    for (worker, name, count) in [(0, "a", 4), (1, "b", 2)] {
        let run = whole(&dir.join("workers"), &format!("worker_{worker}"));
        run.rank(
            0,
            (0..count).map(|number| run.recorded(worker, number, "data")),
        );
        fs::create_dir(run.folder.job(name)).unwrap();
        fs::write(run.folder.job(name).join("data.hdf5"), name).unwrap();
    }
}

/// Creates a run of three episodes with a dataset and a film of 30 pictures, and beside the run a
/// film of 29.
fn recorded(dir: &Path, name: &str) -> Run {
    let run = run(dir, name, 3);
    run.rank(0, (0..3).map(|number| run.recorded(0, number, "dataset_a")));
    fs::create_dir(run.folder.job("a")).unwrap();
    fs::write(run.folder.job("a").join("dataset_a.hdf5"), DATASET).unwrap();
    fs::write(run.folder.job("a").join("film.mp4"), film([20, 10])).unwrap();
    fs::write(dir.join("short.mp4"), film([20, 9])).unwrap();
    run
}

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

/// Creates a run to compare, which solves these episodes.
fn compared(dir: &Path, name: &str, is_solved: fn(u64) -> bool) {
    let run = Run::at(&dir.join(name), &[job("a", 30), job("b", 10)]);
    let episode = |job: usize, number: u64| Episode {
        success: Some(is_solved(number)),
        end: match is_solved(number) {
            true => End::Success,
            false => End::TimeLimit,
        },
        length: 10 + number - u64::from(name != "base"),
        ..run.episode(job, number, 0)
    };
    let all = [(0, 30), (1, 10)].into_iter();
    run.rank(
        0,
        all.flat_map(|(job, count)| (0..count).map(move |number| (job, number)))
            .map(|(job, number)| episode(job, number)),
    );
}
