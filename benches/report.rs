//! The two parts of the bench `report`: creating the journals of a large run, and merging them (see
//! report.py).
//!
//! ```text
//! report make FOLDER JOBS EPISODES RANKS     writes plan.json and journals
//! report merge FOLDER                        prints {"read_s": …, "report_s": …, "write_s": …}
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock and ends with an exit code"
)]

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use jobs::episode::{DemoRef, End, Episode, VideoRef};
use jobs::eval_args::EvalArgs;
use jobs::file::JobFile;
use jobs::job::JobIndex;
use jobs::journal::{EpisodeStart, JobEnd, JobStart, Line, RankEnd, RankStart};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::time::rfc3339;
use report::{Context, Journals, Merged, Report};
use serde_json::json;

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match *words.as_slice() {
        ["make", folder, jobs, episodes, ranks] => make(folder, &[jobs, episodes, ranks]),
        ["merge", folder] => merge(folder),
        _ => Err(io::Error::other(
            "`make FOLDER JOBS EPISODES RANKS` or `merge FOLDER` is wanted (see benches/report.py)",
        )),
    };
    if let Err(err) = done {
        eprintln!("report: {err}");
        std::process::exit(1);
    }
}

fn merge(folder: &str) -> io::Result<()> {
    let folder = RunFolder::new(Path::new(folder));
    let plan = RunPlan::read(&folder).map_err(io::Error::other)?;
    let begin = Instant::now();
    let merged = Merged::new(plan, Journals::of(&folder)?)?;
    let read = begin.elapsed();
    let report = Report::of(&merged, Context::default())?;
    let made = begin.elapsed();
    report::write_merged(&folder, &merged, &report, None)?;
    let (read_s, report_s, write_s) = (read, made - read, begin.elapsed() - made);
    let seconds = [read_s, report_s, write_s].map(|part| part.as_secs_f64());
    let of = |part: usize| seconds[part];
    println!(
        "{}",
        json!({"read_s": of(0), "report_s": of(1), "write_s": of(2), "episodes": report.overall.episodes})
    );
    Ok(())
}

fn make(folder: &str, counts: &[&str; 3]) -> io::Result<()> {
    let mut numbers = [0; 3];
    for (number, text) in numbers.iter_mut().zip(counts) {
        *number = text.parse::<usize>().map_err(io::Error::other)?;
    }
    let [jobs, episodes, ranks] = numbers;
    let folder = RunFolder::new(Path::new(folder));
    std::fs::create_dir_all(folder.journals())?;
    let entry = |index: usize| {
        let policy = if index.is_multiple_of(2) {
            "gr00t"
        } else {
            "scripted"
        };
        json!({"name": format!("task_{index:05}"), "policy_type": policy,
               "arena_env_args": {"environment": format!("env_{}", index % 50), "num_envs": 4}, "num_episodes": episodes})
    };
    let entries: Vec<_> = (0..jobs).map(entry).collect();
    let jobs = jobs::file::parse(&json!({"jobs": entries})).map_err(io::Error::other)?;
    let file = JobFile {
        path: "jobs.json".into(),
        sha256: "0".repeat(64),
        jobs,
        model_server: None,
    };
    let args =
        EvalArgs::parse_words(&["--jobs".into(), "jobs.json".into()]).map_err(io::Error::other)?;
    let plan = RunPlan::new(&args, file, ranks, moment(0));
    std::fs::write(folder.plan(), serde_json::to_vec(&plan)?)?;
    for rank in 0..ranks {
        journal(&folder, rank, &plan, episodes)?;
    }
    Ok(())
}

/// Writes the journal of one rank.
fn journal(folder: &RunFolder, rank: usize, plan: &RunPlan, episodes: usize) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(folder.journal(rank))?);
    let mut write = |line: &Line| -> io::Result<()> {
        serde_json::to_writer(&mut file, line)?;
        file.write_all(b"\n")
    };
    let world_size = plan.world_size;
    write(&Line::Rank(Box::new(RankStart {
        rank,
        world_size,
        started: moment(0),
        ..RankStart::default()
    })))?;
    let mut second = 0;
    for (index, job) in plan.jobs.iter().enumerate().skip(rank).step_by(world_size) {
        let (started, settings) = (
            moment(second),
            [("chunk_length".to_owned(), json!(16))].into(),
        );
        write(&Line::JobStart(JobStart {
            job: job.name.clone(),
            rank,
            started,
            settings,
            ..JobStart::default()
        }))?;
        for number in 0..episodes {
            let (started, env) = (moment(second), number % 4);
            let start = EpisodeStart {
                job: job.name.clone(),
                episode: number as u64,
                rank,
                env,
                started,
                ..EpisodeStart::default()
            };
            write(&Line::EpisodeStart(start))?;
            second += 1;
            write(&Line::Episode(Box::new(episode(
                &job.name,
                [index, number, rank],
                second,
            ))))?;
        }
        write(&Line::JobEnd(Box::new(JobEnd {
            job: job.name.clone(),
            rank,
            wall_s: 100.0,
            ended: moment(second),
            ..JobEnd::default()
        })))?;
    }
    write(&Line::RankEnd(RankEnd {
        rank,
        ended: moment(second),
        ..RankEnd::default()
    }))?;
    file.flush()
}

fn episode(job: &str, [index, number, rank]: [usize; 3], second: usize) -> Episode {
    let is_solved = !(number * 7 + index).is_multiple_of(3);
    let env = number % 4;
    Episode {
        job: job.to_owned(),
        job_index: JobIndex(index),
        episode: number as u64,
        seed: 2_867_065_121_620_603 + number as u64,
        rank,
        env,
        rebuild: 0,
        success: Some(is_solved),
        success_at_end: Some(is_solved),
        end: if is_solved {
            End::Success
        } else {
            End::TimeLimit
        },
        length: 200 + (number % 80) as u64,
        return_: 0.1 * number as f64 + 0.123_456_789,
        max_reward: Some(0.95),
        language_instruction: "Pick up the cube and put it onto the mat.".to_owned(),
        wall_s: 4.321_987,
        infer_calls: 17,
        ended: moment(second),
        error: (number == 63).then(|| "the simulator's state is not finite".to_owned()),
        dataset: Some(DemoRef {
            file: format!("{job}/dataset_{job}_rank{rank}.hdf5"),
            demo: format!("demo_{number}"),
        }),
        video: Some(VideoRef {
            fps: Some(20),
            file: format!("{job}/{job}_video_rank{rank}_gpu{rank}_env{env}.mp4"),
            first_frame: 200 * (number / 4) as u64,
            frames: 200,
        }),
        ..Episode::default()
    }
}

fn moment(second: usize) -> String {
    rfc3339(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_795_255_200 + second as u64))
}
