//! Templates in the notation of Python's `string.Template`, as torchrun fills them in. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// Returns `text` with `$name` and `${name}` replaced by the `value` of the name, and `$$` by `$`,
/// as
/// `safe_substitute` does. Any other dollar, and a name without a value, are kept.
pub fn substitute(text: &OsStr, value: impl Fn(&[u8]) -> Option<String>) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.extend_from_slice(before);
        let filled = placeholder(after).and_then(|(name, used)| Some((value(name)?, used)));
        let (replacement, used) = match filled {
            Some((text, used)) => (text, used),
            None => ("$".to_owned(), usize::from(after.starts_with(b"$"))),
        };
        out.extend_from_slice(replacement.as_bytes());
        rest = &after[used..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// Returns the name after a dollar, and its length in bytes with its braces.
fn placeholder(after: &[u8]) -> Option<(&[u8], usize)> {
    let Some(inner) = after.strip_prefix(b"{") else {
        let name = identifier(after);
        return Some((name, name.len()));
    };
    let name = identifier(inner);
    let is_closed = inner.get(name.len()) == Some(&b'}');
    is_closed.then_some((name, name.len() + 2))
}

/// Returns the ASCII identifier at the start of `bytes`, which may be empty.
fn identifier(bytes: &[u8]) -> &[u8] {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    &bytes[..bytes.iter().take_while(|byte| is_part(byte)).count()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(text: &OsStr) -> OsString {
        substitute(text, |name| (name == b"rank").then(|| "7".to_owned()))
    }

    #[test]
    fn known_names_are_filled_in_and_everything_else_stays() {
        let text = filled("<$rank|${rank}|$rank_|${nope}|$nope|$1|$$|${rank|${|$> ".as_ref());
        assert_eq!(text, "<7|7|$rank_|${nope}|$nope|$1|$|${rank|${|$> ");
    }

    proptest! {
        #[test]
        fn text_without_dollars_stays_and_no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..32),
        ) {
            let text = OsString::from_vec(bytes.clone());
            prop_assert!(bytes.contains(&b'$') || filled(&text) == text);
        }
    }
}
