//! Lines for the user: each written whole, so that those of several ranks do not mix.
//!
//! Unlike `println!` they do not panic when nobody reads them any more (`| tee` after a Ctrl-C): the evaluation goes on,
//! and its results are in files.

use std::fmt::Display;
use std::io::{self, Write};

/// A line on stdout.
pub fn out(line: impl Display) {
    write(io::stdout().lock(), line);
}

/// A line on stderr.
pub fn err(line: impl Display) {
    write(io::stderr().lock(), line);
}

fn write(mut to: impl Write, line: impl Display) {
    // See above.
    let _ = to.write_all(format!("{line}\n").as_bytes()).and_then(|()| to.flush());
}
