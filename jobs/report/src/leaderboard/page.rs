//! Renders the leaderboard as a single page that loads nothing, in the style of `report.html`.

use std::collections::BTreeSet;

use maud::{Markup, html};

use crate::leaderboard::{Board, BoardGroup, BoardRow, LEVEL};
use crate::page::bars::{Bar, ruler};
use crate::page::document::{Document, Section};
use crate::page::link::{clip, href, name};
use crate::page::number;
use crate::page::sheet::title;

/// Number of hex digits that are shown of a hash.
const DIGITS: usize = 12;

/// Headings with the CSS class of their column; `n` is for numbers.
const COLUMNS: [(&str, &str); 10] = [
    ("Suite", ""),
    ("Rank", "n"),
    ("Policy", ""),
    ("Type", ""),
    ("Solved", "n"),
    ("Rate", "n"),
    ("95\u{202f}% interval", ""),
    ("Signed", ""),
    ("Run again", ""),
    ("Certificate", ""),
];

/// Renders the page.
pub fn render(board: &Board) -> String {
    let sections = [
        ("results", "Results", "Results", results(board)),
        (
            "refused",
            "Not ranked",
            "Certificates that are not ranked",
            refused(board),
        ),
        ("ranks", "Ranks", "How the ranks were made", method(board)),
        (
            "limits",
            "Limits",
            "What a certificate does not prove",
            html! { ul.limits { @for limit in &board.limits { li { (limit) } } } },
        ),
    ];
    let document = Document {
        title: "Leaderboard",
        first: "results",
        header: header(board),
        footer: html! {
            p {
                "Made by rrun " (env!("CARGO_PKG_VERSION")) " at " (board.created) ". "
                "The numbers are those of " a href="./leaderboard.json" { "leaderboard.json" } "."
            }
        },
        sections: &sections.map(Section::of),
    };
    document.render()
}

fn header(board: &Board) -> Markup {
    let rows: usize = board.groups.iter().map(|group| group.rows.len()).sum();
    html! {
        p.over { "rrun leaderboard" }
        h1 { "Certified results" }
        p.when {
            (number::counted(rows as u64, "result", "results")) " in "
            (number::counted(board.groups.len() as u64, "set of tasks", "sets of tasks"))
            @if !board.refused.is_empty() {
                ", " (number::counted(board.refused.len() as u64, "certificate", "certificates"))
                " not ranked"
            }
        }
    }
}

fn results(board: &Board) -> Markup {
    let rows = || {
        let groups = board.groups.iter();
        groups.flat_map(|group| group.rows.iter().map(move |row| (group, row)))
    };
    let count = rows().count() as u64;
    html! {
        p.lead {
            "Each certificate was read and checked when this page was made: the hash of its contents, \
             that every planned episode is there once with the seed that follows from its number, \
             rates and intervals, and the choice of its sample. Run one again with "
            code { "rrun verify FILE --rerun 20" } "."
        }
        div.jobs {
            p.filter {
                label { "Filter " input type="search" placeholder="suite, policy, signer" autocomplete="off"; }
                (choice("suite", "Suite", rows().map(|(group, _)| suite(group)).collect()))
                (choice("policy", "Type", rows().map(|(_, row)| row.policy_type.clone()).collect()))
                (choice("signed", "Signed", rows().map(|(_, row)| signed(row).to_owned()).collect()))
                (choice("again", "Run again", rows().map(|(_, row)| again(row).to_owned()).collect()))
                output { (number::counted(count, "result", "results")) }
            }
            div.scroll role="region" aria-label="Results" tabindex="0" {
                table.sortable {
                    thead { tr { @for (name, class) in COLUMNS { th scope="col" class=(class) { (name) } } } }
                    tbody { @for (group, row) in rows() { (result(group, row)) } }
                }
            }
        }
    }
}

/// Renders a choice among the values that rows have; the script filters by it.
fn choice(field: &str, label: &str, values: BTreeSet<String>) -> Markup {
    html! {
        label {
            (label) " "
            select name=(field) {
                option value="" { "all" }
                @for value in &values { option value=(value) { (clip(value, 40)) } }
            }
        }
    }
}

