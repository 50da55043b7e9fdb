//! Between a rank and its store, in tests.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A way to a store that can be cut.
pub struct Cable {
    /// Where its near end is.
    pub port: u16,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    /// To a port of this machine.
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

    /// Breaks what goes over it now; who connects again gets through.
    pub fn cut(&self) {
        self.ends.lock().unwrap().drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}
