//! Checks a LeRobot folder: whether `meta/` counts and describes the episodes that the journal names
//! and no others, and whether their tables and videos exist and have an intact beginning and end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use jobs::files::{self, MAX_DOCUMENT_BYTES};
use jobs::journal;
use jobs::refusal::Refusal;
use report::verify::{ExpectedDemo, HeldDemo, episodes};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::tools::verify::dataset::Checked;
use crate::tools::verify::video;

/// What the names of episodes begin with.
const PREFIX: &str = "episode_";

/// The first and the last bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// What `meta/info.json` counts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counts {
    total_episodes: u64,
    total_frames: u64,
}

/// What `meta/rrun_episodes.jsonl` says about an episode.
#[derive(Deserialize)]
struct EpisodeFacts {
    episode_index: u64,
    episode: u64,
    seed: u64,
    success: bool,
    length: Option<u64>,
    #[serde(rename = "return")]
    return_: Option<f64>,
}

/// Compares a folder with what the journal says about it. A folder that grows is compared in what
/// does not change.
pub(super) fn check(root: &Path, demos: &[ExpectedDemo], is_over: bool) -> Checked {
    // A rank that died during the first episode leaves a folder that counts none.
    let mut checked = Checked::default();
    if demos.is_empty() && !root.join("meta/info.json").exists() {
        return checked;
    }
    let counts = document::<Counts>(root, "info.json");
    let read = counts.and_then(|counts| Ok((counts, facts(root)?)));
    let (counts, mut facts) = match read {
        Ok(read) => read,
        Err(err) => {
            checked.findings.wrong.push(err.to_string());
            return checked;
        }
    };
    let total = counts.total_episodes;
    // Lines beyond are of an episode during which the process was killed.
    facts.retain(|facts| facts.episode_index < total);
    of_episodes(total, &facts, demos, &mut checked);
    let wrong = &mut checked.findings.wrong;
    if is_over {
        of_frames(root, counts.total_frames, &facts, wrong);
    }
    of_files(root, total, wrong);
    checked
}

/// Compares the episodes of the folder with those that the journal names.
fn of_episodes(total: u64, facts: &[EpisodeFacts], demos: &[ExpectedDemo], checked: &mut Checked) {
    let (mut there, mut twice) = (BTreeMap::new(), Vec::new());
    for facts in facts {
        let name = format!("{PREFIX}{}", facts.episode_index);
        if there.insert(name, facts).is_some() {
            twice.push(facts.episode);
        }
    }
    let wrong = &mut checked.findings.wrong;
    if (there.len() as u64) < total {
        let listed = there.len();
        wrong.push(format!(
            "has {total} episodes, and `meta/rrun_episodes.jsonl` lists {listed}"
        ));
    }
    if !twice.is_empty() {
        wrong.push(format!(
            "{} listed more than once in `meta/rrun_episodes.jsonl`",
            episodes(twice)
        ));
    }
    let reasons = |demo: &ExpectedDemo, facts: Option<&EpisodeFacts>| {
        let number = demo.name.strip_prefix(PREFIX);
        let number = number.and_then(|number| number.parse::<u64>().ok());
        match facts {
            Some(facts) => demo.contradictions(&facts.held()).collect(),
            // It is said already how many are not listed.
            None if number.is_some_and(|number| number < total) => Vec::new(),
            None => vec![format!("missing: it has {total} episodes")],
        }
    };
    checked.compare(demos, there, reasons, |facts| Some(facts.episode));
}

/// Compares the numbers of frames that the files in `meta` say.
fn of_frames(root: &Path, frames: u64, facts: &[EpisodeFacts], wrong: &mut Vec<String>) {
    let lengths: Option<u64> = facts.iter().map(|facts| facts.length).sum();
    if let Some(lengths) = lengths.filter(|lengths| *lengths != frames) {
        wrong.push(format!(
            "has {frames} frames in `meta/info.json`, and its episodes have {lengths}"
        ));
    }
    let stats = document::<Value>(root, "stats.json");
    match stats.map(|stats| stats["index"]["count"][0].as_u64().unwrap_or(0)) {
        Ok(counted) if counted == frames => {}
        Ok(counted) => wrong.push(format!(
            "has {frames} frames, and `meta/stats.json` is about {counted}"
        )),
        Err(err) => wrong.push(err.to_string()),
    }
}

