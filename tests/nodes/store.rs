//! Stores of launches, and clients of them.

use std::future::pending;
use std::sync::mpsc::channel;
use std::time::Duration;

use tcpstore::{StoreClient, StoreServer};
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// Starts a store in a separate thread, which runs until the tests end; returns its port.
pub fn serve() -> u16 {
    let (ready, port) = channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let server = StoreServer::bind("127.0.0.1", None).unwrap();
            ready.send(server.port()).unwrap();
            let _server = server.spawn();
            pending::<()>().await;
        });
    });
    port.recv().unwrap()
}

/// Uses a client of the store at an address, once the store listens.
pub fn with<T>(host: &str, port: u16, act: impl AsyncFnOnce(&mut StoreClient) -> T) -> T {
    runtime().block_on(async {
        let limit = Duration::from_secs(60);
        let mut client = StoreClient::connect(host, port, limit).await.unwrap();
        act(&mut client).await
    })
}
