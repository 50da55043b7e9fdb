//! `rrun leaderboard DIR…`: one page of the results of many certificates.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use jobs::count::counted;
use jobs::layout::write_whole;
use jobs::time::rfc3339;
use report::certificate::{Certificate, is_certificate};
use report::leaderboard::{self, Board, Entry, Signed};

use crate::tools::signature::{self, Signer};
use crate::tools::{ToolError, print_line};

/// Maximum depth of folders below a `DIR`.
const MAX_DEPTH: usize = 8;

/// Maximum number of files that are looked at; a `DIR` may come from a stranger.
const MAX_FILES: usize = 100_000;

/// Make a page of the results of many certificates, with intervals of ranks: leaderboard.html and
/// leaderboard.json.
///
/// Every certificate is checked as by `rrun verify`. Those that fail are listed with the reason, and
/// not ranked.
#[derive(Debug, clap::Args)]
pub(super) struct LeaderboardArgs {
    /// Certificates, or folders that contain certificates
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,

    /// Folder for the page
    #[arg(long, value_name = "DIR", default_value = "outputs/leaderboard")]
    output: PathBuf,

    /// Names of signers with their keys, as in ALLOWED SIGNERS of ssh-keygen; a certificate that is
    /// signed by another key is not ranked
    #[arg(long, value_name = "FILE")]
    allowed_signers: Option<PathBuf>,
}

/// The reason why there is no leaderboard.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeaderboardError {
    #[error("there is no certificate in {}", dirs.join(", "))]
    Empty { dirs: Vec<String> },
    #[error("`{}` has more than {MAX_FILES} files; name the folders with certificates", dir.display())]
    Many { dir: PathBuf },
    #[error("cannot read `{}`: {err}", path.display())]
    Read { path: PathBuf, err: io::Error },
    #[error("cannot write `{}`: {err}", path.display())]
    Write { path: PathBuf, err: io::Error },
}

pub(super) fn run(args: &LeaderboardArgs) -> Result<ExitCode, ToolError> {
    let mut files = Vec::new();
    if let Some(file) = &args.allowed_signers {
        signature::check_signers(file)?;
    }
    for dir in &args.dirs {
        collect(dir, &mut files)?;
    }
    if files.is_empty() {
        let dirs = args.dirs.iter().map(|dir| format!("`{}`", dir.display()));
        return Err(LeaderboardError::Empty {
            dirs: dirs.collect(),
        }
        .into());
    }
    let entries: Vec<_> = files
        .iter()
        .map(|file| entry(file, args))
        .collect::<io::Result<_>>()?;
    let board = Board::new(entries, rfc3339(SystemTime::now()));
    fs::create_dir_all(&args.output).map_err(|err| write_error(&args.output, err))?;
    let page = args.output.join("leaderboard.html");
    let json = args.output.join("leaderboard.json");
    let text = serde_json::to_vec_pretty(&board).map_err(|err| write_error(&json, err.into()))?;
    write_whole(&json, &text).map_err(|err| write_error(&json, err))?;
    let html = leaderboard::render(&board);
    write_whole(&page, html.as_bytes()).map_err(|err| write_error(&page, err))?;
    tell(&board, &page)?;
    Ok(match board.groups.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn write_error(path: &Path, err: io::Error) -> LeaderboardError {
    LeaderboardError::Write {
        path: path.to_owned(),
        err,
    }
}

/// Adds the certificates in a folder, or the file if it is one, in order of path.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), LeaderboardError> {
    // A file that the user names is one of the board, even if it turns out to be none.
    if dir.is_file() {
        files.push(dir.to_owned());
        return Ok(());
    }
    let (mut found, mut folders, mut seen) = (Vec::new(), vec![(dir.to_owned(), 0)], 0);
    while let Some((folder, depth)) = folders.pop() {
        let named = |err| LeaderboardError::Read {
            path: folder.clone(),
            err,
        };
        for entry in fs::read_dir(&folder).map_err(named)? {
            let entry = entry.map_err(named)?;
            seen += 1;
            if seen > MAX_FILES {
                let dir = dir.to_owned();
                return Err(LeaderboardError::Many { dir });
            }
            // Links are not followed: they may lead out of a stranger's folder, or around in it.
            let kind = entry.file_type().map_err(named)?;
            let path = entry.path();
            let is_json = path
                .extension()
                .is_some_and(|extension| extension == "json");
            if kind.is_dir() && depth < MAX_DEPTH {
                folders.push((path, depth + 1));
            } else if kind.is_file() && is_json && is_certificate(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    files.append(&mut found);
    Ok(())
}

fn entry(file: &Path, args: &LeaderboardArgs) -> io::Result<Entry> {
    let link = leaderboard::link(&args.output, file)?;
    let certificate = match Certificate::read(file) {
        Ok(certificate) => certificate,
        Err(err) => return Ok(Entry::refused(link, err.to_string())),
    };
    let signed = signature::check(&certificate, args.allowed_signers.as_deref());
    let signed = signed.map_err(|err| err.to_string());
    let signed = signed.map(|signer| signer.map(|Signer { key, name }| Signed { key, name }));
    Ok(Entry::new(link, certificate, signed))
}

fn tell(board: &Board, page: &Path) -> Result<(), ToolError> {
    let rows: usize = board.groups.iter().map(|group| group.rows.len()).sum();
    print_line(format_args!(
        "{} in {}",
        counted(rows, "result"),
        counted(board.groups.len(), "task set")
    ))?;
    for refusal in &board.refused {
        print_line(format_args!(
            "not ranked: `{}`: {}",
            refusal.file, refusal.reason
        ))?;
    }
    print_line(format_args!("page: {}", page.display()))?;
    Ok(())
}