/// Checks that there are as many tables as episodes, and that no table or video is cut.
fn of_files(root: &Path, total: u64, wrong: &mut Vec<String>) {
    let files = ["data", "meta/episodes", "videos"].map(|folder| below(&root.join(folder)));
    for path in files.into_iter().flatten() {
        let found = match path.extension().and_then(|ending| ending.to_str()) {
            Some("parquet") => parquet(&path)
                .err()
                .map(|err| err.to_string())
                .into_iter()
                .collect(),
            Some("mp4") => video::check(&path, &[]).wrong,
            _ => Vec::new(),
        };
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        wrong.extend(found.into_iter().map(|found| format!("`{name}` {found}")));
    }
    for folder in ["data", "meta/episodes"] {
        let count = below(&root.join(folder)).len() as u64;
        if count < total {
            wrong.push(format!(
                "has {count} files in `{folder}` for {total} episodes"
            ));
        }
    }
}

impl EpisodeFacts {
    fn held(&self) -> HeldDemo {
        HeldDemo {
            episode: Some(self.episode as f64),
            seed: Some(self.seed as f64),
            length: self.length.map(|length| length as f64),
            return_: self.return_,
            success: Some(self.success),
        }
    }
}

/// Says that a file of the folder cannot be read.
fn unreadable(name: &str, err: io::Error) -> Refusal {
    Refusal::at(format_args!("`meta/{name}` cannot be read"), err)
}

fn document<T: DeserializeOwned>(root: &Path, name: &str) -> Result<T, Refusal> {
    let read = files::read_json(&root.join("meta").join(name), MAX_DOCUMENT_BYTES);
    read.map_err(|err| unreadable(name, err))
}

fn facts(root: &Path) -> Result<Vec<EpisodeFacts>, Refusal> {
    let name = "rrun_episodes.jsonl";
    let read = || {
        let mut file = BufReader::new(files::open(&root.join("meta").join(name))?);
        let (mut facts, mut line) = (Vec::new(), Vec::new());
        loop {
            journal::read_line(&mut file, &mut line)?;
            // What a kill leaves of a line is of an episode that is not counted.
            let Some(text) = line.strip_suffix(b"\n") else {
                return Ok(facts);
            };
            facts.push(serde_json::from_slice(text)?);
        }
    };
    read().map_err(|err| unreadable(name, err))
}

/// Returns the paths of all files below a folder; empty if it does not exist. Links to folders are
/// not followed, because they may form a cycle.
fn below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder {
                folders.push(entry.path())
            } else {
                found.push(entry.path())
            }
        }
    }
    found.sort();
    found
}

