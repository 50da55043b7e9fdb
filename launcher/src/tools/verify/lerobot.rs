//! Checks a LeRobot folder: whether `meta/info.json` counts the episodes that the journal names,
//! and whether their tables and videos exist and have an intact beginning and end.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use jobs::files::{self, MAX_DOCUMENT_BYTES};
use report::verify::{ExpectedDemo, Findings, episodes};
use serde_json::Value;

use crate::tools::verify::video;

/// The first and the last bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Compares a folder with what the journal says about it.
pub(super) fn check(root: &Path, demos: &[ExpectedDemo]) -> Findings {
    let mut findings = Findings::default();
    let info = match info(root) {
        Ok(info) => info,
        Err(err) => {
            findings.wrong.push(err.to_string());
            return findings;
        }
    };
    let total = info["total_episodes"].as_u64().unwrap_or(0);
    let number = |demo: &ExpectedDemo| demo.name.strip_prefix("episode_")?.parse::<u64>().ok();
    let absent = |demo: &&ExpectedDemo| number(demo).is_none_or(|number| number >= total);
    let mut numbers: Vec<_> = demos
        .iter()
        .filter(absent)
        .map(|demo| demo.episode)
        .collect();
    numbers.sort_unstable();
    if !numbers.is_empty() {
        findings.wrong.push(format!(
            "has {total} episodes: {} missing",
            episodes(&numbers)
        ));
    }
    let files = ["data", "meta/episodes", "videos"].map(|folder| below(&root.join(folder)));
    for path in files.into_iter().flatten() {
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .display()
            .to_string();
        let wrong = match path.extension().and_then(|ending| ending.to_str()) {
            Some("parquet") => parquet(&path)
                .err()
                .map(|err| err.to_string())
                .into_iter()
                .collect(),
            Some("mp4") => video::check(&path, &[]).wrong,
            _ => Vec::new(),
        };
        findings
            .wrong
            .extend(wrong.into_iter().map(|wrong| format!("`{name}` {wrong}")));
    }
    for folder in ["data", "meta/episodes"] {
        let count = below(&root.join(folder)).len() as u64;
        if count < total {
            findings.wrong.push(format!(
                "has {count} files in `{folder}` for {total} episodes"
            ));
        }
    }
    findings
}

/// The reason why the description of a dataset is not known.
#[derive(Debug, thiserror::Error)]
enum InfoError {
    #[error("`meta/info.json` cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("`meta/info.json` is not JSON: {0}")]
    Json(#[from] serde_json::Error),
}

fn info(root: &Path) -> Result<Value, InfoError> {
    let text = files::read(&root.join("meta/info.json"), MAX_DOCUMENT_BYTES)?;
    Ok(serde_json::from_slice(&text)?)
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
    use super::*;

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
        fs::write(
            dir.path().join("meta/info.json"),
            format!("{{\"total_episodes\": {total}}}"),
        )
        .unwrap();
        dir
    }

    fn demo(number: u64) -> ExpectedDemo {
        ExpectedDemo {
            name: format!("episode_{number}"),
            episode: number,
            seed: 0,
            length: 1,
            success: None,
        }
    }

    #[test]
    fn a_whole_folder_has_no_findings() {
        assert_eq!(
            check(folder(2).path(), &[demo(0), demo(1)]),
            Findings::default()
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
        let found = check(dir.path(), &[demo(0)]).wrong;
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
        let found = check(dir.path(), &[demo(0), demo(2)]).wrong;
        let cut = "`data/chunk-000/file-001.parquet` is not a complete Parquet file";
        assert_eq!(found, ["has 2 episodes: episode 2 is missing", cut]);
        assert_eq!(
            check(folder(3).path(), &[]).wrong[0],
            "has 2 files in `data` for 3 episodes"
        );
        assert!(
            check(Path::new("none"), &[]).wrong[0].starts_with("`meta/info.json` cannot be read")
        );
    }
}
