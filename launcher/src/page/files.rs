//! Films, pictures, logs and hang reports, as a browser gets them: whole, or a range of bytes.
//!
//! A path comes from a journal, or is made of numbers. A journal may come from somebody else, so the
//! file has to be a regular one of a known kind, and in a folder of the run after all symbolic links
//! have been followed.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::task::spawn_blocking;

use crate::page::http::{Body, TEXT, not_found};
use crate::page::state::NamedFiles;

/// Bytes that are read and sent at once.
const CHUNK: u64 = 256 << 10;

/// A file that may be sent.
#[derive(Debug)]
pub(super) struct SentFile {
    file: File,
    /// Bytes of the file when it was opened; a film grows.
    bytes: u64,
    /// MIME type.
    kind: &'static str,
}

impl SentFile {
    /// Opens a file that a journal names; `None` if none does, or if it is not what it should be.
    pub(super) fn named(files: &NamedFiles, folder: &Path, name: &str) -> Option<Self> {
        // Links of the page to files elsewhere begin with the slash of their path.
        let name = [name.to_owned(), format!("/{name}")]
            .into_iter()
            .find(|name| files.names.contains(name))?;
        let kind = kind(&name)?;
        let path = folder.join(&name).canonicalize().ok()?;
        let is_inside =
            |root: &PathBuf| root.canonicalize().is_ok_and(|root| path.starts_with(root));
        files.roots.iter().any(is_inside).then_some(())?;
        Self::open(&path, kind)
    }

    /// Opens a file whose path was made of numbers.
    pub(super) fn open(path: &Path, kind: &'static str) -> Option<Self> {
        let file = jobs::files::open(path).ok()?;
        let bytes = file.metadata().ok()?.len();
        Some(Self { file, bytes, kind })
    }

