//! Fuzz targets for input of the launcher.

use std::mem::discriminant;
use std::time::{Duration, Instant};

use launcher::cluster::hostlist;
use launcher::plan::{Backend, RendezvousPlan};
use launcher::rendezvous::RendezvousCommand;
use launcher::rendezvous::join::{JoinEvent, Member};
use launcher::rendezvous::state::{NodeInfo, RendezvousState};
use rig::hostile::Target;
use tcpstore::table::{Answer, StoreTable};
use tcpstore::wire::{Parsed, parse};

#[test]
fn hostile_hostlist() {
    Target::new("hostlist").run(|input| {
        let Ok(list) = std::str::from_utf8(input) else {
            return None;
        };
        Some(
            hostlist::expand(list)
                .map(|hosts| hosts.len().min(64))
                .map_err(|err| err.to_string().rsplit('`').next().map(str::to_owned)),
        )
    });
}

/// Three connections in turn, answered by one store.
#[test]
fn hostile_store() {
    Target::new("store").run(|input| {
        let (mut table, mut at, mut outcome) = (StoreTable::with_limit(4096), 0, Vec::new());
        let mut waits = Vec::new();
        loop {
            match parse(&input[at..]) {
                Ok(Parsed::Request(request, length)) => {
                    let mut written = Vec::new();
                    request.encode(&mut written);
                    assert_eq!(written, input[at..at + length]);
                    let what = match table.answer(&request) {
                        Ok(Answer::None) => 0,
                        Ok(Answer::Reply(_)) => 1,
                        Ok(Answer::Wait(wait)) => {
                            waits.push(wait);
                            2
                        }
                        Err(_) => 3,
                    };
                    outcome.push((input[at], what));
                    at += length;
                }
                Ok(Parsed::Needs(needed)) => {
                    assert!(needed > input.len() - at);
                    return (outcome, None);
                }
                Err(err) => {
                    let reason = err.to_string().replace(|c: char| c.is_ascii_hexdigit(), "");
                    return (outcome, Some(reason));
                }
            }
        }
    });
}

/// A node in a rendezvous with other nodes, whose state anyone may write.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a node counts from some `Instant`"
)]
fn hostile_rendezvous() {
    let now = Instant::now();
    Target::new("rendezvous").run(|input| {
        let state: RendezvousState = serde_json::from_slice(input)
            .ok()
            .filter(RendezvousState::is_plausible)?;
        let second = Duration::from_secs(1);
        let plan = RendezvousPlan {
            backend: Backend::C10d,
            min: 1,
            max: 2,
            node_id: "me".to_owned(),
            last_call_timeout: second,
            join_timeout: 9 * second,
            ..RendezvousPlan::default()
        };
        let card = NodeInfo {
            addr: "a".to_owned(),
            nproc: 1,
            ..NodeInfo::default()
        };
        let mut member = Member::new(plan, card);
        let events = [
            JoinEvent::Command(RendezvousCommand::Join),
            JoinEvent::Seen,
            JoinEvent::Command(RendezvousCommand::LostRank {
                failure: "a: rank 1 exited with code 1".to_owned(),
            }),
            JoinEvent::Command(RendezvousCommand::Done),
            JoinEvent::Deadline,
            JoinEvent::Command(RendezvousCommand::Leave { why: None }),
        ];
        let actions = events
            .into_iter()
            .flat_map(|event| member.on(event, &state, now));
        Some(
            actions
                .map(|action| discriminant(&action))
                .collect::<Vec<_>>(),
        )
    });
}
