//! Demonstrations that a rank wrote before it was killed, and whose lines it did not write: their
//! episodes run again, so that they must not stay in the dataset.
//!
//! ```text
//! killed here ─► dataset ─► [kill] ─► journal line
//! ```
//! What no line of any journal names is dropped when the next rank has the dataset, see
//! [`crate::eval::rank`]; lines that do not count are lines, too.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use jobs::episode::DemoRef;
use jobs::journal;
use jobs::layout::RunFolder;

use crate::record;

/// Number of demonstrations that are named in a message.
const NAMED: usize = 5;

/// Returns the demonstrations of a dataset that no line of the journals names. `named` are some that
/// lines name; the journals are only read if there are more.
///
/// # Errors
/// Returns the errors of reading the journals. A dataset that cannot be read has none.
pub fn of(
    folder: &RunFolder,
    path: &Path,
    named: &BTreeSet<String>,
) -> io::Result<BTreeSet<String>> {
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let demos = record::demos(path).unwrap_or_default();
    let mut left: BTreeSet<String> = demos.into_iter().collect();
    left.retain(|demo| !named.contains(demo));
    if left.is_empty() {
        return Ok(left);
    }
    let file = folder.relative(path);
    let named = journal::demos(&folder.journals())?;
    left.retain(|demo| !is_in(&named, &file, demo));
    if !left.is_empty() {
        keep_superseded(folder, path, &mut left)?;
    }
    Ok(left)
}

/// Returns what the user is told about demonstrations that are dropped.
pub fn told(folder: &RunFolder, path: &Path, left: &BTreeSet<String>) -> String {
    let file = folder.relative(path);
    let named: Vec<_> = left.iter().take(NAMED).map(String::as_str).collect();
    let more = if left.len() > NAMED { ", …" } else { "" };
    let named = named.join(", ");
    format!("`{file}`: dropped {named}{more}, which no line of the journals names")
}

/// Keeps what the journals of superseded jobs name: the file as it is stays with them. A LeRobot
/// folder has no second name, so that those episodes stay in it.
fn keep_superseded(folder: &RunFolder, path: &Path, left: &mut BTreeSet<String>) -> io::Result<()> {
    let file = folder.relative(path);
    let entries = match std::fs::read_dir(folder.superseded()) {
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let earlier = RunFolder::new(&entry?.path());
        let named = journal::demos(&earlier.journals())?;
        if !left.iter().any(|demo| is_in(&named, &file, demo)) {
            continue;
        }
        let place = earlier.root().join(&file);
        let made = place.parent().map_or(Ok(()), std::fs::create_dir_all);
        if made
            .and_then(|()| std::fs::hard_link(path, &place))
            .is_err()
        {
            left.retain(|demo| !is_in(&named, &file, demo));
        }
    }
    Ok(())
}

fn is_in(named: &BTreeSet<DemoRef>, file: &str, demo: &str) -> bool {
    named.contains(&DemoRef {
        file: file.to_owned(),
        demo: demo.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use jobs::episode::Episode;
    use jobs::journal::{Journal, Line};
    use jobs::samples;

    use super::*;

    const FILE: &str = "a/dataset_a.hdf5";

    /// Writes a dataset with these demonstrations, as a superseded run or this one has it.
    fn dataset(folder: &RunFolder, demos: &[&str]) {
        std::fs::create_dir_all(folder.job("a")).unwrap();
        let file = hdf5::File::create(folder.root().join(FILE)).unwrap();
        let data = file.create_group("data").unwrap();
        for demo in demos {
            data.create_group(demo).unwrap();
        }
    }

    fn journal(folder: &RunFolder, demos: &[&str]) {
        std::fs::create_dir_all(folder.journals()).unwrap();
        let mut journal = Journal::open(&folder.journal(0)).unwrap();
        for (number, demo) in (0..).zip(demos) {
            let demo = DemoRef {
                file: FILE.to_owned(),
                demo: (*demo).to_owned(),
            };
            let episode = Episode {
                dataset: Some(demo),
                ..samples::episode(0, "a", number)
            };
            journal.append(&Line::from(episode)).unwrap();
        }
    }

    fn left(folder: &RunFolder, named: &[&str]) -> Vec<String> {
        let named = named.iter().map(|name| (*name).to_owned()).collect();
        let left = of(folder, &folder.root().join(FILE), &named).unwrap();
        left.into_iter().collect()
    }

    #[test]
    fn what_no_line_names_is_left_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        assert_eq!(left(&folder, &[]), [""; 0], "there is no dataset");
        dataset(&folder, &["demo_0", "demo_1", "demo_2"]);
        journal(&folder, &["demo_1"]);
        assert_eq!(left(&folder, &["demo_0"]), ["demo_2"]);
        std::fs::write(folder.root().join(FILE), "no dataset").unwrap();
        assert_eq!(left(&folder, &[]), [""; 0], "who opens it keeps it aside");
    }

    #[test]
    fn what_a_superseded_run_names_stays_in_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let superseded = RunFolder::new(&folder.superseded().join("1"));
        dataset(&folder, &["demo_0", "demo_1", "demo_2"]);
        journal(&folder, &["demo_0"]);
        journal(&superseded, &["demo_0", "demo_1"]);
        assert_eq!(left(&folder, &[]), ["demo_1", "demo_2"]);
        let kept = record::demos(&superseded.root().join(FILE)).unwrap();
        assert_eq!(kept, ["demo_0", "demo_1", "demo_2"]);
        // If the file cannot be kept there, they stay where they are.
        assert_eq!(left(&folder, &[]), ["demo_2"]);
    }
}
