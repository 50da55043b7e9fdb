use std::thread::sleep;
use std::time::Duration;

use super::*;
use crate::episode::Episode;
use crate::job::JobIndex;
use crate::samples;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

pub(crate) fn episode(number: u64) -> Line {
    let episode = Episode {
        seed: 9,
        return_: 0.1 + 0.2,
        language_instruction: "touch \"it\"\n".to_owned(),
        ended: "2026-11-21T10:00:00.000Z".to_owned(),
        ..samples::episode(0, "reach", number)
    };
    episode.into()
}

/// Returns a folder of journals, and the path of that of rank 0.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal_rank0.jsonl");
    (dir, path)
}

fn parse(bytes: &[u8]) -> Contents {
    Contents::of(bytes, &Accepted::default()).unwrap()
}

fn all(folder: &Path) -> io::Result<Vec<Contents>> {
    read_all(folder, &Accepted::default())
}

#[test]
fn a_journal_of_a_terabyte_without_a_line_end_is_refused_and_a_fifo_is_not_waited_for() {
    let (dir, path) = folder();
    Journal::open(&path).unwrap().append(&episode(0)).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let told = all(dir.path()).unwrap_err().to_string();
    let line = "journal_rank0.jsonl`: it has a line of more than 16777216 bytes";
    assert!(told.ends_with(line), "{told}");
    let told = Journal::open(&path).unwrap_err().to_string();
    assert!(told.contains("more than 16777216 bytes"), "{told}");
    assert!(begun(dir.path()).unwrap());
    std::fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    for told in [all(dir.path()).unwrap_err(), begun(dir.path()).unwrap_err()] {
        let told = told.to_string();
        let wanted = "it is a FIFO, expected a regular file";
        assert!(told.contains(wanted), "{told}");
    }
    assert!(!in_use(dir.path()));
}

#[test]
fn two_writers_at_once_are_refused() {
    let (dir, path) = folder();
    let first = Journal::open(&path).unwrap();
    let refused = Journal::open(&path).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(in_use(dir.path()));
    drop(first);
    assert!(!in_use(dir.path()));
    assert!(Journal::open(&path).is_ok());
}

#[test]
fn a_journal_that_was_closed_is_free_although_a_child_still_has_its_file() {
    let (dir, path) = folder();
    let journal = Journal::open(&path).unwrap();
    // A child that another thread has forked holds such a duplicate until it calls `exec`.
    let _inherited = journal.file.try_clone().unwrap();
    drop(journal);
    assert!(!in_use(dir.path()));
    assert!(Journal::open(&path).is_ok());
}

#[test]
fn a_writer_waits_for_somebody_who_only_looks() {
    let (_dir, path) = folder();
    let looking = File::create(&path).unwrap();
    looking.lock().unwrap();
    let look = std::thread::spawn(move || {
        #[expect(clippy::disallowed_methods, reason = "the writer waits meanwhile")]
        sleep(Duration::from_millis(20));
        drop(looking);
    });
    assert!(Journal::open(&path).is_ok());
    look.join().unwrap();
}

#[test]
fn a_line_that_does_not_fit_the_disk_leaves_the_journal_whole() {
    // /dev/full refuses every write like a full disk, and cannot be truncated. A file with a limit
    // on its size can.
    let mut journal = Journal {
        stamps: Stamps::default(),
        file: OpenOptions::new().write(true).open("/dev/full").unwrap(),
        path: "x".into(),
        begun: 0,
        torn: 0,
        end: 0,
        synced: 0,
    };
    assert!(journal.append(&episode(0)).is_err());
}

/// Returns one line of each kind that a rank writes.
fn life() -> Vec<Line> {
    let lost = EnvLost {
        job: "a".to_owned(),
        job_index: JobIndex(0),
        rank: 0,
        env: 1,
        episode: 1,
        step: 4,
        attempt: 1,
        blame: Blame::Own,
        reason: "killed by SIGKILL".to_owned(),
        stderr: vec!["\u{1f916}\u{0}\n\"".to_owned()],
        at: String::new(),
    };
    let files = PolicyFiles {
        policy_type: "gr00t".to_owned(),
        path: "model".to_owned(),
        sha256: "0".repeat(64),
        bytes: 7,
        at: String::new(),
    };
    vec![
        Line::Rank(Box::default()),
        Line::PolicyFiles(files),
        Line::JobStart(JobStart::default()),
        Line::EpisodeStart(EpisodeStart::default()),
        episode(0),
        Line::EnvLost(Box::new(lost)),
        episode(1),
        Line::JobEnd(Box::default()),
        Line::RankEnd(RankEnd::default()),
    ]
}

/// Generates what a killed rank or a power failure may leave behind the last complete line: bytes
/// without a line end.
fn any_tail() -> impl Strategy<Value = Vec<u8>> {
    let garbage = proptest::collection::vec(
        any::<u8>().prop_filter("no line end", |byte| *byte != b'\n'),
        0..60,
    );
    prop_oneof![
        Just(Vec::new()),
        (1usize..5000).prop_map(|hole| vec![0; hole]),
        garbage
    ]
}

