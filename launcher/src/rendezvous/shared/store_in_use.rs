//! Changes of the store that a node uses: that of another host, or its own.

use std::collections::BTreeSet;

use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn;

use crate::rendezvous::beats::Beats;
use crate::rendezvous::election::electorate::Contact;
use crate::rendezvous::election::message::{Ballot, Message};
use crate::rendezvous::envelope::{read, seal};
use crate::rendezvous::shared::failover::{Failover, pointer};
use crate::rendezvous::shared::watch::watch;
use crate::rendezvous::shared::{PATIENCE, SharedRendezvous};
use crate::rendezvous::state::NodeId;
use crate::rendezvous::store_endpoint::{ONE_HOST, StoreEndpoint};

impl SharedRendezvous<'_> {
    /// Uses the store of another node. If this node has hosted, its store says where that is.
    pub(super) async fn follow(&mut self, host: &Contact) -> anyhow::Result<()> {
        self.close();
        self.store_endpoint = StoreEndpoint::elsewhere(&host.addr, host.port);
        self.point_to(host);
        self.use_store().await?;
        self.say(format!("node {} hosts the rendezvous now", host.addr));
        Ok(())
    }

    /// Serves the state no longer, if this node does.
    pub(super) fn close(&mut self) {
        if let (Some(failover), Some(mut server)) =
            (&mut self.failover, self.store_endpoint.server.take())
        {
            server.renew();
            failover.standby = Some(server);
        }
    }

    /// Says in this node's store where that of the launch is, to those who look for it here. If no
    /// node is known to host, they wait; otherwise they would begin a launch of their own.
    pub(super) fn point_to(&self, host: &Contact) {
        let standby = self.failover.as_ref().and_then(|it| it.standby.as_ref());
        if let (Some(standby), Ok(text)) = (standby, serde_json::to_vec(host))
            && let Err(err) = standby.set(&format!("/{}", pointer(&self.key)), &text)
        {
            tracing::debug!("the store does not say where the launch is: {err}");
        }
    }

    /// Serves the state as this node has last seen it.
    pub(super) async fn take_over(&mut self, epoch: u64) -> anyhow::Result<()> {
        let Some(failover) = &mut self.failover else {
            return Ok(());
        };
        let state = self.state.taken_over(epoch, &self.facts.plan.node_id);
        if let Some(mut server) = failover.standby.take() {
            server.renew();
            if let Err(err) = server.set(&format!("/{}", self.key), &seal(&state)) {
                tracing::warn!("the store has no room for the state: {err}");
            }
            self.store_endpoint = StoreEndpoint::of_server(server, &self.addr);
        }
        self.use_store().await?;
        self.say("this node hosts the rendezvous now".to_owned());
        Ok(())
    }

    /// Connects to the store of the launch, and reads the state there.
    pub(super) async fn use_store(&mut self) -> anyhow::Result<()> {
        let limit = self.facts.plan.keep_alive();
        let endpoint = &self.store_endpoint;
        let mut asker = endpoint.connect(ONE_HOST, limit.max(PATIENCE)).await?;
        let watcher = endpoint.connect(ONE_HOST, limit.max(PATIENCE)).await?;
        let text = asker.peek(&[&self.key]).await?.pop().unwrap_or_default();
        let state = read(&self.key, &text)?;
        let accepts = |failover: &Failover| failover.election.accepts(state.epoch);
        if !self.failover.as_ref().is_some_and(accepts) {
            return Err(self.lost().into());
        }
        self.watch.abort();
        let (seen_by, seen) = unbounded_channel();
        let period = self.facts.plan.keep_alive_interval;
        self.watch = spawn(watch(watcher, self.key.clone(), period, seen_by));
        (self.asker, self.seen, self.beats) = (asker, seen, Beats::new(limit));
        self.member.set_host(self.store_endpoint.server.is_some());
        self.hold(text, state);
        Ok(())
    }

    /// Writes a later epoch into the state that this node hosts, if `votes` are a quorum according
    /// to that state.
    pub(super) async fn raise(
        &mut self,
        epoch: u64,
        votes: &BTreeSet<NodeId>,
    ) -> anyhow::Result<()> {
        while let Some(raised) = self.state.raised(epoch, votes) {
            self.write(raised).await?;
        }
        Ok(())
    }

    /// Returns whether a host of this run id announces itself to a launcher that has opened a
    /// store at the endpoint and begun nothing: the launch has been under way for longer.
    pub(super) fn is_from_older_launch(&self, message: &Message) -> bool {
        let is_elected = matches!(message.ballot, Ballot::Host { epoch } if epoch > 0);
        is_elected
            && message.launch != self.state.launch
            && self.state.base.is_none()
            && self.store_endpoint.server.is_some()
    }

    /// Joins the launch that has been under way for longer.
    pub(super) async fn move_to(&mut self, message: Message) -> anyhow::Result<()> {
        let Ballot::Host { epoch } = message.ballot else {
            return Ok(());
        };
        let (host, launch) = (message.from, message.launch);
        self.failover = self.failover.take().map(|failover| Failover {
            election: failover.election.moved_to(launch, host.clone(), epoch),
            ..failover
        });
        self.follow(&host).await
    }
}
