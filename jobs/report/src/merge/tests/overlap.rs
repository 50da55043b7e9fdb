//! Runs that have episodes in common: copies of a run folder, and parts of a run.

use super::*;

#[test]
fn of_two_copies_of_a_run_the_longer_one_counts() {
    let place = MergeFolders::new();
    let run = place.run("now", &[job("a")]);
    run.rank(0, &all("a", 0..3));
    let copy = place.run("then", &[job("a")]);
    fs::write(copy.folder.plan(), fs::read(run.folder.plan()).unwrap()).unwrap();
    let text = fs::read_to_string(run.folder.journal(0)).unwrap();
    // The files of the copy are elsewhere, so its lines differ.
    let beginning: String = text.split_inclusive('\n').take(2).collect();
    fs::write(copy.folder.journal(0), beginning).unwrap();
    let report = place.merge(&["then", "now"], "out").unwrap();
    assert_eq!(report.per_rank.len(), 1);
    assert_eq!(report.per_rank[0].lives.len(), 1);
    assert_eq!(report.overall.episodes, 3);
}

#[test]
fn a_copied_run_folder_with_datasets_is_the_same_run() {
    let place = MergeFolders::new();
    let run = place.run("night/run", &[job("b"), job("a")]);
    run.rank(0, &all("a", 0..3)).rank(1, &all("b", 0..2));
    place.run("other", &[job("c")]).rank(0, &all("c", 0..6));
    let copy = RunFolder::new(&place.path("backup"));
    fs::create_dir_all(copy.journals()).unwrap();
    fs::copy(run.folder.plan(), copy.plan()).unwrap();
    for rank in 0..2 {
        fs::copy(run.folder.journal(rank), copy.journal(rank)).unwrap();
    }
    let names = ["night", "backup", "other"];
    let dirs: Vec<_> = names.iter().map(|name| place.path(name)).collect();
    let merge = Merge::of(&dirs, &place.path("out")).unwrap();
    let found = merge
        .copies()
        .into_iter()
        .map(|pair| pair.map(|dir| dir.file_name().unwrap().to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), [["backup", "run"]]);

    let report = place.merge(&names, "out").unwrap();
    assert_eq!((report.overall.episodes, report.per_rank.len()), (11, 3));
    assert!(report.duplicates.is_empty());
    // Either way, the result is the same.
    place.merge(&["night", "other"], "first").unwrap();
    place.merge(&["first", "backup"], "out2").unwrap();
    assert_eq!(place.content("out2"), place.content("out"));
}

#[test]
fn a_run_and_a_part_of_it_are_merged_with_each_episode_once() {
    let place = MergeFolders::new();
    place
        .run("whole", &[job("a"), job("b")])
        .rank(0, &all("a", 0..4));
    let part = |name: &str, only: &str, numbers| {
        let mut part = place.run(name, &[job("a")]);
        part.plan.jobs[0].only = Some(only.parse().unwrap());
        part.plan.only = Some(format!("a:{only}").parse().unwrap());
        part.save();
        part.rank(0, &all("a", numbers));
    };
    part("first", "2-4", 2..5);
    part("second", "5", 5..6);

    let parts = place.merge(&["first", "second"], "parts").unwrap();
    assert!(parts.complete(), "{:?}", parts.missing);
    let report = place.merge(&["whole", "first", "second"], "out").unwrap();
    assert_eq!(report.overall.episodes, 6);
    assert!(report.duplicates.iter().all(|twice| twice.agree));
    assert_eq!(report.per_job[0].rates.episodes, 6);
    assert!(!report.complete(), "b was not run");
    place.merge(&["parts", "whole"], "steps").unwrap();
    assert_eq!(place.content("steps"), place.content("out"));

    let mut other = place.run("other", &[job("a")]);
    other.plan.jobs[0].only = Some("1".parse().unwrap());
    other.plan.jobs[0].seed = Some(7);
    other.save();
    let refusal = place.merge(&["whole", "other"], "no").unwrap_err();
    let told = "\n  a: seed 7 → --seed 42";
    assert!(refusal.to_string().ends_with(told), "{refusal}");
}
