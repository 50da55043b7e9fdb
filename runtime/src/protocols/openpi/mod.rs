//! openpi's protocol over websockets, as spoken by its `WebsocketPolicyServer`.

mod server;

pub(crate) use server::{OpenpiServer, metadata};
