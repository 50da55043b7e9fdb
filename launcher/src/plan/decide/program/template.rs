//! Substitutes `${local_rank}` in arguments, as Python's `string.Template.safe_substitute` does for
//! one name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// Returns `text` with `$name` and `${name}` replaced by `value`, and `$$` by `$`. Any other dollar
/// is kept.
pub fn substitute(text: &OsStr, name: &str, value: &str) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.extend_from_slice(before);
        let (replacement, used) = match placeholder(after) {
            Placeholder::Dollar => ("$", 1),
            Placeholder::Name(found, used) if found == name.as_bytes() => (value, used),
            _ => ("$", 0),
        };
        out.extend_from_slice(replacement.as_bytes());
        rest = &after[used..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// The text after a dollar.
enum Placeholder<'a> {
    /// Another dollar.
    Dollar,
    /// A name, and its length in bytes with its braces.
    Name(&'a [u8], usize),
    /// Anything else.
    None,
}

fn placeholder(after: &[u8]) -> Placeholder<'_> {
    match after.first() {
        Some(b'$') => Placeholder::Dollar,
        Some(b'{') => match identifier(&after[1..]) {
            name if !name.is_empty() && after.get(name.len() + 1) == Some(&b'}') => {
                Placeholder::Name(name, name.len() + 2)
            }
            _ => Placeholder::None,
        },
        _ => match identifier(after) {
            [] => Placeholder::None,
            name => Placeholder::Name(name, name.len()),
        },
    }
}

/// Returns the ASCII identifier at the start of `bytes`.
fn identifier(bytes: &[u8]) -> &[u8] {
    if bytes.first().is_none_or(u8::is_ascii_digit) {
        return &[];
    }
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    &bytes[..bytes.iter().take_while(|byte| is_part(byte)).count()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_without_dollars_stays_and_no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let text = OsString::from_vec(bytes.clone());
            let filled = substitute(&text, "local_rank", "7");
            prop_assert!(bytes.contains(&b'$') || filled == text);
        }
    }
}
