//! What strangers send in files that the crate `jobs` reads.

use hostile::Target;
use jobs::journal;

#[test]
fn hostile_journal() {
    let words: &[&[u8]] = &[b"\"type\":\"episode\"", b"\"job_index\":", b"\"rank\":", b"\"episode\":", b"\n", b"{}"];
    Target::new("journal").dictionary(words).run(|input| {
        let contents = journal::parse(input);
        let kinds: Vec<_> = contents.lines.iter().map(std::mem::discriminant).collect();
        (kinds, contents.damaged.len(), contents.torn == 0)
    });
}
