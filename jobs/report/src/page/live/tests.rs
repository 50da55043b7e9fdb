//! Tests of the live page as text; tests/page opens it in a browser.

use jobs::time::{Moment, now};

use super::*;
use crate::live::LiveRun;
use crate::live::tests::later;
use crate::page::tests::elements;
use crate::tests::TestRun;

/// Calls `on` with the view of a run of which some episodes have ended.
fn with_view<T>(is_under_way: bool, on: impl FnOnce(&LiveView) -> T) -> T {
    let run = TestRun::busy();
    let _held = is_under_way.then(|| run.held());
    let mut live: LiveRun = run.watched();
    live.refresh(now()).unwrap();
    let report = live.report(later()).unwrap();
    let now = Moment::parse("2026-11-21T10:00:30.000Z");
    on(&LiveView {
        is_under_way,
        ..live.view(&report, now)
    })
}

fn html(fragments: &[Fragment], id: &str) -> String {
    let found = fragments.iter().find(|fragment| fragment.id == id);
    found.unwrap().html.clone()
}

#[test]
fn sections_are_those_of_the_report_of_the_same_journals() {
    with_view(true, |view| {
        let fragments = fragments(view, &LiveExtras::default(), &Zone::utc());
        let report = crate::page::render(view.report, &Zone::utc());
        for id in ["success", "ranks", "failures", "films", "jobs", "speed"] {
            let part = html(&fragments, id);
            assert!(!part.is_empty() && report.contains(&part), "{id}");
        }
    });
}

/// Those with the token have buttons as long as the run lasts, but none for what is skipped
/// already. An environment shows its picture, or what is known of it; a picture that is not loaded
/// leaves no text.
#[test]
fn head_and_environments_are_those_of_the_run_as_it_is_now() {
    let plain = LiveExtras::default();
    let token = LiveExtras {
        has_buttons: true,
        pictures: BTreeSet::from([(0, 1)]),
        ..LiveExtras::default()
    };
    let skipping = LiveExtras {
        skipped: BTreeSet::from(["a".to_owned()]),
        ..token.clone()
    };
    let stopping = LiveExtras {
        is_stopping: true,
        ..skipping.clone()
    };
    let states = [
        ("without the token", true, plain),
        ("with the token", true, token.clone()),
        ("a is skipped", true, skipping),
        ("it stops", true, stopping),
        ("it has ended", false, token),
    ];
    let mut last = Vec::new();
    let shown = states.map(|(state, is_under_way, extras)| {
        let html = with_view(is_under_way, |view| {
            let all = fragments(view, &extras, &Zone::utc());
            let moving = moving(view, &extras, &Zone::utc());
            assert_eq!(all[..moving.len()], moving);
            let html: Vec<_> = moving.into_iter().map(|one| one.html).collect();
            let name = view.folder.root().file_name().unwrap();
            let root = view.folder.root().display().to_string();
            let html = elements(&html.join("\n")).replace(&root, "runs/night");
            html.replace(name.to_str().unwrap(), "night")
        });
        // What has gone since the state before, and what has come.
        let html: Vec<_> = html.lines().map(str::to_owned).collect();
        let gone = last.iter().filter(|line| !html.contains(line));
        let come = html.iter().filter(|line| !last.contains(*line));
        let gone = gone.map(|line| format!("- {line}"));
        let told: Vec<_> = gone.chain(come.map(|line| format!("+ {line}"))).collect();
        last = html;
        format!("{state}\n{}", told.join("\n"))
    });
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn hang_reports_are_text() {
    let note = (2, "<b>rank 0</b> & co".to_owned());
    let html = hangs(&[note].into()).into_string();
    assert!(html.contains("&lt;b&gt;rank 0&lt;/b&gt; &amp; co") && html.contains("./hang/2"));
    assert_eq!(hangs(&BTreeMap::new()).into_string(), "");
}

#[test]
fn the_document_hides_what_is_empty_and_allows_only_its_own_script() {
    with_view(true, |view| {
        let fragments = fragments(view, &LiveExtras::default(), &Zone::utc());
        let html = document("a<b>", "UTC", "e-7", &fragments);
        assert!(html.contains("<title>a&lt;b&gt; · rrun live</title>"));
        assert!(html.contains("data-seen=\"e-7\""));
        let hidden = "<section id=\"hangs-part\" aria-labelledby=\"hangs-name\" hidden>";
        assert!(html.contains(hidden), "{html}");
        assert_eq!(html.matches("<script").count(), 1);
        assert!(!html.contains(" style="), "the policy forbids it");
        assert!(policy().contains("script-src 'sha256-") && !policy().contains("unsafe"));
    });
}
