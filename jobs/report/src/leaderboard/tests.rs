use serde_json::{Value, json};

use super::*;
use crate::certificate::sample::{ChosenEpisode, choose};
use crate::certificate::tests::{entry, of};
use crate::certificate::{Certificate, RepeatedEpisode, Sample, canonical};

const EVIL: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;";

/// Returns the certificate of a policy of which the first `solved` of 60 episodes are solved. Its
/// seeds are those of the others, because the job has a seed of its own.
fn certificate(name: &str, solved: u64) -> Certificate {
    let mut job = entry(name, 60);
    job["seed"] = json!(7);
    let made = of(&json!({"jobs": [job]}), |_| true);
    edited(&made, |contents| {
        let episodes = &mut contents["jobs"][0]["episodes"];
        for (nth, episode) in episodes.as_array_mut().unwrap().iter_mut().enumerate() {
            if nth as u64 >= solved {
                episode["success"] = json!(false);
                episode["end"] = json!("time_limit");
            }
        }
        contents["policies"][0]["path"] = json!(format!("{name}.pt"));
        contents["jobs"][0]["entry"]["policy_config_dict"]["model_path"] =
            json!(format!("{name}.pt"));
    })
}

/// Returns the certificate with changed contents, with rates and hash that fit them.
fn edited(certificate: &Certificate, change: impl Fn(&mut Value)) -> Certificate {
    let mut value = serde_json::to_value(certificate).unwrap();
    change(&mut value["contents"]);
    let mut edited: Certificate = serde_json::from_value(value).unwrap();
    let contents = &mut edited.contents;
    for job in &mut contents.jobs {
        job.rates = crate::certificate::CertifiedRates::of(&job.episodes);
    }
    let all = contents.jobs.iter().flat_map(|job| &job.episodes);
    contents.rates = crate::certificate::CertifiedRates::of(all);
    edited.sha256 = canonical::sha256(&edited.contents).unwrap();
    edited
}

fn board(entries: Vec<Entry>) -> Board {
    Board::new(entries, "2026-11-21T10:00:00.000Z".to_owned())
}

fn unsigned(file: &str, certificate: Certificate) -> Entry {
    Entry::new(file.to_owned(), certificate, Ok(None))
}

#[test]
fn policies_on_the_same_tasks_are_ranked_as_far_as_the_episodes_tell() {
    let board = board(vec![
        unsigned("a.json", certificate("a", 20)),
        unsigned("b.json", certificate("b", 22)),
        unsigned("c.json", certificate("c", 55)),
    ]);
    let [group] = &board.groups[..] else {
        panic!("{:?}", board.groups)
    };
    let of = |row: &BoardRow| (row.policy.clone().unwrap(), row.rank, row.rates.successes);
    let rows: Vec<_> = group.rows.iter().map(of).collect();
    let wanted = [
        ("c.pt", [1, 1], 55),
        ("b.pt", [2, 3], 22),
        ("a.pt", [2, 3], 20),
    ];
    let expected = wanted.map(|(policy, rank, solved)| (policy.to_owned(), rank, solved));
    assert_eq!(rows, expected);
    assert!(group.is_paired && board.refused.is_empty());
    assert_eq!(group.environments, ["reach"]);
}

#[test]
fn other_tasks_are_another_group_even_under_the_name_of_one_suite() {
    let suite = |certificate: &Certificate, args: Value| {
        edited(certificate, |contents| {
            let entry = &mut contents["jobs"][0]["entry"];
            entry["arena_env_args"]["max_episode_steps"] = args.clone();
        })
    };
    let board = board(vec![
        unsigned("a.json", suite(&certificate("a", 20), json!(50))),
        unsigned("b.json", suite(&certificate("b", 20), json!(500))),
    ]);
    assert_eq!(board.groups.len(), 2);
    let is_first = |group: &BoardGroup| group.rows[0].rank == [1, 1];
    assert!(board.groups.iter().all(is_first));
}

#[test]
fn names_and_places_do_not_make_other_tasks() {
    let here = edited(&certificate("b", 20), |contents| {
        contents["jobs"][0]["entry"]["arena_env_args"]["num_envs"] = json!(9);
    });
    let board = board(vec![
        unsigned("a.json", certificate("a", 20)),
        unsigned("b.json", here),
    ]);
    assert_eq!(board.groups.len(), 1);
}

