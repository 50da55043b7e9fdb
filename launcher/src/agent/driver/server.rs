//! Runs the model server of this node: starts it with the launch, watches it beside the ranks, and
//! stops it after them.

use std::time::Duration;

use tokio::select;
use tokio::time::{sleep, timeout};

use crate::agent::driver::{LaunchDriver, SWEEP_PERIOD};
use crate::agent::event::{GroupEvent, LaunchEnd};
use crate::model_server::machine::ServerEvent;
use crate::model_server::{News, SupervisedServer};
use crate::say;
use crate::signals::names::signal_name;

/// How long processes that the server left behind may take to end after SIGKILL.
const LAST_GRACE: Duration = Duration::from_secs(5);

impl LaunchDriver<'_> {
    /// Starts the server. Only the ranks wait for it; this node can meet the other nodes meanwhile.
    pub(super) async fn begin_server(&mut self) -> Vec<GroupEvent> {
        let Some(server) = &mut self.server else {
            return Vec::new();
        };
        let news = server.begin().await;
        self.served(news)
    }

    /// Turns news of the server into events for the worker group.
    pub(super) fn served(&mut self, news: Option<News>) -> Vec<GroupEvent> {
        let spared = self.server.as_ref().map(SupervisedServer::spared);
        self.leftovers.spared = spared.unwrap_or_default();
        let events = news.into_iter().filter_map(|news| match news {
            News::Ready => self.held.take().map(|place| self.joined(place)),
            News::Failed(why) => {
                self.peers.failed(why, false);
                Some(self.over(LaunchEnd::Failed))
            }
        });
        events.collect()
    }

    /// Checks whether the server has ended, and returns the events that follow from that.
    pub(super) fn server_exited(&mut self) -> Vec<GroupEvent> {
        let Some(server) = &mut self.server else {
            return Vec::new();
        };
        let news = server.exited(&self.leftovers, &self.attempt.pids());
        self.served(news)
    }

    /// Waits until no process of the server is left. A signal during the wait kills the server.
    pub(super) async fn end_server(&mut self) {
        let ranks = &self.attempt.pids();
        let Some(server) = &mut self.server else {
            return;
        };
        loop {
            server.exited(&self.leftovers, ranks);
            if server.is_over() {
                break;
            }
            select! {
                received = self.signals.recv() => {
                    say::warning(format_args!("{} while the model server was ending: killed", signal_name(received.number)));
                    server.tell(ServerEvent::Kill);
                }
                _ = self.exits.recv() => {}
                _ = server.recv() => {}
            }
        }
        let are_gone = async {
            while server.kill_leftovers(&self.leftovers, ranks) > 0 {
                sleep(SWEEP_PERIOD).await;
            }
        };
        if timeout(LAST_GRACE, are_gone).await.is_err() {
            say::warning(
                "processes that the model server had left behind do not end even after SIGKILL",
            );
        }
        server.reap();
    }
}
