//! What a Python process says, and why nothing more is to be expected of it.

/// A descriptor of a process that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The socket has a packet.
    Socket,
    /// The process has ended, or the PID of a forked one is there.
    Ended,
    /// The process has written output.
    Output,
}

/// The descriptors in the order in which they are watched.
pub const READY: [Ready; 3] = [Ready::Socket, Ready::Ended, Ready::Output];

/// What a process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It begins a stage of its start.
    Stage(String),
    /// What it is, as JSON.
    Hello(Vec<u8>),
    /// A note for the user.
    Note(String),
    /// The answer to a request, or a part of it.
    Answer {
        /// Number of the request.
        sequence: u32,
        /// Number of entries in the body.
        count: u16,
        /// Its contents.
        body: Vec<u8>,
    },
    /// A request failed; the process goes on.
    Failed {
        /// Number of the request.
        sequence: u32,
        /// Why it failed, with the line that raised.
        reason: String,
    },
}

/// Why nothing more is to be expected of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Who says it.
    pub cause: Cause,
    /// A clause about the process: "exited with code 3", "raised ValueError: …"; of a refusal, a
    /// sentence.
    pub text: String,
    /// What it was at.
    pub during: String,
    /// Its last lines of output.
    pub lines: Vec<String>,
    /// Its PID.
    pub pid: u32,
}

/// Who says why a process is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It says that another process would fail, too.
    Refused,
    /// It gives up, because of this copy if it names one.
    GaveUp(Option<u16>),
    /// This side: it exited, was silent, or sent nonsense.
    Seen,
}
