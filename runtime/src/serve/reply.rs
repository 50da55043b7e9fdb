//! What follows a message of a websocket client.

use bytes::Bytes;

/// What follows a message.
#[derive(Debug)]
pub enum WebsocketReply {
    /// The answer to a request for actions.
    Answer(Bytes),
    /// An error about a request, after which the client may send others.
    Error(Bytes),
    /// An answer without an inference, which no statistics count.
    Control(Bytes),
    /// Nothing: the message needs no answer.
    Nothing,
    /// An error, after which the connection is closed.
    Last(Bytes),
    /// The text of an error, after which the connection is closed.
    LastText(String),
}
