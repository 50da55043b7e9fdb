//! Turns paths of a run into links of its page, which is in the run folder.

/// Returns a path of a journal, relative to the run folder or absolute, as a reference that can
/// only lead to a file: it has no scheme, no host, and nothing that begins a query or a fragment.
pub(crate) fn href(path: &str) -> String {
    let start = if path.starts_with('/') { "/" } else { "./" };
    let mut text = String::from(start);
    for byte in path.trim_start_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Returns the text after the last slash.
pub(crate) fn name(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(path)
}

/// Returns at most `most` characters; the rest is replaced by `…`.
pub(crate) fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_file_and_nowhere_else() {
        for (path, link) in [
            ("reach/video_0.mp4", "./reach/video_0.mp4"),
            ("a b#1?%/é.mp4", "./a%20b%231%3F%25/%C3%A9.mp4"),
            (
                "javascript:alert(1)/x.mp4",
                "./javascript%3Aalert%281%29/x.mp4",
            ),
            ("\"><script>", "./%22%3E%3Cscript%3E"),
            ("/data/x.mp4", "/data/x.mp4"),
            ("//host/x.mp4", "/host/x.mp4"),
            ("\\\\host\\x", "./%5C%5Chost%5Cx"),
        ] {
            assert_eq!(href(path), link);
        }
    }

    #[test]
    fn long_texts_are_clipped_between_characters() {
        assert_eq!(clip("über", 4), "über");
        assert_eq!(clip("über allem", 5), "über…");
        assert_eq!(name("a/b/c.py:make"), "c.py:make");
    }
}
