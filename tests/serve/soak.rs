//! Soak test with many clients that connect and disconnect: no reply is lost or mixed up, and the
//! memory does not grow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rig::wait::{now, pause};
use wire::{Dialect, write};

use crate::serve::client::{Client, apart, numbers, seeded};
use crate::serve::server::Server;

/// Tolerance, because the actions of a batch differ in the last bits from those of one row.
const NEAR: f32 = 1e-2;

/// Number of seeds with known answers.
const SEEDS: u64 = 8;

fn soak(clients: u64, lasting: Duration) {
    let server = Server::start(&["--max-batch", "16"]);
    let expected: Vec<Vec<f32>> = (0..SEEDS)
        .map(|seed| numbers(&Client::connect(server.address).ask_value(&seeded(seed))))
        .collect();
    let (address, expected, asked) = (server.address, &expected, &AtomicU64::new(0));
    let start = now();
    let mut resident = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..clients {
            scope.spawn(move || {
                let mut chance = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                let mut client = Client::connect(address);
                while start.elapsed() < lasting {
                    chance ^= chance << 13;
                    chance ^= chance >> 7;
                    chance ^= chance << 17;
                    let seed = chance % SEEDS;
                    let request = seeded(seed);
                    if chance.is_multiple_of(11) {
                        // The client disconnects before its answer.
                        client.send(&write(&request, Dialect::Kind)).unwrap();
                        client = Client::connect(address);
                        continue;
                    }
                    let found = numbers(&client.ask_value(&request));
                    let apart = apart(&found, &expected[seed as usize]);
                    assert!(apart < NEAR, "seed {seed}: {apart}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while start.elapsed() < lasting {
            resident.push(server.resident());
            pause(lasting / 20);
        }
    });
    let (half, last) = (resident[resident.len() / 2], server.resident());
    eprintln!(
        "{} answers, {half} KiB at half time, {last} KiB at the end",
        asked.load(Ordering::Relaxed)
    );
    assert!(
        asked.load(Ordering::Relaxed) >= clients,
        "every client was answered"
    );
    assert!(
        last < half + half / 10 + 16_384,
        "{half} KiB became {last} KiB"
    );
}

#[test]
#[ignore = "three minutes"]
fn sixty_four_clients_for_some_minutes_get_their_own_answers_and_memory_stays() {
    soak(64, Duration::from_secs(180));
}
