//! The named pipe of the file timer.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;
use tokio::net::unix::pipe;

use crate::hang::timer::lines::{Cut, Lines};

/// Bytes that are read at once, the size of a pipe on Linux.
const AT_ONCE: usize = 64 << 10;

/// The named pipe into which ranks write lines. It goes when it is dropped.
#[derive(Debug)]
pub struct TimerPipe {
    path: PathBuf,
    receiver: pipe::Receiver,
    lines: Lines,
    /// The folder of a pipe whose path nobody has chosen.
    _folder: Option<TempDir>,
}

impl TimerPipe {
    /// Creates the pipe with mode 0600, at `path` or in a new folder in `TMPDIR`. A pipe that is at
    /// `path` already, because a launcher was killed, is replaced.
    ///
    /// # Errors
    /// Returns the path and the system's error, `AlreadyExists` if anything else is at `path`.
    pub fn create(path: Option<&Path>) -> Result<TimerPipe, (PathBuf, io::Error)> {
        let folder = match path {
            Some(_) => None,
            None => Some(folder().map_err(|err| (std::env::temp_dir(), err))?),
        };
        let path = match (path, &folder) {
            (None, Some(folder)) => folder.path().join("timer"),
            (path, _) => path.map_or_else(PathBuf::new, Path::to_owned),
        };
        match open(&path) {
            Ok(receiver) => Ok(TimerPipe {
                path,
                receiver,
                lines: Lines::default(),
                _folder: folder,
            }),
            Err(err) => Err((path, err)),
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for lines. Cancel-safe.
    ///
    /// # Errors
    /// Returns the system's error if the pipe cannot be read.
    pub async fn recv(&mut self) -> io::Result<Vec<Cut>> {
        let mut bytes = vec![0; AT_ONCE];
        loop {
            self.receiver.readable().await?;
            match self.receiver.try_read(&mut bytes) {
                Ok(read) => return Ok(self.lines.push(&bytes[..read])),
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
                Err(err) => return Err(err),
            }
        }
    }
}

impl Drop for TimerPipe {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

fn folder() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("rrun_timer_").tempdir()
}

fn open(path: &Path) -> io::Result<pipe::Receiver> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_fifo() => fs::remove_file(path)?,
        Ok(_) => {
            let why = "it exists and is not a named pipe";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        Err(err) => return Err(err),
    }
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // Open for writing too, so that the pipe does not end when a rank closes it.
    pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn in_runtime<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(work)
    }

    #[test]
    fn lines_of_several_writers_arrive_and_the_pipe_goes() {
        in_runtime(async {
            let mut pipe = TimerPipe::create(None).expect("made");
            let path = pipe.path().to_owned();
            for text in ["one\n", "two\n"] {
                let mut writer = fs::File::options().write(true).open(&path).expect("open");
                writer.write_all(text.as_bytes()).expect("written");
                drop(writer);
                let line = text.trim_end().as_bytes().to_vec();
                assert_eq!(pipe.recv().await.expect("read"), [Cut::Line(line)]);
            }
            drop(pipe);
            assert!(!path.exists() && !path.parent().expect("a folder").exists());
        });
    }

    #[test]
    fn a_pipe_that_was_left_is_replaced_and_a_file_is_not() {
        in_runtime(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("timer");
            mkfifo(&path, Mode::S_IRUSR).expect("made");
            drop(TimerPipe::create(Some(&path)).expect("replaced"));
            assert!(!path.exists());
            fs::write(&path, "results").expect("written");
            let (_, err) = TimerPipe::create(Some(&path)).expect_err("a file");
            assert_eq!(err.to_string(), "it exists and is not a named pipe");
            assert_eq!(fs::read_to_string(&path).expect("it stays"), "results");
        });
    }
}
