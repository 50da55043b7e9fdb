//! The shared rendezvous of nodes that all run rrun: connects [`Member`] to the store, the clock
//! and the agent.
//!
//! ```text
//! commands of the agent ─┐                             ┌─► COMPARE_SET the state, ring its bell
//! bell of the state ─────┼─► Event ─► Member ─► Action ┼─► host a store for the ranks
//! heartbeats, deadline ──┘                             └─► notices to the agent
//! ```
//! With `<key>` for the key of the state: `<key>/rrun/version/<n>` (the bell) is set when version n
//! is written, which is what the other nodes wait for; `<key>/rrun/beat/<node>` is a counter that
//! grows while the node lives.

mod failover;
mod stored_state;

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{anyhow, bail};
use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::if_any::if_any;
use crate::plan::StorePlan;
use crate::rendezvous::beats::Beats;
use crate::rendezvous::join::{JoinAction, JoinEvent, Member};
use crate::rendezvous::place::Master;
use crate::rendezvous::shared::failover::{Failover, LOOK};
use crate::rendezvous::shared::stored_state::{begin_watch, read, seal};
use crate::rendezvous::state::{NodeInfo, RendezvousClosed, RendezvousState};
use crate::rendezvous::stores::{AgentStore, StoreEndpoint};
use crate::rendezvous::{LaunchFacts, Notice, RendezvousCommand, leave};
use tcpstore::{StoreClient, StoreError};

/// How long the host of the store stays so that the others can read that the launch is over.
const LINGER: Duration = Duration::from_secs(3);

/// A node that has waited for longer than this reports for which nodes.
const PATIENCE: Duration = Duration::from_secs(3);

/// One node of the shared rendezvous.
pub struct SharedRendezvous<'a> {
    facts: &'a LaunchFacts,
    key: String,
    addr: String,
    asker: StoreClient,
    /// The encoded `state`, which the next write replaces.
    text: Vec<u8>,
    state: RendezvousState,
    member: Member,
    beats: Beats,
    store_endpoint: StoreEndpoint,
    /// This node's part in electing another host, if the nodes of this launch do.
    failover: Option<Failover>,
    ranks_store: Option<AgentStore>,
    notices: &'a UnboundedSender<Notice>,
    seen: UnboundedReceiver<Result<Vec<u8>, StoreError>>,
    watch: JoinHandle<()>,
    waiting: Option<(Instant, String)>,
    /// Value of the last heartbeat.
    beat_count: u64,
    /// Whether the warning about a deleted or replaced state has been printed.
    is_warned: bool,
    is_over: bool,
}