fn result(group: &BoardGroup, row: &BoardRow) -> Markup {
    let rates = &row.rates;
    let [best, worst] = row.rank;
    html! {
        tr data-suite=(suite(group)) data-policy=(row.policy_type) data-signed=(signed(row)) data-again=(again(row)) {
            td { (title(&suite(group))) small.muted { " " (environments(group)) } }
            td.n data-v=(best * 1000 + worst) {
                @if best == worst { (best) } @else { (best) " to " (worst) }
            }
            th scope="row" {
                (title(row.policy.as_deref().map_or(row.policy_type.as_str(), name)))
                @if let Some(sha256) = &row.policy_sha256 { " " small { code { (digits(sha256)) } } }
            }
            td { (title(&row.policy_type)) }
            td.n data-v=(rates.successes) { (number::count(rates.successes)) " of " (number::count(rates.episodes)) }
            td.n data-v=[rates.success_rate.map(|rate| format!("{rate:.6}"))] {
                @if let Some(rate) = rates.success_rate { (number::percent(rate)) }
            }
            (interval(row))
            td { (signer(row)) }
            td { @match row.sample { Some([same, all]) => { (same) " of " (all) " the same" } None => { "no" } } }
            td { a href=(href(&row.file)) title=(row.file) { code { (digits(&row.sha256)) } } }
        }
    }
}

fn interval(row: &BoardRow) -> Markup {
    let Some((bar, wilson)) =
        Bar::new(row.rates.success_rate, row.rates.wilson95).zip(row.rates.wilson95)
    else {
        return html! { td data-v="-1" {} };
    };
    html! {
        td.ci data-v=(format!("{:.6}", wilson[0])) {
            svg.bar width="72" height="14" aria-hidden="true" { (ruler(14.0)) (bar.draw("all", 4.0, 6.0)) }
            span { (number::interval(wilson)) }
        }
    }
}

fn signer(row: &BoardRow) -> Markup {
    html! {
        @match (&row.signer, &row.key) {
            (Some(name), Some(key)) => { span title=(key) { (clip(name, 60)) } }
            (None, Some(key)) => { "by a key that nobody vouches for: " small { code { (clip(key, 70)) } } }
            _ => { "no" }
        }
    }
}

fn suite(group: &BoardGroup) -> String {
    match (&group.suite, &group.protocol) {
        (Some(suite), Some(protocol)) => format!("{suite}, protocol {protocol}"),
        _ => format!("tasks {}", digits(&group.tasks_sha256)),
    }
}

/// Names the environments, and for a suite also the tasks: two certificates that name one suite may
/// still ask for different things.
fn environments(group: &BoardGroup) -> String {
    let named: Vec<_> = group
        .environments
        .iter()
        .take(3)
        .map(|name| clip(name, 40))
        .collect();
    let more = group.environments.len().saturating_sub(named.len());
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let tasks = match group.suite {
        Some(_) => format!(", tasks {}", digits(&group.tasks_sha256)),
        None => String::new(),
    };
    format!("{}{rest}{tasks}", named.join(", "))
}

fn signed(row: &BoardRow) -> &'static str {
    match (&row.signer, &row.key) {
        (Some(_), _) => "by a known key",
        (None, Some(_)) => "by an unknown key",
        (None, None) => "no",
    }
}

fn again(row: &BoardRow) -> &'static str {
    match row.sample {
        Some([same, all]) if same == all => "all the same",
        Some(_) => "some different",
        None => "no",
    }
}

fn digits(sha256: &str) -> &str {
    &sha256[..sha256.floor_char_boundary(DIGITS)]
}

fn refused(board: &Board) -> Markup {
    html! {
        @if board.refused.is_empty() { p { "All certificates are ranked." } }
        @else {
            div.scroll role="region" aria-label="Certificates that are not ranked" tabindex="0" {
                table {
                    thead { tr { th scope="col" { "File" } th scope="col" { "Reason" } } }
                    tbody { @for one in &board.refused {
                        tr {
                            th scope="row" { a href=(href(&one.file)) { (clip(&one.file, 120)) } }
                            td.reason { (clip(&one.reason, 400)) }
                        }
                    } }
                }
            }
        }
    }
}

fn method(board: &Board) -> Markup {
    let paired = board.groups.iter().filter(|group| group.is_paired).count();
    html! {
        p.lead {
            "Results are compared only if their tasks are the same: environments, arguments, \
             instructions and numbers of episodes have one hash. All pairs are compared: by McNemar’s \
             exact test where both have the same episodes ("
            (number::counted(paired as u64, "set", "sets")) " of tasks), else by Fisher’s. The \
             p-values of a set are corrected by Holm’s method at " (number::percent(LEVEL)) ". A \
             result that is significantly worse than b others and better than w others of n has a \
             rank from 1 + b to n − w. With a probability of at least 95" (number::THIN) "% all \
             intervals of a set have the true ranks (Mogstad, Romano, Shaikh and Wilhelm 2024, Review \
             of Economic Studies 91; Klein, Wright and Wieczorek 2020, JRSS C 69). Episodes of \
             different tasks count alike."
        }
    }
}
