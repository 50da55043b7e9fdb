//! The stream over the TCP connection to a server, with or without TLS.

use std::io::{self, Read, Write};

use rustls::{ClientConnection, StreamOwned};

use crate::policy::remote::tls::reason_of;
use crate::policy::remote::{CallError, Lifeline, PatientStream, PolicyServer};

/// A connection to a server, with or without TLS.
#[derive(Debug)]
pub enum ServerStream {
    /// Over TCP alone.
    Plain(PatientStream),
    /// Encrypted.
    Tls(Box<StreamOwned<ClientConnection, PatientStream>>),
}

impl ServerStream {
    /// Connects to the server, and makes the TLS handshake if it is behind TLS. Both together have
    /// the server's timeout.
    ///
    /// # Errors
    /// Returns [`CallError::Wrong`] for a certificate that is not trusted and for a server without
    /// TLS, and fails like [`PatientStream::connect`].
    pub fn connect(server: &PolicyServer, lifeline: &Lifeline) -> Result<Self, CallError> {
        let mut tcp = PatientStream::connect(server, lifeline)?;
        let Some(trust) = &server.tls else {
            return Ok(Self::Plain(tcp));
        };
        let mut tls = trust.session(&server.host).map_err(CallError::Wrong)?;
        tls.complete_io(&mut tcp).map_err(|err| match err.kind() {
            // Some servers without TLS close the connection, and so do proxies whose server
            // is starting.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => CallError::Away(
                "it closed the connection during the TLS handshake; a server without TLS \
                     needs ws:// in remote_host"
                    .to_owned(),
            ),
            _ => Self::failed(&tcp, &err),
        })?;
        Ok(Self::Tls(Box::new(StreamOwned::new(tls, tcp))))
    }

    /// Restarts the timeout.
    pub fn renew(&mut self) {
        match self {
            Self::Plain(tcp) => tcp.renew(),
            Self::Tls(tls) => tls.get_mut().renew(),
        }
    }

    /// Makes every step from now on a short one, see [`PatientStream::hurry`].
    pub fn hurry(&mut self) {
        match self {
            Self::Plain(tcp) => tcp.hurry(),
            Self::Tls(tls) => tls.get_mut().hurry(),
        }
    }

    /// Classifies an error from reading or writing.
    pub fn trouble(&self, err: &io::Error) -> CallError {
        match self {
            Self::Plain(tcp) => tcp.trouble(err),
            Self::Tls(tls) => Self::failed(tls.get_ref(), err),
        }
    }

    fn failed(tcp: &PatientStream, err: &io::Error) -> CallError {
        match reason_of(err) {
            Some(reason) => CallError::Wrong(reason),
            None => tcp.trouble(err),
        }
    }
}

impl Read for ServerStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for ServerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}
