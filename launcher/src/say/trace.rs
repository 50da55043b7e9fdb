//! Diagnostics for developers through `tracing`, off unless `RRUN_LOG` or `RUST_LOG` enables them
//! (`RRUN_LOG=debug`).

use std::io::{self, Write};

use jobs::printable::printable_json;
use jobs::say::object;
use serde_json::json;
use tracing::Metadata;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::Environment;
use crate::say::{Style, print};

/// The variable of this program, and the common one; the first that is set counts.
const VARIABLES: [&str; 2] = ["RRUN_LOG", "RUST_LOG"];

/// Enables tracing to stderr, in the style of all other messages.
pub fn start(env: &Environment, style: Style) {
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(directives(env)));
    if style.json {
        let log = log.without_time().with_level(false).with_target(false);
        log.with_ansi(false).with_writer(Objects).init();
    } else {
        log.with_writer(io::stderr).init();
    }
}

/// Returns the filter directives, as `launcher::store=debug,warn`.
fn directives(env: &Environment) -> String {
    let found = VARIABLES.iter().find_map(|name| env.get(name));
    found
        .map(|directives| directives.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Writes each event as one JSON object, whose message is the event's with its fields.
struct Objects;

struct Line {
    level: String,
    target: String,
}

impl MakeWriter<'_> for Objects {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line {
            level: "debug".to_owned(),
            target: "rrun".to_owned(),
        }
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> Line {
        let level = event.level().as_str().to_lowercase();
        Line {
            // As in all other messages.
            level: level.replace("warn", "warning"),
            target: event.target().to_owned(),
        }
    }
}

impl Write for Line {
    /// Takes an event, which comes whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let message = String::from_utf8_lossy(event);
        let line = object(
            &self.level,
            message.trim_end(),
            json!({"target": self.target}),
        );
        print(Some(format!("{}\n", printable_json(&line.to_string()))));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::environment;

    #[test]
    fn our_own_variable_goes_before_that_of_all() {
        let of = |variables: &[_]| directives(&environment(variables.iter().copied()));
        assert_eq!(of(&[("RUST_LOG", "info")]), "info");
        assert_eq!(of(&[("RUST_LOG", "info"), ("RRUN_LOG", "debug")]), "debug");
        assert_eq!(of(&[]), "");
    }
}
