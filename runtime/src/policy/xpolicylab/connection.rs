//! A connection to a policy server of XPolicyLab: a websocket on which both sides have said hello.

use bytes::Bytes;

use crate::policy::remote::{
    CallError, Lifeline, PolicyServer, ServerConnection, WebsocketConnection,
};
use crate::policy::xpolicylab::frame::{self, MessageType, RequestFrame};

/// Number of random bytes in an identifier.
const ID_BYTES: usize = 16;

/// A connection to `PolicyServer`. The protocol has no tokens; one is sent as
/// `Authorization: Bearer …`, for a proxy in front of the server.
#[derive(Debug)]
pub struct XpolicylabConnection(WebsocketConnection);

impl ServerConnection for XpolicylabConnection {
    fn open(server: &PolicyServer, lifeline: &Lifeline) -> Result<Self, CallError> {
        let mut connection = Self(WebsocketConnection::connect(server, lifeline, "Bearer")?);
        let id = fresh_id().map_err(CallError::Wrong)?;
        let hello = RequestFrame {
            message_type: MessageType::Hello,
            message_id: &id,
            evaluation_id: &id,
            trial_id: None,
            step: 0,
        };
        connection.send(&hello.with(Vec::new()))?;
        let answer = connection.receive()?;
        frame::payload(&answer, MessageType::Hello, &id)
            .map_err(|reason| CallError::Wrong(format!("hello: {reason}")))?;
        Ok(connection)
    }

    fn send(&mut self, request: &Bytes) -> Result<(), CallError> {
        self.0.send(request)
    }

    fn receive(&mut self) -> Result<Bytes, CallError> {
        self.0.receive()
    }

    fn hurry(&mut self) {
        self.0.hurry();
    }
}

/// Returns an identifier that no other client has, or why there is none.
pub(super) fn fresh_id() -> Result<String, String> {
    jobs::random::hex::<ID_BYTES>().map_err(|err| format!("/dev/urandom cannot be read: {err}"))
}
