//! The types of option values.

use std::fmt::{Display, Formatter};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::journal::Question;

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

/// A number that is not in the range of its option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number above 0 and {end}")]
pub struct ShareError {
    end: &'static str,
}

/// Parses percentage points, and returns them as a difference of rates.
pub(super) fn points(text: &str) -> Result<f64, ShareError> {
    let points = text.parse::<f64>().ok();
    points
        .filter(|points| *points > 0.0 && *points < 100.0)
        .map(|points| points / 100.0)
        .ok_or(ShareError { end: "below 100" })
}

/// Parses a probability of error.
pub(super) fn level(text: &str) -> Result<f64, ShareError> {
    let level = text.parse::<f64>().ok();
    level
        .filter(|level| *level > 0.0 && *level <= 0.5)
        .ok_or(ShareError { end: "up to 0.5" })
}

/// Size of one camera's image in a video, written as `HEIGHTxWIDTH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoSize {
    /// Height in pixels, 16 to 4096.
    pub height: u32,
    /// Width in pixels, 16 to 4096.
    pub width: u32,
}

/// Why a text is no [`VideoSize`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a size: expected HEIGHTxWIDTH with 16 to 4096, for example 224x224")]
pub struct VideoSizeError {
    /// The text.
    pub text: String,
}

impl FromStr for VideoSize {
    type Err = VideoSizeError;

    fn from_str(text: &str) -> Result<Self, VideoSizeError> {
        let sides = text
            .split_once('x')
            .map(|(height, width)| (height.parse(), width.parse()));
        match sides {
            Some((Ok(height @ 16..=4096), Ok(width @ 16..=4096))) => Ok(Self { height, width }),
            _ => Err(VideoSizeError {
                text: text.to_owned(),
            }),
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

/// Why a text is no [`Screen`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a screen: expected WIDTHxHEIGHTxDEPTH, for example 1024x768x24")]
pub struct ScreenError {
    /// The text.
    pub text: String,
}

impl FromStr for Screen {
    type Err = ScreenError;

    fn from_str(text: &str) -> Result<Self, ScreenError> {
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
            _ => Err(ScreenError {
                text: text.to_owned(),
            }),
        }
    }
}

impl Display for Screen {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.width, self.height, self.depth)
    }
}

/// Why a text is no address to serve metrics on.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The text is neither an address nor a name that can be resolved.
    #[error("it is not an address and cannot be resolved: {err}")]
    Unresolved {
        /// The error of the resolver.
        err: std::io::Error,
    },
    /// The text is a name without an address.
    #[error("it is not an address, and the name has none")]
    NoneFound,
}

/// Parses an IP address or resolves a host name. Of several addresses, an IPv4 address is chosen,
/// because every client can reach it.
pub(super) fn address(text: &str) -> Result<IpAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found: Vec<_> = (text, 0)
        .to_socket_addrs()
        .map_err(|err| AddressError::Unresolved { err })?
        .collect();
    let chosen = found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first());
    chosen.map(SocketAddr::ip).ok_or(AddressError::NoneFound)
}
