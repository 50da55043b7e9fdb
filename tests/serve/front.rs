//! Tests of `rrun serve --front-port`: one port for several ranks.

use std::net::SocketAddr;

use rig::process::send;
use rig::run::{Given, Running, Signal};
use rig::wait::until;

use crate::serve::client::{Client, file, ping};
use crate::serve::server::{metric_of, ready};

/// A launch of three ranks behind a front port.
struct FrontLaunch {
    launch: Running,
    /// How much of its stderr has been read.
    read: usize,
    front: SocketAddr,
    /// Addresses of the ranks that have been ready since the last [`Self::wait_for`].
    ranks: Vec<SocketAddr>,
}

impl FrontLaunch {
    fn start() -> Self {
        let mut launch = Self {
            launch: front_port(Given::rrun().words("--nproc-per-node 3")).start(),
            read: 0,
            front: SocketAddr::from(([127, 0, 0, 1], 0)),
            ranks: Vec::new(),
        };
        let said = launch.wait_for("3 of 3 take connections\n");
        let front = said
            .split_once("front port ")
            .and_then(|(_, rest)| rest.split(": ").next()?.parse().ok());
        launch.front = front.unwrap_or_else(|| panic!("{said}"));
        launch
    }

    /// Waits for a text; returns what was said up to it.
    fn wait_for(&mut self, text: &str) -> String {
        let said = self.launch.until(text, || {
            let said = self.launch.stderr().split_off(self.read);
            let end = said.find(text)? + text.len();
            Some(said[..end].to_owned())
        });
        self.read += said.len();
        self.ranks = ready(&said).collect();
        said
    }

    /// Connects by the front port and waits for an answer.
    fn client(&self) -> Client {
        let mut client = Client::connect(self.front);
        ping(&mut client);
        client
    }

    /// Returns how many pings each rank has answered.
    fn pings(&self) -> Vec<f64> {
        let count =
            |rank: &SocketAddr| metric_of(*rank, "rrun_serve_requests_total{endpoint=\"ping\"}");
        self.ranks.iter().map(count).collect()
    }
}

/// Adds the words of a policy of one action behind a front port.
fn front_port(given: Given) -> Given {
    given
        .file("interface.json", r#"{"actions": {"names": ["x"]}}"#)
        .words("serve --host 127.0.0.1 --front-port 0 --policy zero_action")
        .words("--interface interface.json")
}

#[test]
fn connections_are_spread_over_the_ranks_and_survive_the_death_of_another() {
    let mut launch = FrontLaunch::start();
    let mut clients: Vec<Client> = (0..6).map(|_| launch.client()).collect();
    assert_eq!(launch.pings(), [2.0; 3]);

    send(launch.launch.ranks()[0], Signal::KILL);
    launch.wait_for("2 of 3 take connections\n");
    let body = file("ping.request.bin");
    let is_alive = |client: &mut Client| client.send(&body).and_then(|()| client.receive()).is_ok();
    clients.retain_mut(is_alive);
    assert_eq!(clients.len(), 4);
    clients.push(launch.client());

    launch.wait_for("3 of 3 take connections\n");
    // The new rank has no connections, and the others have five.
    clients.extend([launch.client(), launch.client()]);
    until("the new rank has answered both", || launch.pings() == [2.0]);
    clients.iter_mut().for_each(ping);
}

#[test]
fn a_front_port_needs_the_launcher() {
    let ended = front_port(Given::rank()).fails_with(3);
    ended.stderr_has("--front-port is opened by `rrun serve`");
}
