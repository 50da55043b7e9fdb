//! The loss of the host: connects [`Election`] to the mail of this node, to the clock, and to the
//! stores of the other nodes, and changes the store that this node uses: that of another host, or
//! its own.
//!
//! ```text
//! host     its store has the state, under <key>, and its mail, a queue <key>/rrun/mail
//! others   each has a store of its own on a free port, with its mail alone; if that was the store
//!          of the launch before, <key>/rrun/host says where that is now
//! ```
//! A store that is not the launch's takes a free port, because the port of the endpoint on that
//! machine may be the rendezvous of another launch. Everything from outside is read as a message
//! of at most 2 KiB or dropped, a few at a time, so that mail from strangers stops nothing. As the
//! state itself, mail has no authentication.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use anyhow::bail;
use tokio::net::TcpStream;
use tokio::select;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::plan::{Backend, RendezvousPlan};
use crate::rendezvous::beats::Beats;
use crate::rendezvous::election::electorate::Contact;
use crate::rendezvous::election::message::{Ballot, Message};
use crate::rendezvous::election::{Election, ElectionAction, ElectionEvent};
use crate::rendezvous::shared::stored_state::{begin_watch, read, seal};
use crate::rendezvous::shared::{PATIENCE, SharedRendezvous};
use crate::rendezvous::state::NodeId;
use crate::rendezvous::stores::{ONE_HOST, StoreEndpoint};
use crate::rendezvous::{LaunchFacts, RendezvousCommand};
use crate::say;
use tcpstore::{Scope, ServerHandle, StoreClient, StoreError, StoreServer};

/// Interval at which a node looks into its mail, which is empty as long as no node is lost.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// The same while it has no host.
const LOOK_SEEKING: Duration = Duration::from_millis(30);

/// Messages read at a time; a round of an election has a few from each node.
const AT_ONCE: usize = 64;

/// Timeout of a message, after which it counts as lost.
const ONE_MESSAGE: Duration = Duration::from_secs(1);

/// One node's part in electing a host.
#[derive(Debug)]
pub(super) struct Failover {
    election: Election,
    /// This node's store while another node hosts.
    standby: Option<ServerHandle>,
}

impl Failover {
    /// Opens this node's store, unless it hosts that of the launch. Returns `None` where no other
    /// host is elected: with the static backend, where ranks have the address on their command
    /// line, and with a file, whose lock says who hosts.
    pub fn open(
        facts: &LaunchFacts,
        endpoint: &StoreEndpoint,
        addr: &str,
        launch: &str,
    ) -> Option<Failover> {
        let plan = &facts.plan;
        if plan.backend != Backend::C10d || plan.file.is_some() {
            return None;
        }
        let standby = match &endpoint.server {
            Some(_) => None,
            None => Some(
                StoreServer::bind_in(Scope::Everybody, addr, None)
                    .ok()?
                    .warning(|text| say::warning(text))
                    .spawn(),
            ),
        };
        let me = Contact {
            id: plan.node_id.clone(),
            addr: addr.to_owned(),
            port: standby.as_ref().map_or(endpoint.port, ServerHandle::port),
        };
        let election = Election::new(me, launch.to_owned(), standby.is_none());
        Some(Failover {
            election: election.at_endpoint(&plan.host, plan.port),
            standby,
        })
    }

    /// Returns the port of this node's store.
    pub fn port(&self) -> u16 {
        self.election.me.port
    }
}

