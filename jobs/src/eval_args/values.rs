//! The types of option values.

use std::fmt::{Display, Formatter};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::journal::{Claim, Question};
use crate::refusal::Refusal;

/// Format of messages on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// Which episodes a dataset has: Isaac Lab's `DatasetExportMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportMode {
    /// All episodes.
    #[default]
    All,
    /// Only episodes that succeeded.
    Succeeded,
    /// Failed episodes in a separate file.
    Separate,
    /// No datasets.
    None,
}

/// When a run ends before its last episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StopWhen {
    /// As soon as a loss of the margin against the reference is excluded or shown.
    Decided,
    /// As soon as it is known whether the rates differ by less than the margin.
    Reproduced,
    /// Never: all episodes run.
    End,
}

impl StopWhen {
    /// Returns the question that has to be decided.
    pub fn question(self) -> Option<Question> {
        match self {
            Self::Decided => Some(Question::Regression),
            Self::Reproduced => Some(Question::Reproduction),
            Self::End => None,
        }
    }
}

/// Parses percentage points, and returns them as a difference of rates.
pub(super) fn points(text: &str) -> Result<f64, Refusal> {
    match text.parse::<f64>() {
        Ok(points) if points > 0.0 && points < 100.0 => Ok(points / 100.0),
        _ => Err(Refusal::new("expected a number above 0 and below 100")),
    }
}

/// Parses a probability of error.
pub(super) fn level(text: &str) -> Result<f64, Refusal> {
    match text.parse() {
        Ok(level) if level > 0.0 && level <= 0.5 => Ok(level),
        _ => Err(Refusal::new("expected a number above 0 and up to 0.5")),
    }
}

/// What a sequential test compares a run with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// A run folder, report or certificate.
    Run(PathBuf),
    /// A published rate.
    Claim(Claim),
}

impl FromStr for Against {
    type Err = Refusal;

    /// Two counts are a claim; `./462/500` is a folder.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let is_count = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        match text.split_once('/') {
            Some((solved, episodes)) if is_count(solved) && is_count(episodes) => {
                text.parse().map(Self::Claim)
            }
            _ => Ok(Self::Run(text.into())),
        }
    }
}

impl Display for Against {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(path) => path.display().fmt(f),
            Self::Claim(claim) => claim.fmt(f),
        }
    }
}

/// Size of an X display, written as `WIDTHxHEIGHTxDEPTH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Screen {
    /// Width in pixels, 16 to 16384.
    pub width: u32,
    /// Height in pixels, 16 to 16384.
    pub height: u32,
    /// Bits per pixel: 8, 16 or 24.
    pub depth: u32,
}

impl FromStr for Screen {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let numbers: Vec<Option<u32>> = text.split('x').map(|number| number.parse().ok()).collect();
        match numbers[..] {
            [
                Some(width @ 16..=16384),
                Some(height @ 16..=16384),
                Some(depth @ (8 | 16 | 24)),
            ] => Ok(Self {
                width,
                height,
                depth,
            }),
            _ => Err(Refusal::new(format_args!(
                "`{text}` is not a screen: expected WIDTHxHEIGHTxDEPTH, for example 1024x768x24"
            ))),
        }
    }
}

impl Display for Screen {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.width, self.height, self.depth)
    }
}

/// Parses a port, alone or after an address or host name. Of several addresses of a name, an IPv4
/// address is chosen, because every client can reach it.
pub(super) fn listener(text: &str) -> Result<SocketAddr, Refusal> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let Ok(port @ 1..) = port.parse::<u16>() else {
        let wanted = "expected PORT or HOST:PORT, for example 0.0.0.0:8123";
        return Err(Refusal::new(wanted));
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found = (host, port).to_socket_addrs().map_err(|err| {
        Refusal::new(format_args!(
            "`{host}` is not an address and cannot be resolved: {err}"
        ))
    })?;
    let found: Vec<_> = found.collect();
    let v4 = found.iter().find(|address| address.is_ipv4());
    let chosen = v4.or(found.first()).copied();
    chosen.ok_or_else(|| Refusal::new(format_args!("the name `{host}` has no address")))
}
