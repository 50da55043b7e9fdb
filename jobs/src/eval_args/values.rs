//! The types of option values.

use std::fmt::{Display, Formatter};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::journal::Question;
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

/// Size of one camera's image in a video, written as `HEIGHTxWIDTH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoSize {
    /// Height in pixels, 16 to 4096.
    pub height: u32,
    /// Width in pixels, 16 to 4096.
    pub width: u32,
}

impl FromStr for VideoSize {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let sides = text
            .split_once('x')
            .map(|(height, width)| (height.parse(), width.parse()));
        match sides {
            Some((Ok(height @ 16..=4096), Ok(width @ 16..=4096))) => Ok(Self { height, width }),
            _ => Err(Refusal::new(format_args!(
                "`{text}` is not a size: expected HEIGHTxWIDTH with 16 to 4096, for example 224x224"
            ))),
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

/// Parses an IP address or resolves a host name. Of several addresses, an IPv4 address is chosen,
/// because every client can reach it.
pub(super) fn address(text: &str) -> Result<IpAddr, Refusal> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let refused = |err| format!("it is not an address and cannot be resolved: {err}");
    let found = (text, 0).to_socket_addrs();
    let found: Vec<_> = found.map_err(|err| Refusal::new(refused(err)))?.collect();
    let v4 = found.iter().find(|address| address.is_ipv4());
    let chosen = v4.or(found.first()).map(SocketAddr::ip);
    chosen.ok_or_else(|| Refusal::new("it is not an address, and the name has none"))
}