/// Connects to the store of the launch. The store at the endpoint may only say where that is, or
/// that no node is known to host at the moment.
pub(super) async fn connect(
    plan: &RendezvousPlan,
    key: &str,
    endpoint: StoreEndpoint,
    request_timeout: Duration,
) -> anyhow::Result<(StoreEndpoint, StoreClient)> {
    let deadline = Instant::now() + plan.read_timeout;
    loop {
        let mut asker = endpoint.connect(plan.read_timeout, request_timeout).await?;
        let pointer = asker.peek(&[&pointer(key)]).await?.pop();
        let moved = pointer.and_then(|text| serde_json::from_slice::<Contact>(&text).ok());
        let Some(host) = moved.filter(|_| endpoint.server.is_none()) else {
            return Ok((endpoint, asker));
        };
        if let Some(found) = hosted_by(&host, key, request_timeout).await {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!(
                "the host of the rendezvous is not at {} any more, and no other was found within \
                 {} s",
                endpoint.authority(),
                plan.read_timeout.as_secs_f64()
            );
        }
        sleep(LOOK).await;
    }
}

/// Connects to the store of a node that is said to host. Returns `None` if the state is not there:
/// the node may have been replaced since.
async fn hosted_by(
    host: &Contact,
    key: &str,
    request_timeout: Duration,
) -> Option<(StoreEndpoint, StoreClient)> {
    if host.addr.is_empty() {
        return None;
    }
    let endpoint = StoreEndpoint::elsewhere(&host.addr, host.port);
    let mut asker = endpoint.connect(ONE_HOST, request_timeout).await.ok()?;
    let state = asker.peek(&[key]).await.ok()?.pop()?;
    (!state.is_empty()).then_some((endpoint, asker))
}

/// Returns the key of the mail of the node that has the store.
fn mail(key: &str) -> String {
    format!("{key}/rrun/mail")
}

/// Returns the key that says where the store of the launch is.
fn pointer(key: &str) -> String {
    format!("{key}/rrun/host")
}

/// Sends a message, or loses it.
async fn send(key: String, to: Contact, message: Message) {
    let sent = async {
        let mut client = StoreClient::connect(&to.addr, to.port, ONE_MESSAGE).await?;
        client.push(&mail(&key), &message.to_text()).await
    };
    match timeout(ONE_MESSAGE, sent).await {
        Ok(Ok(())) => {}
        Ok(Err(err)) => tracing::debug!("{:?} is lost: {err}", message.ballot),
        Err(_) => tracing::debug!("{:?} to {} is late", message.ballot, to.addr),
    }
}

