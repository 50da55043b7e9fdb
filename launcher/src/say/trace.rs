//! Diagnostics for developers through `tracing`, off unless `RRUN_LOG` or `RUST_LOG` enables them
//! (`RRUN_LOG=debug`).

use std::fmt;
use std::io;

use jobs::printable::printable_json;
use jobs::say::object;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::cli::environment::Environment;
use crate::say::Style;

/// The variable of this program, and the common one; the first that is set counts.
const VARIABLES: [&str; 2] = ["RRUN_LOG", "RUST_LOG"];

/// Enables tracing to stderr, in the style of all other messages.
pub fn start(env: &Environment, style: Style) {
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives(env)))
        .with_writer(io::stderr);
    match style.json {
        true => log.event_format(Objects).init(),
        false => log.init(),
    }
}

/// Returns the filter directives, as `launcher::store=debug,warn`.
fn directives(env: &Environment) -> String {
    let found = VARIABLES.iter().find_map(|name| env.get(name));
    found
        .map(|directives| directives.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Formats each event as one JSON object.
struct Objects;

impl<S, N> FormatEvent<S, N> for Objects
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let (
            metadata,
            EventFields {
                message,
                mut others,
            },
        ) = (event.metadata(), fields);
        others.insert("target".to_owned(), metadata.target().into());
        let level = metadata.level().as_str().to_lowercase();
        // The level of a warning has the same name as in all other messages.
        let level = if level == "warn" { "warning" } else { &level };
        writeln!(
            writer,
            "{}",
            printable_json(&object(level, &message, others).to_string())
        )
    }
}

#[derive(Default)]
struct EventFields {
    message: String,
    others: Map<String, Value>,
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => drop(
                self.others
                    .insert(name.to_owned(), format!("{value:?}").into()),
            ),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_variable_goes_before_that_of_all() {
        let of = |variables: &[(&str, &str)]| {
            directives(
                &variables
                    .iter()
                    .fold(Environment::default(), |env, (name, value)| {
                        env.with(name, value)
                    }),
            )
        };
        assert_eq!(of(&[("RUST_LOG", "info")]), "info");
        assert_eq!(of(&[("RUST_LOG", "info"), ("RRUN_LOG", "debug")]), "debug");
        assert_eq!(of(&[]), "");
    }
}
