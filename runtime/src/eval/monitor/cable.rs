//! A TCP proxy between a rank and its store, for tests that break the connection.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A TCP proxy to a store whose connections can be cut.
pub struct Cable {
    /// Local port on which the proxy listens.
    pub port: u16,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    /// Starts a proxy to `port` of this machine.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap().port();
        let ends = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&ends);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || io::copy(&mut from, &mut to));
                }
                kept.lock().unwrap().extend([near, far]);
            }
        });
        Self { port: here, ends }
    }

    /// Closes all current connections; later connections get through.
    pub fn cut(&self) {
        self.ends
            .lock()
            .unwrap()
            .drain(..)
            .for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}