impl SharedRendezvous<'_> {
    /// Returns whether another host may be elected when this one is lost. Before the first round
    /// has begun, and where not all nodes can host, none is.
    pub(super) fn may_fail_over(&self) -> bool {
        let is_possible = self.state.base.is_some() || self.store_endpoint.server.is_some();
        self.failover.is_some() && is_possible && !self.is_over
    }

    /// Ends the part of this node in elections.
    pub(super) fn leave_elections(&mut self) {
        if let Some(failover) = &mut self.failover {
            failover.election.leave();
        }
    }

    /// Tells the election what the state says.
    pub(super) fn learn(&mut self) {
        if let Some(failover) = &mut self.failover {
            let knowledge = self.state.knowledge();
            failover
                .election
                .learn(knowledge, Instant::now().into_std());
        }
    }

    fn is_seeking(&self) -> bool {
        let failover = self.failover.as_ref();
        failover.is_some_and(|failover| failover.election.is_seeking())
    }

    /// Reads the mail, and acts on it and on the clock.
    ///
    /// # Errors
    /// Returns an error if this node has no host any more.
    pub(super) async fn attend_elections(&mut self) -> anyhow::Result<()> {
        for message in self.mail() {
            match self.epoch_of_older_launch(&message) {
                Some(epoch) => self.move_to(message, epoch).await?,
                None => self.elect(ElectionEvent::Received(message)).await,
            }
        }
        self.elect(ElectionEvent::Deadline).await;
        match self.is_seeking() {
            true => Err(self.lost().into()),
            false => Ok(()),
        }
    }

    fn lost(&self) -> StoreError {
        StoreError::Lost {
            addr: self.store_endpoint.authority(),
            err: io::Error::other("it is not that of the host any more"),
        }
    }

    fn mail(&self) -> Vec<Message> {
        let Some(failover) = &self.failover else {
            return Vec::new();
        };
        let server = self
            .store_endpoint
            .server
            .as_ref()
            .or(failover.standby.as_ref());
        let key = mail(&self.key);
        let texts = (0..AT_ONCE).map_while(|_| server.and_then(|server| server.pop(&key)));
        texts.filter_map(|text| Message::read(&text)).collect()
    }

    async fn elect(&mut self, event: ElectionEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(failover) = &mut self.failover else {
                return;
            };
            for action in failover.election.on(event, Instant::now().into_std()) {
                if let Err(err) = self.perform(action).await {
                    tracing::debug!("no host: {err:#}");
                    events.push_back(ElectionEvent::Lost);
                    break;
                }
            }
        }
    }

    async fn perform(&mut self, action: ElectionAction) -> anyhow::Result<()> {
        match action {
            ElectionAction::Send { to, message } => {
                drop(spawn(send(self.key.clone(), to, message)));
                Ok(())
            }
            ElectionAction::Follow { host, epoch } => {
                tracing::debug!("{host:?} hosts epoch {epoch}");
                self.follow(&host).await
            }
            ElectionAction::Host { epoch } => self.take_over(epoch).await,
            ElectionAction::Raise { epoch, votes } => self.raise(epoch, &votes).await,
            ElectionAction::Close => {
                self.close();
                self.point_to(&Contact::default());
                Ok(())
            }
        }
    }

    /// Looks for another host, or becomes it, while the agent is heard. Returns whether this node
    /// has left meanwhile.
    ///
    /// # Errors
    /// Returns an error if there is no host in time.
    pub(super) async fn fail_over(
        &mut self,
        err: &StoreError,
        commands: &mut UnboundedReceiver<RendezvousCommand>,
    ) -> anyhow::Result<bool> {
        self.watch.abort();
        let begun = Instant::now();
        let plan = &self.facts.plan;
        let of = self.state.base.as_ref().map_or(0, |base| base.nodes.len());
        let enough = format!(
            "that takes more than half of the {of} nodes of the last round, or half with its host"
        );
        let host = self.store_endpoint.authority();
        // A host that was silent has been so for the keep-alive time already.
        let cut_off_at = match err {
            StoreError::Silent { .. } => begun,
            _ => begun + plan.keep_alive(),
        };
        let mut is_cut_off = false;
        if !self.is_seeking() {
            self.say(format!("{err}; looking for another host"));
            self.elect(ElectionEvent::Lost).await;
        }
        if self.store_endpoint.server.is_some() {
            // This node's own store did not answer, for instance because the machine stood still.
            self.use_store().await?;
        }
        while self.is_seeking() {
            select! {
                command = commands.recv() => match command {
                    None | Some(RendezvousCommand::Leave { .. }) => return Ok(true),
                    Some(command) => {
                        let event = self.event(command);
                        self.member.remember(event, Instant::now().into_std());
                    }
                },
                () = sleep_until(cut_off_at), if !is_cut_off => {
                    is_cut_off = true;
                    if let Some(told) = self.member.cut_off() {
                        self.tell(told)?;
                    }
                    let can_replace = |it: &Failover| it.election.can_replace_host();
                    let is_replaceable = self.failover.as_ref().is_some_and(can_replace);
                    if !is_replaceable && self.has_host_ended().await {
                        bail!(
                            "the host of the rendezvous at {host} has ended, and there are too \
                             few others: {enough}"
                        );
                    }
                }
                () = sleep(LOOK_SEEKING) => drop(self.attend_elections().await),
                () = sleep_until(begun + plan.read_timeout) => {
                    bail!(
                        "the host of the rendezvous at {host} is lost, and no other was elected \
                         within {} s: {enough}",
                        plan.read_timeout.as_secs_f64()
                    );
                }
            }
        }
        Ok(false)
    }

    /// Returns whether nobody listens any more where the host did. One that was cut off, or stands
    /// still, does not refuse.
    async fn has_host_ended(&self) -> bool {
        let endpoint = &self.store_endpoint;
        let connected = TcpStream::connect((endpoint.host.as_str(), endpoint.port));
        let refused = |err: &io::Error| err.kind() == io::ErrorKind::ConnectionRefused;
        matches!(timeout(ONE_MESSAGE, connected).await, Ok(Err(err)) if refused(&err))
    }

    /// Uses the store of another node. If this node has hosted, its store says where that is.
    async fn follow(&mut self, host: &Contact) -> anyhow::Result<()> {
        self.close();
        self.store_endpoint = StoreEndpoint::elsewhere(&host.addr, host.port);
        self.point_to(host);
        self.use_store().await?;
        self.say(format!("node {} hosts the rendezvous now", host.addr));
        Ok(())
    }

    /// Serves the state no longer, if this node does.
    fn close(&mut self) {
        if let (Some(failover), Some(mut server)) =
            (&mut self.failover, self.store_endpoint.server.take())
        {
            server.renew();
            failover.standby = Some(server);
        }
    }

    /// Says in this node's store where that of the launch is, to those who look for it here. If no
    /// node is known to host, they wait; otherwise they would begin a launch of their own.
    fn point_to(&self, host: &Contact) {
        let standby = self.failover.as_ref().and_then(|it| it.standby.as_ref());
        if let (Some(standby), Ok(text)) = (standby, serde_json::to_vec(host))
            && let Err(err) = standby.set(&pointer(&self.key), &text)
        {
            tracing::debug!("the store does not say where the launch is: {err}");
        }
    }

    /// Serves the state as this node has last seen it.
    async fn take_over(&mut self, epoch: u64) -> anyhow::Result<()> {
        let Some(failover) = &mut self.failover else {
            return Ok(());
        };
        let state = self.state.taken_over(epoch, &self.facts.plan.node_id);
        if let Some(mut server) = failover.standby.take() {
            server.renew();
            if let Err(err) = server.set(&self.key, &seal(&state)) {
                tracing::warn!("the store has no room for the state: {err}");
            }
            self.store_endpoint = StoreEndpoint::of_server(server, &self.addr);
        }
        self.use_store().await?;
        self.say("this node hosts the rendezvous now".to_owned());
        Ok(())
    }

    /// Connects to the store of the launch, and reads the state there.
    async fn use_store(&mut self) -> anyhow::Result<()> {
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
        let period = self.facts.plan.keep_alive_interval;
        (self.watch, self.seen) = begin_watch(watcher, self.key.clone(), period);
        (self.asker, self.beats) = (asker, Beats::new(limit));
        self.member.set_host(self.store_endpoint.server.is_some());
        self.hold(text, state);
        Ok(())
    }

    /// Writes a later epoch into the state that this node hosts, if `votes` are a quorum according
    /// to that state.
    async fn raise(&mut self, epoch: u64, votes: &BTreeSet<NodeId>) -> anyhow::Result<()> {
        while let Some(raised) = self.state.raised(epoch, votes) {
            self.write(raised).await?;
        }
        Ok(())
    }

    /// Returns the epoch of a host of this run id that announces itself to a launcher which has
    /// opened a store at the endpoint and begun nothing: the launch has been under way for longer.
    fn epoch_of_older_launch(&self, message: &Message) -> Option<u64> {
        let is_new = self.state.base.is_none() && self.store_endpoint.server.is_some();
        match message.ballot {
            Ballot::Host { epoch }
                if epoch > 0 && is_new && message.launch != self.state.launch =>
            {
                Some(epoch)
            }
            _ => None,
        }
    }

    /// Joins the launch that has been under way for longer.
    async fn move_to(&mut self, message: Message, epoch: u64) -> anyhow::Result<()> {
        let (host, launch) = (message.from, message.launch);
        self.failover = self.failover.take().map(|failover| Failover {
            election: failover.election.moved_to(launch, host.clone(), epoch),
            ..failover
        });
        self.follow(&host).await
    }
}
