//! What strangers send to a rank or to a policy server, and what they ship in a checkpoint.

use std::mem::discriminant;

use hostile::Target;
use runtime::wire;

#[test]
fn hostile_msgpack() {
    let words: &[&[u8]] = &[
        b"\x81",
        b"\x85",
        b"\xdc",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6",
        b"\xc7",
        b"nd",
        b"shape",
    ];
    Target::new("msgpack").dictionary(words).run(|input| {
        let message = wire::read(&input.to_vec().into());
        message.map(|_| ()).map_err(|err| discriminant(&err))
    });
}
