//! Tests of the live page as text; tests/page opens it in a browser.

use jobs::time::Moment;

use super::*;
use crate::live::LiveRun;
use crate::live::tests::{Run, later, now};

/// Calls `on` with the view of a run of which some episodes have ended.
fn with_view<T>(is_under_way: bool, on: impl FnOnce(&LiveView) -> T) -> T {
    let run = Run::busy();
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
fn the_page_has_the_sections_of_the_report_and_what_happens_now() {
    let ids = with_view(true, |view| {
        let fragments = fragments(view, &LiveExtras::default(), &Zone::utc());
        let ids: Vec<_> = fragments.iter().map(|fragment| fragment.id).collect();
        ids.join(" ")
    });
    let wanted = "head now hangs success variations latency ranks failures films jobs speed \
                  settings origin";
    assert_eq!(ids, wanted);
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

#[test]
fn what_changes_with_time_alone_comes_first() {
    with_view(true, |view| {
        let all = fragments(view, &LiveExtras::default(), &Zone::utc());
        let moving = moving(view, &LiveExtras::default(), &Zone::utc());
        assert_eq!(all[..moving.len()], moving);
    });
}

#[test]
fn an_environment_shows_its_picture_or_what_is_known_of_it() {
    let now_with = |pictures: &[(usize, usize)]| {
        let extras = LiveExtras {
            pictures: pictures.iter().copied().collect(),
            ..LiveExtras::default()
        };
        with_view(true, |view| {
            html(&moving(view, &extras, &Zone::utc()), "now")
        })
    };
    let one = now_with(&[(0, 1)]);
    assert_eq!(one.matches("<img").count(), 1, "{one}");
    assert!(one.contains("data-picture=\"0/1\""), "{one}");
    assert!(
        one.contains("alt=\"\""),
        "one that is not loaded leaves no text: {one}"
    );
    assert_eq!(one.matches("<figure").count(), 2, "{one}");
    let none = now_with(&[]);
    assert_eq!(none.matches("<img").count(), 0, "{none}");
    assert_eq!(none.matches("no picture").count(), 2, "{none}");
    assert!(none.contains("<div class=\"blank\"><b>episode "), "{none}");
    assert!(none.contains("<figcaption><b>a</b>"), "its job: {none}");
}

#[test]
fn there_are_buttons_for_those_with_the_token_and_while_it_runs() {
    let buttons = |has_buttons, is_under_way| {
        with_view(is_under_way, |view| {
            let extras = LiveExtras {
                has_buttons,
                ..LiveExtras::default()
            };
            let head = html(&moving(view, &extras, &Zone::utc()), "head");
            head.matches("data-command").count()
        })
    };
    assert_eq!(buttons(true, true), 3, "stop, and skip a or b");
    assert_eq!((buttons(false, true), buttons(true, false)), (0, 0));
}

#[test]
fn a_job_that_is_skipped_has_no_button() {
    with_view(true, |view| {
        let extras = LiveExtras {
            has_buttons: true,
            skipped: BTreeSet::from(["a".to_owned()]),
            ..LiveExtras::default()
        };
        let head = html(&moving(view, &extras, &Zone::utc()), "head");
        assert!(head.contains("skipping a"), "{head}");
        assert!(!head.contains("data-job=\"a\""), "{head}");
        let stopping = LiveExtras {
            is_stopping: true,
            ..extras
        };
        let head = html(&moving(view, &stopping, &Zone::utc()), "head");
        assert!(!head.contains("data-command"), "{head}");
    });
}

#[test]
fn hang_reports_are_text() {
    let note = HangNote {
        number: 2,
        text: "<b>rank 0</b> & co".to_owned(),
    };
    let html = hangs(&[note]).into_string();
    assert!(html.contains("&lt;b&gt;rank 0&lt;/b&gt; &amp; co") && html.contains("./hang/2"));
    assert_eq!(hangs(&[]).into_string(), "");
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

#[test]
fn a_run_that_has_ended_says_so_and_where_its_report_is() {
    with_view(false, |view| {
        let head = html(&moving(view, &LiveExtras::default(), &Zone::utc()), "head");
        let page = view.folder.page().display().to_string();
        let said = format!("The run has ended. Its report is <code>{page}</code>");
        assert!(head.contains(&said), "{head}");
        assert!(head.contains("id=\"ended\"") && head.contains("Ended early"));
    });
    with_view(true, |view| {
        let head = html(&moving(view, &LiveExtras::default(), &Zone::utc()), "head");
        assert!(!head.contains("ended\""), "{head}");
    });
}
