//! A TCP connection with a deadline for every read and write.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::clock::now;
use crate::policy::remote::{CallError, Lifeline, PolicyServer};

/// Interval at which a wait checks its deadline and the lifeline.
const SLICE: Duration = Duration::from_millis(100);

/// Maximum time for connecting, which cannot be interrupted; a reachable machine answers sooner.
const LONGEST_CONNECT: Duration = Duration::from_secs(5);

/// Maximum time for a step after [`PatientStream::hurry`].
const LONGEST_FAREWELL: Duration = Duration::from_millis(500);

/// A connection that blocks until its deadline, or until the lifeline is cut.
#[derive(Debug)]
pub struct PatientStream {
    tcp: TcpStream,
    lifeline: Lifeline,
    timeout: Duration,
    deadline: Instant,
    /// Whether a cut lifeline makes no difference any more.
    is_farewell: bool,
}

impl PatientStream {
    /// Connects to the first of the host's addresses that answers.
    ///
    /// # Errors
    /// Returns [`CallError::Away`] with the reason of the last address.
    pub fn connect(server: &PolicyServer, lifeline: &Lifeline) -> Result<Self, CallError> {
        let deadline = now() + server.timeout;
        let host = (server.host.as_str(), server.port);
        let addresses = server.resolver.addresses(host, deadline, lifeline)?;
        let mut reason = String::new();
        for address in addresses {
            let left = deadline
                .saturating_duration_since(now())
                .min(LONGEST_CONNECT);
            if lifeline.is_cut() {
                return Err(CallError::Cut);
            }
            let tcp = match TcpStream::connect_timeout(&address, left.max(SLICE)) {
                Ok(tcp) => tcp,
                Err(err) => {
                    reason = plain(&err);
                    continue;
                }
            };
            let prepared = tcp
                .set_nodelay(true)
                .and_then(|()| tcp.set_read_timeout(Some(SLICE)))
                .and_then(|()| tcp.set_write_timeout(Some(SLICE)));
            prepared.map_err(|err| CallError::Away(err.to_string()))?;
            return Ok(Self {
                tcp,
                lifeline: lifeline.clone(),
                timeout: server.timeout,
                deadline,
                is_farewell: false,
            });
        }
        Err(CallError::Away(reason))
    }

    /// Restarts the timeout.
    pub fn renew(&mut self) {
        self.deadline = now() + self.timeout;
    }

    /// Makes every step from now on a short one, for what is said at the end: by then, the lifeline
    /// may be cut.
    pub fn hurry(&mut self) {
        self.timeout = self.timeout.min(LONGEST_FAREWELL);
        self.is_farewell = true;
        self.renew();
    }

    /// Classifies an error from reading or writing.
    pub fn trouble(&self, err: &io::Error) -> CallError {
        match err.kind() {
            _ if self.lifeline.is_cut() => CallError::Cut,
            ErrorKind::TimedOut => {
                CallError::Away(format!("no answer within {} s", self.timeout.as_secs_f64()))
            }
            _ => CallError::Away(plain(err)),
        }
    }

    /// Repeats an attempt until it succeeds or the deadline passes, which also limits a peer that
    /// keeps sending single bytes.
    fn persist<T>(
        &mut self,
        mut attempt: impl FnMut(&mut TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let is_cut = self.lifeline.is_cut() && !self.is_farewell;
            if is_cut || now() >= self.deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            match attempt(&mut self.tcp) {
                Err(err)
                    if matches!(
                        err.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                other => return other,
            }
        }
    }
}

impl Read for PatientStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.persist(|tcp| tcp.read(buffer))
    }
}

impl Write for PatientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.persist(|tcp| tcp.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the system's error message without the error number.
fn plain(err: &io::Error) -> String {
    match err.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionAborted => "it closed the connection".to_owned(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "no connection in time".to_owned(),
        _ => err.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;
    use crate::policy::gr00t::remote::RemoteSettings;

    fn listening(timeout: Duration) -> (TcpListener, PolicyServer) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = json!({"remote_host": "127.0.0.1", "remote_port": port});
        let settings = RemoteSettings::read(config.as_object().unwrap()).unwrap();
        (
            listener,
            PolicyServer {
                timeout,
                ..settings.server
            },
        )
    }

    #[test]
    fn a_silent_peer_costs_no_more_than_the_time_out() {
        let (_listener, server) = listening(Duration::from_millis(300));
        let mut stream = PatientStream::connect(&server, &Lifeline::alone()).unwrap();
        let err = stream.read(&mut [0]).unwrap_err();
        let late = CallError::Away("no answer within 0.3 s".to_owned());
        assert_eq!(stream.trouble(&err), late);
    }

    #[test]
    fn a_peer_that_never_comes_to_an_end_costs_no_more_than_the_time_out() {
        let (listener, server) = listening(Duration::from_millis(300));
        let mut stream = PatientStream::connect(&server, &Lifeline::alone()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        // Write until the other side closes the connection.
        let peer = std::thread::spawn(move || while peer.write_all(&[0; 16]).is_ok() {});
        let err = loop {
            if let Err(err) = stream.read(&mut [0]) {
                break err;
            }
        };
        let late = CallError::Away("no answer within 0.3 s".to_owned());
        assert_eq!(stream.trouble(&err), late);
        drop(stream);
        peer.join().unwrap();
    }

    #[test]
    fn a_cut_ends_a_read() {
        let (_listener, server) = listening(Duration::from_secs(3600));
        let lifeline = Lifeline::alone();
        let mut stream = PatientStream::connect(&server, &lifeline).unwrap();
        lifeline.cut();
        let err = stream.read(&mut [0]).unwrap_err();
        assert_eq!(stream.trouble(&err), CallError::Cut);
    }

    #[test]
    fn a_farewell_is_short_and_goes_out_after_a_cut() {
        let (listener, server) = listening(Duration::from_secs(3600));
        let lifeline = Lifeline::alone();
        let mut stream = PatientStream::connect(&server, &lifeline).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        lifeline.cut();
        stream.hurry();
        stream.write_all(b"bye").unwrap();
        let mut heard = [0; 3];
        peer.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"bye");
        // The peer is silent.
        stream.read(&mut [0]).unwrap_err();
    }

    #[test]
    fn nobody_at_home_is_said_at_once() {
        let (listener, server) = listening(Duration::from_secs(60));
        drop(listener);
        let trouble = PatientStream::connect(&server, &Lifeline::alone()).unwrap_err();
        assert_eq!(trouble, CallError::Away("connection refused".to_owned()));
    }
}
