//! Why a round has to end, as the shared state tells it. Pure.

use crate::rendezvous::join::{JoinAction, JoinSettings, RoundChange};
use crate::rendezvous::state::{NodeFailure, NodeId, NodeInfo, RendezvousState};

/// Returns [`JoinAction::Changed`] if the round of this node has to end.
pub(super) fn broken(
    state: &RendezvousState,
    round: u64,
    me: &str,
    settings: &JoinSettings,
) -> Option<JoinAction> {
    let changed = |change| Some(JoinAction::Changed(change));
    if state.round != round || !state.participants.contains_key(me) {
        return changed(RoundChange::Expelled);
    }
    if let Some(failure) = &state.failure {
        return changed(RoundChange::Failed(failure.clone()));
    }
    match departed(state) {
        Some(change) => changed(change),
        // Once a node is done, no further node is let in: it would force the ranks of the done node
        // to start again.
        None if state.done.is_empty()
            && !state.wait_list.is_empty()
            && state.participants.len() < settings.max =>
        {
            changed(RoundChange::Waiting(state.wait_list.len()))
        }
        None => None,
    }
}

/// Returns the nodes that have left the round: those that died if there are any, otherwise those
/// that left in an orderly way. Nodes that wait for the next round did not cause its end; they are
/// named only if no other node is missing.
fn departed(state: &RendezvousState) -> Option<RoundChange> {
    let is_out = |(id, _): &&(NodeId, NodeInfo)| !state.participants.contains_key(id);
    let out: Vec<&(NodeId, NodeInfo)> = state.world.iter().filter(is_out).collect();
    let addrs = |is_meant: &dyn Fn(&NodeId) -> bool| -> Option<Vec<String>> {
        let meant = out.iter().filter(|(id, _)| is_meant(id));
        Some(meant.map(|(_, node_info)| node_info.addr.clone()).collect())
            .filter(|addrs: &Vec<_>| !addrs.is_empty())
    };
    let dead = addrs(&|id| !state.knows(id) && !state.left.contains(id));
    let left = || addrs(&|id| state.left.contains(id));
    dead.map(RoundChange::Lost)
        .or_else(|| left().map(RoundChange::Left))
        .or_else(|| addrs(&|_| true).map(RoundChange::Lost))
}

/// Returns the failure of a launch that cannot replace a lost node.
pub(super) fn loss(state: &RendezvousState) -> Option<NodeFailure> {
    let (nodes, what) = match departed(state)? {
        RoundChange::Lost(nodes) => (nodes, "the node is gone"),
        RoundChange::Left(nodes) => (nodes, "the node was stopped"),
        RoundChange::Failed(_)
        | RoundChange::Waiting(_)
        | RoundChange::Expelled
        | RoundChange::CutOff => return None,
    };
    Some(NodeFailure {
        node: nodes.into_iter().next()?,
        what: what.to_owned(),
    })
}
