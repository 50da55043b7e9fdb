//! Finds the journals that a process is writing to, without taking their locks: taking a lock for a
//! moment would refuse a rank that starts in that moment.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Inode numbers of files that are locked as a whole.
pub(crate) struct Inodes(BTreeSet<u64>);

/// Returns the locked files that the kernel of this machine lists; none if it does not.
pub(crate) fn inodes() -> Inodes {
    Inodes(parse(
        &std::fs::read_to_string("/proc/locks").unwrap_or_default(),
    ))
}

impl Inodes {
    pub(crate) fn contains(&self, file: &Metadata) -> bool {
        self.0.contains(&file.ino())
    }
}

/// Parses lines such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1310747 0 EOF`; a waiting lock has an
/// arrow after the number. See proc_locks(5).
fn parse(text: &str) -> BTreeSet<u64> {
    let inode = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, "WRITE", _, file, ..] => file.rsplit(':').next()?.parse().ok(),
            _ => None,
        }
    };
    text.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::journal::Journal;

    #[test]
    fn an_open_journal_is_held_and_can_be_opened_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        let journal = Journal::open(&path).unwrap();
        assert!(inodes().contains(&std::fs::metadata(&path).unwrap()));
        drop(journal);
        assert!(!inodes().contains(&std::fs::metadata(&path).unwrap()));
    }

    #[test]
    fn locks_of_other_kinds_and_those_who_wait_do_not_count() {
        let text = "1: POSIX  ADVISORY  WRITE 1 fe:00:1 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 fe:00:22 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 8 fe:00:33 0 EOF\n3: FLOCK  ADVISORY  READ 9 fe:00:44 0 EOF\nodd\n";
        assert_eq!(parse(text), BTreeSet::from([22]));
    }
}