#[test]
fn a_journal_cut_at_any_byte_keeps_its_whole_lines_and_is_gone_on_with() {
    let (_dir, path) = folder();
    let mut journal = Journal::open(&path).unwrap();
    life().iter().for_each(|line| journal.append(line).unwrap());
    drop(journal);
    let bytes = std::fs::read(&path).unwrap();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for cut in 0..=bytes.len() {
        let tail = any_tail().new_tree(&mut runner).unwrap().current();
        let last = bytes[..cut].iter().rposition(|byte| *byte == b'\n');
        let whole = last.map_or(0, |last| last + 1);
        std::fs::write(&path, [&bytes[..cut], &tail].concat()).unwrap();
        let mut journal = Journal::open(&path).unwrap();
        assert_eq!(journal.torn() as usize, cut - whole + tail.len(), "{cut}");
        // Not synced to disk, because there are more than a thousand cases.
        journal.note(&episode(9)).unwrap();
        drop(journal);
        let count = bytes[..whole].iter().filter(|byte| **byte == b'\n').count();
        let lines = life().into_iter().take(count).chain([episode(9)]).collect();
        let found = parse(&std::fs::read(&path).unwrap());
        let wanted = Contents {
            lines,
            ..Contents::default()
        };
        assert_eq!(found, wanted, "{cut}");
    }
}

#[test]
fn lines_that_share_a_sync_are_there_before_it() {
    let (_dir, path) = folder();
    let mut journal = Journal::open(&path).unwrap();
    let found = || parse(&std::fs::read(&path).unwrap()).lines;
    journal.note(&episode(0)).unwrap();
    journal.note(&episode(1)).unwrap();
    assert_eq!(
        found(),
        [episode(0), episode(1)],
        "a killed process loses none"
    );
    journal.sync().unwrap();
    journal.append(&episode(2)).unwrap();
    assert_eq!(found(), [episode(0), episode(1), episode(2)]);
}

#[test]
fn a_folder_is_begun_when_a_journal_has_a_whole_line() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!begun(dir.path()).unwrap() && !begun(&dir.path().join("none")).unwrap());
    for (text, is_begun) in [
        ("", false),
        ("{\"type\":", false),
        ("\n\n{", false),
        ("\nrubbish\n{", true),
    ] {
        std::fs::write(dir.path().join("journal_rank0.jsonl"), text).unwrap();
        assert_eq!(begun(dir.path()).unwrap(), is_begun, "{text:?}");
    }
}

proptest! {
    #[test]
    fn a_damaged_line_is_named_and_costs_no_other(at in 0usize..9, damage in any_tail()) {
        let lines = life();
        let mut bytes = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let text = serde_json::to_vec(line).unwrap();
            bytes.extend(if index == at { damage.clone() } else { text });
            bytes.push(b'\n');
        }
        let contents = parse(&bytes);
        let others = lines.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, line)| line.clone());
        prop_assert_eq!(contents.lines, others.collect::<Vec<_>>());
        prop_assert_eq!(contents.damaged, if damage.is_empty() { vec![] } else { vec![at + 1] });
        prop_assert_eq!(contents.torn, 0);
    }
}

#[test]
fn the_stamp_of_a_line_is_its_end_whatever_the_line_has() {
    let stamp = Stamp {
        run: Some("5f\"1c".into()),
        launch: None,
        fingerprint: Some("77de".into()),
    };
    let texts = [
        r#"{"type":"x","words":",\"run\":\"other\""}"#,
        r#"{"type":"x","settings":{"a":1,"run":"other"}}"#,
    ];
    for text in texts {
        assert_eq!(Stamp::of(text.as_bytes()), Stamp::default(), "{text}");
        let mut sealed = text.as_bytes().to_vec();
        stamp.seal(&mut sealed);
        assert_eq!(Stamp::of(&sealed), stamp, "{text}");
    }
    let reordered = br#"{"run":"5f1c","type":"x"}"#;
    assert_eq!(Stamp::of(reordered).run.as_deref(), Some("5f1c"));
}

#[test]
fn a_claim_is_two_counts() {
    let claim: Claim = "462/500".parse().unwrap();
    assert_eq!((claim.solved, claim.episodes), (462, 500));
    assert_eq!(claim.to_string(), "462 of 500 (92.4 %)");
    assert!("0/1".parse::<Claim>().is_ok());
}

#[test]
fn anything_else_is_refused() {
    for text in [
        "",
        "92.4",
        "92.4%",
        "501/500",
        "0/0",
        "-1/5",
        "1/2/3",
        "1/1000001",
    ] {
        let told = text.parse::<Claim>().unwrap_err().to_string();
        assert!(told.contains("expected SOLVED/EPISODES"), "{told}");
    }
}
