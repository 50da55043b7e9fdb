//! An extract says the same as the journals that it was made of.

use std::fs;

use jobs::job::JobIndex;
use jobs::journal::{EpisodeStart, JobEnd, Line, RankStart};
use jobs::samples;

use super::*;
use crate::eval::rank::history::tests::env_of;

const LAUNCH: &str = "now";

/// Returns the lines of a rank that has died once, in the episode `suspect`.
fn lines(rank: usize, launch: &str, suspect: u64) -> Vec<Line> {
    let life = |restart| {
        Line::Rank(Box::new(RankStart {
            rank,
            restart,
            launch: Some(launch.to_owned()),
            started: format!("2026-01-01T00:00:0{rank}.000Z"),
            ..RankStart::default()
        }))
    };
    let began = Line::EpisodeStart(EpisodeStart {
        episode: suspect,
        rank,
        ..EpisodeStart::default()
    });
    let ended = |number| {
        let mut episode = samples::episode(0, "pick", number);
        episode.rank = rank;
        Line::from(episode)
    };
    let failed = Line::JobEnd(Box::new(JobEnd {
        job_index: JobIndex(1),
        rank,
        error: Some("no such scene".to_owned()),
        ..JobEnd::default()
    }));
    let first = 10 * rank as u64;
    vec![
        life(0),
        ended(first),
        began,
        life(1),
        ended(first + 1),
        failed,
    ]
}

fn parts() -> Vec<(String, JournalPart)> {
    let of = |(rank, launch): (usize, &str)| {
        let part = JournalPart::of(lines(rank, launch, 7), &env_of(LAUNCH));
        (format!("journal_rank{rank}.jsonl"), part)
    };
    [(0, LAUNCH), (1, LAUNCH), (2, "before")].map(of).into()
}

/// Writes the extract of [`parts`]; returns what is told about it.
fn written(folder: &Path) -> (Extract, String) {
    let mut extract = Extract::create(folder).unwrap();
    for (name, part) in parts() {
        extract.add(&name, &part).unwrap();
    }
    let said = extract.finish().unwrap();
    (extract, said)
}

#[test]
fn every_rank_reads_of_the_others_what_it_would_have_kept_of_their_journals() {
    let dir = tempfile::tempdir().unwrap();
    let (_extract, said) = written(dir.path());
    for own in 0..4 {
        let own = format!("journal_rank{own}.jsonl");
        let found = read(dir.path(), &said, &own).unwrap();
        let wanted = parts().into_iter().filter(|(name, _)| *name != own);
        let wanted: Vec<_> = wanted.map(|(_, part)| part).collect();
        assert_eq!(found, wanted, "{own}");
        assert!(found.iter().all(|part| part.lines.len() == 3));
    }
}

#[test]
fn an_extract_is_gone_with_its_rank_or_when_the_next_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let count = || fs::read_dir(dir.path()).unwrap().count();
    let (first, said) = written(dir.path());
    // A rank that was killed.
    std::mem::forget(first);
    let (second, again) = written(dir.path());
    assert_eq!(count(), 1);
    assert!(read(dir.path(), &said, "").is_err());
    assert_eq!(read(dir.path(), &again, "").unwrap().len(), 3);
    drop(second);
    assert_eq!(count(), 0);
}

#[test]
fn what_is_no_extract_or_not_all_of_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (extract, said) = written(dir.path());
    let bytes: usize = said.split_once(' ').unwrap().1.parse().unwrap();
    let text = fs::read(&extract.path).unwrap();
    assert_eq!(text.len(), bytes);
    let id = said.split_once(' ').unwrap().0;
    let negative = format!("{id} -1");
    for said in ["", " ", id, "x 10", "../../etc/passwd 10", " 10", &negative] {
        assert!(read(dir.path(), said, "").is_err(), "{said}");
    }
    // The disk of this node does not have all of it yet.
    fs::write(&extract.path, &text[..bytes / 2]).unwrap();
    assert!(read(dir.path(), &said, "").is_err());
    // Rubbish.
    for bad in [b"{}\n".to_vec(), b"[1".to_vec(), vec![0; 100]] {
        fs::write(&extract.path, &bad).unwrap();
        let said = format!("{id} {}", bad.len());
        assert!(read(dir.path(), &said, "").is_err());
    }
}
