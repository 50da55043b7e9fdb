//! Probes a model server for its health: by a GET of its health URL, or by a connection to its
//! port.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use jobs::model_server::{Health, HealthUrl};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Timeout of one probe; a server under load is probed again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval between two probes.
const PERIOD: Duration = Duration::from_millis(250);

/// Number of bytes to read: the status line of HTTP/1.1 up to its code, `HTTP/1.1 200`.
const STATUS_LINE: u64 = 12;

/// Probes a server until it is healthy. Dropping it stops that.
#[derive(Debug)]
pub struct HealthProbe {
    /// The last error; `None` once the server is healthy.
    news: watch::Receiver<Option<String>>,
    task: AbortHandle,
}

impl HealthProbe {
    /// Starts to probe. Must be called on a runtime.
    pub fn start(health: &Health) -> HealthProbe {
        let (said, news) = watch::channel(Some("it has not been polled yet".to_owned()));
        let health = health.clone();
        let task = tokio::spawn(async move {
            while let Err(why) = ask(&health).await {
                said.send_replace(Some(why));
                sleep(PERIOD).await;
            }
            said.send_replace(None);
        });
        HealthProbe {
            news,
            task: task.abort_handle(),
        }
    }

    /// Waits until the server is healthy. Cancel-safe: dropping the future loses nothing.
    pub async fn answered(&mut self) {
        // The task ends by sending `None`.
        let _ = self.news.wait_for(Option::is_none).await;
    }

    /// Returns the error of the last probe.
    pub fn why(&self) -> String {
        self.news.borrow().clone().unwrap_or_default()
    }
}

impl Drop for HealthProbe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Probes once.
///
/// # Errors
/// Says in words why the server is not healthy.
pub async fn ask(health: &Health) -> Result<(), String> {
    let asked = async {
        let url = match health {
            Health::Port(port) => {
                return TcpStream::connect((Ipv4Addr::LOCALHOST, *port))
                    .await
                    .map(drop);
            }
            Health::Url(url) => url,
        };
        match status(url).await? {
            200..300 => Ok(()),
            status => {
                let why = format!("it answers with status {status}");
                Err(io::Error::other(why))
            }
        }
    };
    let silent = || format!("no answer within {} s", PATIENCE.as_secs());
    let answer = timeout(PATIENCE, asked).await.map_err(|_| silent())?;
    answer.map_err(|err| match err.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => err.to_string(),
    })
}

async fn status(url: &HealthUrl) -> io::Result<u16> {
    let mut stream = TcpStream::connect((url.host.as_str(), url.port)).await?;
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: rrun/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        url.path,
        url.authority(),
        env!("CARGO_PKG_VERSION")
    );
    stream.write_all(request.as_bytes()).await?;
    let mut line = Vec::new();
    stream.take(STATUS_LINE).read_to_end(&mut line).await?;
    parse(&line).ok_or_else(|| io::Error::other("the answer is not HTTP/1"))
}

/// Parses the status code of `HTTP/1.1 200` (RFC 9112, section 4).
fn parse(line: &[u8]) -> Option<u16> {
    let (version, status) = line.split_at_checked(9)?;
    let is_http = matches!(
        version,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9', b' ']
    );
    let is_status = status.len() == 3 && status.iter().all(u8::is_ascii_digit);
    let status = std::str::from_utf8(status).ok();
    status.filter(|_| is_http && is_status)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a server that gives this answer to every client; returns its port.
    async fn server(answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer).await;
            }
        });
        port
    }

    async fn answer_to(answer: &'static [u8]) -> Result<(), String> {
        let url = format!("http://127.0.0.1:{}/health", server(answer).await);
        ask(&Health::Url(HealthUrl::parse(&url).expect("a URL"))).await
    }

    #[tokio::test]
    async fn a_status_of_success_is_health_and_no_other() {
        assert_eq!(answer_to(b"HTTP/1.1 200 OK\r\n\r\n").await, Ok(()));
        assert_eq!(answer_to(b"HTTP/1.0 204 No Content\r\n\r\n").await, Ok(()));
        assert_eq!(
            answer_to(b"HTTP/1.1 503 x\r\n\r\n").await,
            Err("it answers with status 503".to_owned())
        );
        assert_eq!(
            answer_to(b"HTTP/1.1 301 x\r\n\r\n").await,
            Err("it answers with status 301".to_owned())
        );
        let no_http = Err("the answer is not HTTP/1".to_owned());
        assert_eq!(
            (answer_to(b"+PONG\r\n").await, answer_to(b"").await),
            (no_http.clone(), no_http)
        );
    }

    #[tokio::test]
    async fn a_probe_waits_until_somebody_listens_and_knows_why_there_was_no_answer() {
        let free = rig::net::port();
        let port = Health::Port(free);
        assert_eq!(ask(&port).await, Err("connection refused".to_owned()));
        let mut probe = HealthProbe::start(&port);
        let limit = Duration::from_secs(60);
        let knows = async {
            while probe.why() != "connection refused" {
                tokio::task::yield_now().await;
            }
        };
        timeout(limit, knows).await.expect("it asks");
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, free))
            .await
            .expect("it is free");
        timeout(limit, probe.answered())
            .await
            .expect("it asks again");
        assert_eq!(ask(&port).await, Ok(()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_status_or_none(line: Vec<u8>) {
            prop_assert!(parse(&line).is_none_or(|status| status < 1000 && line.starts_with(b"HTTP/1.")));
        }
    }
}