fn parquet(path: &Path) -> io::Result<()> {
    let file = files::open(path)?;
    let len = file.metadata()?.len();
    let (mut first, mut last) = ([0; 4], [0; 4]);
    // Both marks, and between them the length of the footer.
    if len >= 12 {
        file.read_exact_at(&mut first, 0)?;
        file.read_exact_at(&mut last, len - 4)?;
    }
    if (&first, &last) == (MAGIC, MAGIC) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "is not a complete Parquet file",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use jobs::episode::{End, EpisodeOutcome};
    use report::verify::Findings;

    use crate::tools::verify::dataset::ExtraDemo;

    fn folder(total: u64) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["data/chunk-000", "meta/episodes/chunk-000"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            for number in 0..2 {
                fs::write(
                    dir.path().join(format!("{folder}/file-00{number}.parquet")),
                    b"PAR1 table PAR1",
                )
                .unwrap();
            }
        }
        let write = |name: &str, text: &str| fs::write(dir.path().join("meta").join(name), text);
        let frames = total * 3;
        let info = json!({"total_episodes": total, "total_frames": frames}).to_string();
        write("info.json", &info).unwrap();
        let stats = json!({"index": {"count": [frames]}}).to_string();
        write("stats.json", &stats).unwrap();
        let lines: String = (0..total).map(line).collect();
        write("rrun_episodes.jsonl", &lines).unwrap();
        dir
    }

    fn line(number: u64) -> String {
        let facts = json!({"episode_index": number, "episode": number, "seed": 0, "success": true,
                           "length": 3, "return": 0.5});
        format!("{facts}\n")
    }

    fn wrong(dir: &Path, demos: &[ExpectedDemo]) -> Vec<String> {
        check(dir, demos, true).findings.wrong
    }

    fn demo(number: u64) -> ExpectedDemo {
        ExpectedDemo {
            name: format!("episode_{number}"),
            outcome: EpisodeOutcome {
                episode: number,
                seed: 0,
                success: Some(true),
                end: End::Success,
                length: 3,
                return_: 0.5,
            },
        }
    }

    #[test]
    fn a_whole_folder_has_no_findings() {
        assert_eq!(
            check(folder(2).path(), &[demo(0), demo(1)], true),
            Checked::default()
        );
    }

    #[test]
    fn a_fifo_and_a_circle_of_links_are_not_followed() {
        let dir = folder(2);
        let path = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink(dir.path(), path("data/again")).unwrap();
        assert!(
            std::process::Command::new("mkfifo")
                .arg(path("videos.parquet"))
                .status()
                .unwrap()
                .success()
        );
        fs::rename(path("videos.parquet"), path("data/x.parquet")).unwrap();
        let found = wrong(dir.path(), &[demo(0)]);
        assert_eq!(
            found,
            ["`data/x.parquet` it is a FIFO, expected a regular file"]
        );
    }

    #[test]
    fn an_episode_that_is_not_counted_and_a_cut_table_are_found() {
        let dir = folder(2);
        fs::write(
            dir.path().join("data/chunk-000/file-001.parquet"),
            b"PAR1 ta",
        )
        .unwrap();
        let found = wrong(dir.path(), &[demo(0), demo(2)]);
        let cut = "`data/chunk-000/file-001.parquet` is not a complete Parquet file";
        assert_eq!(found, ["episode 2 is missing: it has 2 episodes", cut]);
        assert_eq!(
            wrong(folder(3).path(), &[])[0],
            "has 2 files in `data` for 3 episodes"
        );
        assert!(
            wrong(Path::new("none"), &[demo(0)])[0].starts_with("`meta/info.json` cannot be read")
        );
        assert_eq!(wrong(Path::new("none"), &[]), [""; 0]);
    }

    #[test]
    fn an_episode_that_is_too_much_or_another_one_is_found() {
        let dir = folder(2);
        let checked = check(dir.path(), &[demo(1)], true);
        assert_eq!(checked.findings, Findings::default());
        let extra = ExtraDemo {
            name: "episode_0".to_owned(),
            episode: Some(0),
        };
        assert_eq!(checked.extra, [extra]);
        let mut flipped = demo(1);
        flipped.outcome.success = Some(false);
        (flipped.outcome.return_, flipped.outcome.seed) = (0.0, 7);
        let found = wrong(dir.path(), &[demo(0), flipped]);
        let told = ["seed", "success", "sum of rewards"];
        let told =
            told.map(|name| format!("episode 1 is there with another {name} than in the journal"));
        assert_eq!(found, told);
    }

    #[test]
    fn lists_and_statistics_that_are_not_about_the_episodes_are_found() {
        let dir = folder(2);
        let meta = |name: &str| dir.path().join("meta").join(name);
        let lines = [line(0), line(1), line(1), line(2)].concat();
        fs::write(meta("rrun_episodes.jsonl"), lines + "{\"epi").unwrap();
        fs::write(meta("stats.json"), "{\"index\": {\"count\": [9]}}").unwrap();
        let found = wrong(dir.path(), &[demo(0), demo(1)]);
        let wanted = [
            "episode 1 is listed more than once in `meta/rrun_episodes.jsonl`",
            "has 6 frames in `meta/info.json`, and its episodes have 9",
            "has 6 frames, and `meta/stats.json` is about 9",
        ];
        assert_eq!(found, wanted);
        let of_a_run_that_goes_on = check(dir.path(), &[demo(0), demo(1)], false).findings.wrong;
        assert_eq!(of_a_run_that_goes_on.len(), 1);
        fs::write(meta("rrun_episodes.jsonl"), line(0)).unwrap();
        let found = wrong(dir.path(), &[demo(0)]);
        assert_eq!(
            found[0],
            "has 2 episodes, and `meta/rrun_episodes.jsonl` lists 1"
        );
    }
}
