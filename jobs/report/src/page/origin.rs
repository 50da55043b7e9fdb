//! Shows how, when and where the run was started, and from which files.

use jobs::format;
use jobs::printable::quoted;
use maud::{Markup, html};

use crate::page::clock::Zone;
use crate::page::parts::{fact, first};
use crate::{LaunchReport, Report};
use jobs::count::listed;

/// Shows when the run took place, its duration, and the hardware.
pub(super) fn when(report: &Report, zone: &Zone) -> Markup {
    let run = &report.run;
    html! {
        @if let Some(started) = &run.started {
            time datetime=(started) { (zone.long(started)) } " " (zone.name())
            @if let Some(seconds) = run.wall_s { " · " (format::seconds(seconds)) }
            " · "
        }
        @if run.launches.len() > 1 { (format::count(run.launches.len() as u64)) " launches · " }
        (format::counted(run.world_size as u64, "rank", "ranks"))
        " · "
        @match &run.hosts[..] {
            [] => { "no host name is known" }
            [host] => { (host) }
            hosts => { (format::count(hosts.len() as u64)) " machines" }
        }
    }
}

pub(super) const NAMES: [&str; 3] = ["origin", "Run", "How it was run"];

pub(super) fn section(report: &Report, zone: &Zone) -> Markup {
    let (run, config) = (&report.run, &report.config);
    let at = |at: &Option<String>| match at {
        Some(at) => moment(at, zone),
        None => html! { "unknown" },
    };
    let ranks = |count: usize| format::counted(count as u64, "rank", "ranks");
    let launch = |launch: &LaunchReport| {
        html! { (moment(&launch.started, zone)) ", " (ranks(launch.world_size)) }
    };
    html! {
        dl.facts {
            (fact("Command", html! { pre { code { (command(&run.argv)) } } }))
            (fact("Jobs file", html! { code { (config.jobs_file) } }))
            (fact("SHA-256 of the jobs file", html! { code.hash { (config.sha256) } }))
            (fact("Base seed", config.seed))
            (fact("Began", at(&run.started)))
            (fact("Ended", at(&run.ended)))
            @if run.launches.len() > 1 { (fact("Launches", first(&run.launches, MOST, launch))) }
            @if !run.written.is_empty() { (fact("Report made", moment(&run.written, zone))) }
            (fact("Ranks", html! {
                (format::count(run.world_size as u64))
                @if config.world_size_at_start != run.world_size {
                    " when it ended, " (format::count(config.world_size_at_start as u64)) " when it started"
                }
            }))
            (fact("Machines", match &run.hosts[..] {
                [] => "unknown".to_owned(),
                hosts => listed(hosts, MOST),
            }))
            (fact("Results gathered through", gathered(&run.gathered_by)))
            (fact("Version", format!("rrun {}, {}", run.rrun, report.schema)))
            @if !run.id.is_empty() { (fact("Run", html! { code.hash { (run.id) } })) }
        }
    }
}

/// Shows a time in the page's zone and in UTC.
fn moment(at: &str, zone: &Zone) -> Markup {
    html! { (zone.long(at)) " " (zone.name()) @if zone.name() != "UTC" { span.muted { ", " (at) } } }
}

/// Maximum number of launches, and of hosts, shown one by one.
const MOST: usize = 16;

fn gathered(route: &str) -> &str {
    match route {
        "single" => "the only rank",
        "store" => "the ranks’ store",
        "nccl" => "NCCL",
        "journals" => "the journals, without a gather",
        other => other,
    }
}

/// Formats a command line so that a shell parses it into the same words.
fn command(argv: &[String]) -> String {
    let words: Vec<_> = argv.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

pub(super) fn footer(report: &Report, zone: &Zone) -> Markup {
    html! {
        "Made by rrun " (report.run.rrun) ". Times are " (zone.name()) ". "
        "The numbers are those of " a href="./report.json" { "report.json" } ", every episode is in "
        a href="./episodes.jsonl" { "episodes.jsonl" } "."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let argv = [
            "rrun",
            "eval",
            "--jobs",
            "my jobs.json",
            "--x=1",
            "it's",
            "",
            "$HOME",
            "é",
        ]
        .map(str::to_owned);
        let wanted = r"rrun eval --jobs 'my jobs.json' --x=1 'it'\''s' '' '$HOME' 'é'";
        assert_eq!(command(&argv), wanted);
    }
}
