//! A TCP proxy between a rank and its store, for tests that break the connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A TCP proxy to a store whose connections can be cut, or swallow what is sent.
pub struct Cable {
    /// Local port on which the proxy listens.
    pub port: u16,
    ends: Arc<Mutex<Vec<TcpStream>>>,
    death: Arc<Death>,
}

/// Whether a cable swallows what is sent, and how many bytes it has swallowed.
#[derive(Default)]
struct Death {
    is_dead: AtomicBool,
    swallowed: AtomicUsize,
}

impl Cable {
    /// Starts a proxy to `port` of this machine.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap().port();
        let (ends, death) = (Arc::default(), Arc::default());
        let cable = Self {
            port: here,
            ends: Arc::clone(&ends),
            death: Arc::clone(&death),
        };
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let death = Arc::clone(&death);
                    std::thread::spawn(move || forward(from, to, &death));
                }
                ends.lock().unwrap().extend([near, far]);
            }
        });
        cable
    }

    /// Closes all current connections; later connections get through.
    pub fn cut(&self) {
        self.ends
            .lock()
            .unwrap()
            .drain(..)
            .for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }

    /// Lets both ends send without an answer and without an error, as if the other node had lost
    /// its power, until [`Cable::revive`].
    pub fn die(&self) {
        self.death.is_dead.store(true, Ordering::SeqCst);
    }

    /// Lets bytes through again. Connections that have lost some are never the same again.
    pub fn revive(&self) {
        self.death.is_dead.store(false, Ordering::SeqCst);
    }

    /// Returns whether bytes have been swallowed.
    pub fn has_swallowed(&self) -> bool {
        self.death.swallowed.load(Ordering::SeqCst) > 0
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, death: &Death) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if death.is_dead.load(Ordering::SeqCst) {
            death.swallowed.fetch_add(length, Ordering::SeqCst);
        } else if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
}
