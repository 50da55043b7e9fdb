//! One connection of ZeroMQ's REQ socket.
//!
//! This is our own implementation over [`zmtp`]. libzmq's REQ socket reconnects in the background
//! and holds requests meanwhile, which does not suit a caller that has to report how long a server
//! was unreachable.

use std::io::{Read, Write};

use bytes::{Bytes, BytesMut};

use crate::policy::remote::{
    CallError, LONGEST_ANSWER, Lifeline, PatientStream, PolicyServer, ServerConnection,
};
use wire::zmtp::{self, Heard, Reader, Socket};

/// Number of bytes that are read at a time.
const BLOCK: usize = 1 << 16;

/// A connection to a REP or ROUTER socket.
#[derive(Debug)]
pub struct Req {
    stream: PatientStream,
    reader: Reader,
    buffer: BytesMut,
}

impl Req {
    fn write(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        self.stream
            .write_all(bytes)
            .map_err(|err| self.stream.trouble(&err))
    }

    fn next(&mut self) -> Result<Heard, CallError> {
        let mut block = vec![0; BLOCK];
        loop {
            let heard = self.reader.next(&mut self.buffer);
            if let Some(heard) = heard.map_err(|err| {
                CallError::Wrong(format!("it does not speak ZeroMQ for policies: {err}"))
            })? {
                return Ok(heard);
            }
            match self
                .stream
                .read(&mut block)
                .map_err(|err| self.stream.trouble(&err))?
            {
                0 => return Err(CallError::Away("it closed the connection".to_owned())),
                count => self.buffer.extend_from_slice(&block[..count]),
            }
        }
    }
}

impl ServerConnection for Req {
    fn open(server: &PolicyServer, lifeline: &Lifeline) -> Result<Self, CallError> {
        let stream = PatientStream::connect(server, lifeline)?;
        let mut req = Self {
            stream,
            reader: Reader::new(LONGEST_ANSWER),
            buffer: BytesMut::new(),
        };
        req.write(&zmtp::greeting())?;
        loop {
            match req.next()? {
                Heard::Greeting => req.write(&Socket::Req.ready())?,
                Heard::Command(name, properties) => {
                    let ready = Socket::Req.check_ready(&name, &properties);
                    return ready
                        .map(|()| req)
                        .map_err(|err| CallError::Wrong(format!("it is {err}")));
                }
                Heard::Request(_) => {
                    return Err(CallError::Wrong(
                        "it answers before it was asked".to_owned(),
                    ));
                }
            }
        }
    }

    fn send(&mut self, request: &Bytes) -> Result<(), CallError> {
        self.stream.renew();
        self.write(&zmtp::answer_head(&[], request.len()))?;
        self.write(request)
    }

    fn receive(&mut self) -> Result<Bytes, CallError> {
        self.stream.renew();
        loop {
            match self.next()? {
                // A PING starts with a time-to-live of two bytes, followed by the context that the
                // PONG has to repeat.
                Heard::Command(name, data) if name == "PING" => {
                    self.write(&zmtp::pong(data.get(2..).unwrap_or(&[])))?
                }
                Heard::Command(..) | Heard::Greeting => {}
                Heard::Request(answer) => match &answer.body[..] {
                    [only] => return Ok(only.clone()),
                    parts => {
                        return Err(CallError::Wrong(format!(
                            "an answer of {} parts, expected 1",
                            parts.len()
                        )));
                    }
                },
            }
        }
    }
}