#[test]
fn a_certificate_that_fails_is_listed_with_the_reason() {
    let good = certificate("a", 20);
    let partial = edited(&good, |contents| {
        contents["complete"] = json!(false);
        contents["findings"] = json!(["x"]);
    });
    let mut wrong = edited(&good, |contents| contents["run"]["id"] = json!("other"));
    wrong.contents.jobs[0].rates.successes = 60;
    let forged = Err("it is forged".to_owned());
    let unsound = Entry::new("s.json".to_owned(), certificate("s", 1), forged);
    let board = board(vec![
        unsigned("good.json", good.clone()),
        unsigned("partial.json", partial),
        unsigned("wrong.json", wrong),
        unsigned("copy.json", good),
        Entry::refused("none.json".to_owned(), "it is not JSON".to_owned()),
        unsound,
    ]);
    let refused = board.refused.iter();
    let told: Vec<_> = refused
        .map(|one| format!("{}: {}", one.file, one.reason))
        .collect();
    assert_eq!(
        told,
        [
            "partial.json: it is the certificate of an incomplete run",
            "wrong.json: a: its rates do not follow from its episodes",
            "copy.json: has the same contents as `good.json`",
            "none.json: it is not JSON",
            "s.json: it is forged",
        ]
    );
    assert_eq!(board.groups[0].rows.len(), 1);
    let page = render(&board);
    assert!(page.contains("it is the certificate of an incomplete run"));
    assert!(page.contains(LIMITS[0]), "what is not proven");
}

#[test]
fn what_was_checked_stands_beside_each_row() {
    let mut again = certificate("a", 20);
    let chosen = choose(&again.contents, 3, &again.sha256);
    let repeated = |(nth, one): (usize, &ChosenEpisode)| {
        let result = again.episode(&one.job, one.episode).copied();
        RepeatedEpisode {
            job: one.job.clone(),
            episode: one.episode,
            again: result.filter(|_| nth > 0),
        }
    };
    let episodes = chosen.iter().enumerate().map(repeated).collect();
    again.sample = Some(Sample {
        ranks: 2,
        environments: 2,
        machines: Vec::new(),
        episodes,
    });
    let signed = Signed {
        key: "ED25519 key SHA256:abc".to_owned(),
        name: Some("alice@lab".to_owned()),
    };
    let entry = Entry::new("x.json".to_owned(), again, Ok(Some(signed)));
    let board = board(vec![entry]);
    assert_eq!(board.groups[0].rows[0].sample, Some([2, 3]));
    let page = render(&board);
    for part in [
        "alice@lab",
        "2 of 3 the same",
        r#"data-signed="by a known key""#,
        r#"href="./x.json""#,
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn whatever_strangers_write_is_text() {
    let evil = edited(&certificate("a", 20), |contents| {
        contents["run"]["id"] = json!(EVIL);
        contents["policies"][0]["path"] = json!(EVIL);
        contents["policies"][0]["sha256"] = json!(EVIL);
        let entry = &mut contents["jobs"][0]["entry"];
        entry["policy_type"] = json!(EVIL);
        contents["policies"][0]["type"] = json!(EVIL);
        contents["jobs"][0]["entry"]["arena_env_args"]["environment"] = json!(EVIL);
    });
    let signed = Signed {
        key: EVIL.to_owned(),
        name: Some(EVIL.to_owned()),
    };
    let mut board = board(vec![
        Entry::new(EVIL.to_owned(), evil, Ok(Some(signed))),
        Entry::refused(EVIL.to_owned(), EVIL.to_owned()),
    ]);
    assert_eq!(board.groups.len(), 1, "{:?}", board.refused);
    let group = &mut board.groups[0];
    (group.suite, group.protocol) = (Some(EVIL.to_owned()), Some(EVIL.to_owned()));
    group.rows[0].sha256 = EVIL.to_owned();
    let page = render(&board);
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    assert!(!page.contains("<img") && !page.contains("\"'>"));
    assert!(page.contains("&lt;script&gt;"), "and yet it can be read");
}

#[test]
fn the_guide_says_what_the_page_says_is_not_proven() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/certificates.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let words: Vec<_> = guide.split_whitespace().collect();
    let guide = words.join(" ");
    for limit in LIMITS {
        assert!(guide.contains(&format!("* {limit}")), "{limit}");
    }
}