    /// Reads the next bytes of a range.
    fn read(&self, range: &Range<u64>) -> io::Result<Bytes> {
        let mut bytes = vec![0; CHUNK.min(range.end.saturating_sub(range.start)) as usize];
        let filled = self.file.read_at(&mut bytes, range.start)?;
        if filled == 0 {
            // It has become shorter.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(filled);
        Ok(bytes.into())
    }
}

/// Sends a file, or the part of it that the header `Range` asks for.
pub(super) async fn send(
    range: Option<&str>,
    open: impl FnOnce() -> Option<SentFile> + Send + 'static,
) -> Response<Body> {
    let Ok(Some(file)) = spawn_blocking(open).await else {
        return not_found();
    };
    let (bytes, kind) = (file.bytes, file.kind);
    let (status, range, place) = match Asked::of(range, bytes) {
        Asked::Whole => (StatusCode::OK, 0..bytes, None),
        Asked::Part(range) => {
            let place = format!("bytes {}-{}/{bytes}", range.start, range.end - 1);
            (StatusCode::PARTIAL_CONTENT, range, Some(place))
        }
        Asked::Outside => {
            let place = format!("bytes */{bytes}");
            (StatusCode::RANGE_NOT_SATISFIABLE, 0..0, Some(place))
        }
    };
    let length = range.end - range.start;
    let mut response = Response::new(chunks(file, range));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(place) = place.and_then(|place| HeaderValue::try_from(place).ok()) {
        headers.insert(header::CONTENT_RANGE, place);
    }
    response
}

/// Reads a file piece by piece, as the connection takes it.
fn chunks(file: SentFile, range: Range<u64>) -> Body {
    let chunks = unfold((Arc::new(file), range), |(file, range)| async move {
        if range.is_empty() {
            return None;
        }
        let (task_file, from) = (Arc::clone(&file), range.clone());
        let read = spawn_blocking(move || task_file.read(&from)).await.ok()?;
        let rest = match &read {
            Ok(bytes) => range.start + bytes.len() as u64..range.end,
            Err(_) => 0..0,
        };
        Some((read.map(Frame::data), (file, rest)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Returns the type of a film or log.
fn kind(name: &str) -> Option<&'static str> {
    match Path::new(name).extension()?.to_str()? {
        "mp4" => Some("video/mp4"),
        "log" => Some(TEXT),
        _ => None,
    }
}

/// Returns the first characters of a text file.
pub(super) fn beginning(path: &Path, chars: usize) -> io::Result<String> {
    let file = jobs::files::open(path)?;
    let mut bytes = Vec::new();
    file.take(4 * chars as u64).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}\n…", &text[..end]),
        None => text.into_owned(),
    })
}

/// The part of a file that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// All of it.
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// Bytes that it does not have.
    Outside,
}

impl Asked {
    /// Reads the header `Range` of a request for a file of so many bytes. What is not a single range
    /// of bytes is ignored, as RFC 9110 asks.
    fn of(range: Option<&str>, bytes: u64) -> Self {
        let Some(range) = range.and_then(|range| range.trim().strip_prefix("bytes=")) else {
            return Self::Whole;
        };
        let Some((first, last)) = range.split_once('-') else {
            return Self::Whole;
        };
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let part = match (number(first), number(last)) {
            (Some(first), None) if last.trim().is_empty() => first..bytes,
            (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(bytes),
            (None, Some(last)) if first.trim().is_empty() => bytes.saturating_sub(last)..bytes,
            _ => return Self::Whole,
        };
        match part.is_empty() {
            true => Self::Outside,
            false => Self::Part(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_range_is_read_as_browsers_write_it() {
        for (range, asked) in [
            ("bytes=0-", Asked::Part(0..100)),
            ("bytes=10-19", Asked::Part(10..20)),
            ("bytes=90-500", Asked::Part(90..100)),
            ("bytes=-5", Asked::Part(95..100)),
            ("bytes=-500", Asked::Part(0..100)),
            ("bytes=100-", Asked::Outside),
            (
                "bytes=18446744073709551615-18446744073709551615",
                Asked::Outside,
            ),
            ("bytes=-0", Asked::Outside),
            ("bytes=9-3", Asked::Whole),
            ("bytes=0-1,5-6", Asked::Whole),
            ("bytes=", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("lines=1-2", Asked::Whole),
        ] {
            assert_eq!(Asked::of(Some(range), 100), asked, "{range}");
        }
        assert_eq!(Asked::of(None, 100), Asked::Whole);
        assert_eq!(Asked::of(Some("bytes=0-"), 0), Asked::Outside);
    }

    /// A run folder with a film, a plan, a link out of it, and a film beside it.
    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::create_dir_all(run.join("reach")).unwrap();
        for file in ["run/reach/a.mp4", "run/plan.json", "beside.mp4", "secret"] {
            std::fs::write(dir.path().join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("../secret", run.join("link.mp4")).unwrap();
        std::os::unix::fs::symlink("reach/a.mp4", run.join("inner.mp4")).unwrap();
        dir
    }

    #[test]
    fn only_films_that_a_journal_names_and_that_are_in_the_folder_are_sent() {
        let dir = folder();
        let run = dir.path().join("run");
        let beside = dir.path().join("beside.mp4");
        let names = [
            "reach/a.mp4",
            "inner.mp4",
            "link.mp4",
            "../beside.mp4",
            "plan.json",
            "reach",
            "missing.mp4",
            beside.to_str().unwrap(),
        ];
        let files = NamedFiles {
            names: names.map(str::to_owned).into(),
            roots: vec![run.clone()],
        };
        let sent = |files: &NamedFiles, name: &str| SentFile::named(files, &run, name).is_some();
        let found: Vec<_> = names
            .into_iter()
            .filter(|name| sent(&files, name))
            .collect();
        assert_eq!(found, ["reach/a.mp4", "inner.mp4"]);
        let unnamed = NamedFiles {
            names: BTreeSet::new(),
            ..files
        };
        assert!(!sent(&unnamed, "reach/a.mp4"));
        // A job may name another folder for its films.
        let elsewhere = NamedFiles {
            names: [beside.to_str().unwrap().to_owned()].into(),
            roots: vec![dir.path().to_owned()],
        };
        assert!(sent(
            &elsewhere,
            beside.to_str().unwrap().trim_start_matches('/')
        ));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hang_1.txt");
        std::fs::write(&path, "ärger").unwrap();
        assert_eq!(beginning(&path, 2).unwrap(), "är\n…");
        assert_eq!(beginning(&path, 99).unwrap(), "ärger");
    }
}
