//! Checks `suite` of a job: which protocol of which benchmark suite it follows.

use crate::job::Suite;
use crate::printable::printable_line;

/// Maximum length of a name in bytes.
const MAX_NAME: usize = 100;

/// Maximum number of overridden fields; a job has fewer.
const MAX_OVERRIDES: usize = 64;

/// Checks that names can be shown in tables, and that there are few of them.
///
/// # Errors
/// Returns the reason why a suite is refused.
pub(super) fn check(suite: &Suite) -> Result<(), String> {
    let names = [&suite.name, &suite.protocol].into_iter();
    for name in names.chain(&suite.overrides) {
        if name.is_empty() || name.len() > MAX_NAME || printable_line(name) != *name {
            return Err(format!(
                "found `{}`, expected 1 to {MAX_NAME} printable bytes",
                name.escape_debug()
            ));
        }
    }
    match suite.overrides.len() {
        count if count > MAX_OVERRIDES => Err(format!(
            "found {count} overrides, expected at most {MAX_OVERRIDES}"
        )),
        _ => Ok(()),
    }
}