impl<'a> SharedRendezvous<'a> {
    /// Joins the nodes whose state has this key. `store_endpoint` is the endpoint of their store.
    pub async fn enter(
        facts: &'a LaunchFacts,
        key: String,
        store_endpoint: StoreEndpoint,
        notices: &'a UnboundedSender<Notice>,
    ) -> anyhow::Result<SharedRendezvous<'a>> {
        let plan = &facts.plan;
        let limit = plan.keep_alive();
        let (store_endpoint, mut asker) =
            failover::connect(plan, &key, store_endpoint, limit.max(PATIENCE)).await?;
        let watcher = store_endpoint
            .connect(plan.read_timeout, limit.max(PATIENCE))
            .await?;
        let addr = match &plan.local_addr {
            Some(addr) => addr.clone(),
            None => store_endpoint.address(&asker).await,
        };
        let first = seal(&RendezvousState {
            launch: facts.launch.clone(),
            ..RendezvousState::default()
        });
        let text = asker.compare_set(&key, b"", &first).await?;
        let state = read(&key, &text)?;
        let (watch, seen) = begin_watch(watcher, key.clone(), plan.keep_alive_interval);
        let failover = Failover::open(facts, &store_endpoint, &addr, &state.launch);
        let node_info = NodeInfo {
            addr: addr.clone(),
            node_rank: plan.node_rank,
            role: facts.role.clone(),
            nproc: facts.nproc,
            peer_port: failover.as_ref().map(Failover::port),
        };
        let mut member = Member::new(plan.clone(), node_info);
        member.set_host(store_endpoint.server.is_some());
        let mut shared = SharedRendezvous {
            facts,
            key,
            addr,
            asker,
            text,
            state,
            member,
            beats: Beats::new(limit),
            store_endpoint,
            failover,
            ranks_store: None,
            notices,
            seen,
            watch,
            waiting: None,
            beat_count: 0,
            is_warned: false,
            is_over: false,
        };
        shared.learn();
        Ok(shared)
    }

    /// Joins a round, and executes the agent's commands until it leaves. Errors of the store after
    /// the end of the launch are ignored.
    pub async fn run(
        mut self,
        commands: &mut UnboundedReceiver<RendezvousCommand>,
    ) -> anyhow::Result<()> {
        let mut event = JoinEvent::Command(RendezvousCommand::Join);
        let ended = loop {
            let ended = self.turn(event, commands).await;
            let err = ended.as_ref().err();
            let lost = err.and_then(|err| err.downcast_ref::<StoreError>());
            match lost.filter(|err| err.is_lost() && self.may_fail_over()) {
                None => break ended,
                Some(err) => match self.fail_over(err, commands).await {
                    Ok(false) => event = JoinEvent::Seen,
                    ended => break ended.map(drop),
                },
            }
        };
        self.watch.abort();
        match ended {
            Err(err) if self.is_over => {
                tracing::debug!("after the end: {err}");
                // The agent says once that this node leaves.
                if !self.member.is_leaving() {
                    leave(commands).await;
                }
                Ok(())
            }
            ended => ended,
        }
    }

    /// Handles `event`, and then what happens until this node leaves or the store is lost.
    async fn turn(
        &mut self,
        event: JoinEvent,
        commands: &mut UnboundedReceiver<RendezvousCommand>,
    ) -> anyhow::Result<()> {
        let (mut beat_at, mut look_at) = (Instant::now(), Instant::now());
        // An event is kept even if the store is lost at once.
        self.member.remember(event, Instant::now().into_std());
        self.beat().await?;
        self.handle(JoinEvent::Seen).await?;
        loop {
            let deadline = self.member.deadline();
            let event = select! {
                command = commands.recv() => match command {
                    Some(command) => self.event(command),
                    None => return Ok(()),
                },
                Some(seen) = self.seen.recv() => {
                    self.adopt(&seen?).await?;
                    JoinEvent::Seen
                }
                () = sleep_until(beat_at) => {
                    beat_at = Instant::now() + self.facts.plan.keep_alive_interval;
                    self.beat().await?
                }
                () = sleep_until(look_at), if self.failover.is_some() => {
                    look_at = Instant::now() + LOOK;
                    self.attend_elections().await?;
                    JoinEvent::Seen
                }
                () = if_any(deadline.map(|at| sleep_until(at.into()))) => JoinEvent::Deadline,
            };
            if self.handle(event).await? {
                return Ok(());
            }
            self.say_waiting();
        }
    }

    /// Returns the event of a command, whose failures get the name of this node.
    fn event(&mut self, mut command: RendezvousCommand) -> JoinEvent {
        match &mut command {
            RendezvousCommand::Join => self.ranks_store = None,
            RendezvousCommand::Failed { failure, .. } | RendezvousCommand::LostRank { failure } => {
                *failure = self.facts.failure(&self.addr, std::mem::take(failure));
            }
            RendezvousCommand::Done => {}
            RendezvousCommand::Leave { why } => {
                self.is_over = true;
                self.leave_elections();
                // No node can go on without the store; a reason tells the others more than a store
                // that is gone.
                let closes = why.take().filter(|_| self.store_endpoint.server.is_some());
                *why = closes.map(|what| self.facts.failure(&self.addr, what));
            }
        }
        JoinEvent::Command(command)
    }

    /// Executes the actions that follow from an event. Returns whether this node has left.
    async fn handle(&mut self, event: JoinEvent) -> anyhow::Result<bool> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self
                .member
                .on(event, &self.state, Instant::now().into_std())
            {
                match action {
                    JoinAction::Write(next) => {
                        self.write(*next).await?;
                        events.push_back(JoinEvent::Seen);
                    }
                    JoinAction::Host { round } => {
                        let master = self.host(round).await?;
                        events.push_back(JoinEvent::Hosted { round, master });
                    }
                    JoinAction::Left => {
                        self.linger().await;
                        return Ok(true);
                    }
                    told => self.tell(told)?,
                }
            }
        }
        Ok(false)
    }

    /// Writes this node's heartbeat and reads those of the others. If another client deletes or
    /// replaces a heartbeat, that at most counts as a change of it; no node waits for a heartbeat.
    async fn beat(&mut self) -> anyhow::Result<JoinEvent> {
        let key = |id: &String| format!("{}/rrun/beat/{id}", self.key);
        let me = &self.facts.plan.node_id;
        self.beat_count += 1;
        let count = self.beat_count.to_string();
        self.asker.set(&key(me), count.as_bytes()).await?;
        let mut nodes = self.state.nodes();
        nodes.remove(me);
        // This node's own heartbeat is read too: an answer shows that the store lives.
        let keys: Vec<String> = [me].into_iter().chain(&nodes).map(key).collect();
        let beats = self.asker.peek(&keys).await?;
        let others = nodes.into_iter().zip(beats.into_iter().skip(1));
        let now = Instant::now().into_std();
        Ok(JoinEvent::Gone(self.beats.on(others, now)))
    }

    /// Hosts an empty store for the ranks of this round.
    async fn host(&mut self, round: u64) -> anyhow::Result<Master> {
        let plan = &self.facts.plan;
        if plan.backend.is_fixed() {
            if round > 0 {
                self.wipe().await?;
            }
            return Ok(self.facts.master());
        }
        let place = StorePlan {
            master_addr: self.addr.clone(),
            port: None,
            may_move: false,
            is_shared: self.facts.is_shared,
        };
        let store = AgentStore::open(&place)?;
        let master = Master {
            addr: place.master_addr,
            port: store.port(),
            is_agent_store: store.is_hosted(),
        };
        self.ranks_store = Some(store);
        // These are torch's keys: rrun does not read them, but monitors may.
        let key = |name: &str| format!("{}.{round}/{name}", self.key);
        let values = [
            (key("MASTER_ADDR"), master.addr.clone()),
            (key("MASTER_PORT"), master.port.to_string()),
        ];
        self.asker.multi_set(&values).await?;
        Ok(master)
    }

    /// Deletes the keys that the ranks of the previous round have left in the shared store. All of
    /// those ranks have ended; a fast rank of the new round would use their keys to connect to a
    /// dead peer (pytorch/pytorch#135712).
    async fn wipe(&mut self) -> anyhow::Result<()> {
        let ours = format!("/{}/", self.facts.run_id).into_bytes();
        let mut keys = self.asker.keys().await?;
        keys.retain(|key| key.starts_with(b"/") && !key.starts_with(&ours));
        Ok(self.asker.delete_all(&keys).await?)
    }

    /// Waits so that the host of the store is the last node to leave.
    async fn linger(&mut self) {
        let deadline = Instant::now() + LINGER;
        while self.store_endpoint.server.is_some()
            && self.state.closed.is_some()
            && !self.state.nodes().is_empty()
        {
            let Ok(Some(Ok(text))) = timeout_at(deadline, self.seen.recv()).await else {
                return;
            };
            if self.adopt(&text).await.is_err() {
                return;
            }
        }
    }

    fn tell(&mut self, told: JoinAction) -> anyhow::Result<()> {
        let notice = match told {
            JoinAction::Joined(place) => {
                self.waiting = None;
                Notice::Joined(place)
            }
            JoinAction::Changed(why) => Notice::Changed(why),
            JoinAction::Over { how, is_late: true } => {
                let how = match how {
                    RendezvousClosed::Succeeded => "it has succeeded".to_owned(),
                    RendezvousClosed::Failed(failure) => failure,
                };
                let run_id = &self.facts.run_id;
                bail!(
                    "the launch with the id `{run_id}` has ended ({how}); choose another --rdzv-id"
                );
            }
            JoinAction::Over { how, .. } => {
                self.is_over = true;
                Notice::Over(how)
            }
            JoinAction::TimedOut { came } => return Err(self.timed_out(came)),
            JoinAction::Write(_) | JoinAction::Host { .. } | JoinAction::Left => return Ok(()),
        };
        // The channel is closed if the launch is over; then nobody needs the notice.
        let _ = self.notices.send(notice);
        Ok(())
    }

    fn say_waiting(&mut self) {
        if !self.member.is_joining() {
            return;
        }
        let (plan, state) = (&self.facts.plan, &self.state);
        let here = state.participants.len();
        let text = if state.redundancy_list.contains(&plan.node_id) {
            format!(
                "waiting as a spare: {here} of at most {} nodes run",
                plan.max
            )
        } else if state.is_complete() {
            format!("waiting for the next round: {here} nodes are still in this one")
        } else {
            format!(
                "waiting for nodes: {here} of at least {} are here",
                plan.min
            )
        };
        let now = Instant::now();
        let (since, said) = self.waiting.get_or_insert((now, String::new()));
        if now.duration_since(*since) >= PATIENCE && *said != text {
            said.clone_from(&text);
            self.say(text);
        }
    }

    /// Returns the error of a node that waited for its place in a round in vain.
    fn timed_out(&self, came: usize) -> anyhow::Error {
        let (wanted, timeout) = (self.facts.plan.min, self.facts.plan.join_timeout);
        let seconds = timeout.as_secs_f64();
        match &self.state.base {
            Some(base) if came >= wanted => anyhow!(
                "only {came} of the {} nodes of the last round are left after {seconds} s, and the \
                 others may go on without them",
                base.nodes.len()
            ),
            _ => anyhow!("only {came} of {wanted} nodes joined within {seconds} s"),
        }
    }

    /// Prints a line. The channel is closed if the launch is over; then nobody needs it.
    fn say(&self, line: String) {
        let _ = self.notices.send(Notice::Said(line));
    }
}

impl Drop for SharedRendezvous<'_> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[cfg(test)]
mod tests;
