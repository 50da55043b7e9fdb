//! Tests with captured bytes and with arbitrary ones.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn bytes(request: &StoreRequest) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(&mut out);
    out
}

fn refused(text: &str) -> Result<Parsed<'static>, StoreRefusal> {
    Err(StoreRefusal::new(text))
}

/// The captured bytes are in `spec/launcher.md` section 6.3, from torch 2.11, with the spaces and
/// quotes used there.
#[test]
fn captured_requests_are_read_and_written() {
    let table: [(&[u8], StoreRequest); 10] = [
        (b"\x00\xce\xf7\x85\x3c", StoreRequest::Validate),
        (b"\x0d\x83\x2e\0\0", StoreRequest::Ping { nonce: 0x2e83 }),
        (b"\x01\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v", StoreRequest::Set { key: b"/k", value: b"v" }),
        (b"\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k", StoreRequest::Wait { keys: vec![b"/k"] }),
        (b"\x04\x04\0\0\0\0\0\0\0/cnt\xfe\xff\xff\xff\xff\xff\xff\xff", StoreRequest::Add { key: b"/cnt", delta: -2 }),
        (
            b"\x02\x03\0\0\0\0\0\0\0/cs\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0first",
            StoreRequest::CompareSet { key: b"/cs", expected: b"", desired: b"first" },
        ),
        (
            b"\x05\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k\x06\0\0\0\0\0\0\0/nokey",
            StoreRequest::Check { keys: vec![b"/k", b"/nokey"] },
        ),
        (b"\x0c", StoreRequest::CancelWait),
        (
            b"\x0b\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0/m1\x02\0\0\0\0\0\0\0v1\x03\0\0\0\0\0\0\0/m2\x03\0\0\0\0\0\0\0v22",
            StoreRequest::MultiSet { pairs: vec![(b"/m1", b"v1"), (b"/m2", b"v22")] },
        ),
        (b"\x0e\x02\0\0\0\0\0\0\0/q\x01\0\0\0\0\0\0\0a", StoreRequest::QueuePush { key: b"/q", value: b"a" }),
    ];
    for (wire, request) in table {
        assert_eq!(bytes(&request), wire);
        assert_eq!(parse(wire), Ok(Parsed::Request(request, wire.len())));
    }
}

#[test]
fn lengths_are_refused_when_they_arrive() {
    let (key, value, keys) = (&b"\x03"[..], &b"\x01\0\0\0\0\0\0\0\0"[..], &b"\x06"[..]);
    for (start, length, wanted) in [
        (
            key,
            8193,
            refused("8193 bytes of a key, expected at most 8192"),
        ),
        (
            key,
            u64::MAX,
            refused("18446744073709551615 bytes of a key, expected at most 8192"),
        ),
        (key, 8192, Ok(Parsed::Needs(9 + 8192))),
        (
            value,
            8_388_609,
            refused("8388609 bytes of a value, expected at most 8388608"),
        ),
        (value, 8_388_608, Ok(Parsed::Needs(17 + 8_388_608))),
        (
            keys,
            131_073,
            refused("131073 keys in one request, expected at most 131072"),
        ),
        (keys, 131_072, Ok(Parsed::Needs(9 + 8 * 131_072))),
    ] {
        assert_eq!(parse(&[start, &length.to_le_bytes()].concat()), wanted);
    }
}

#[test]
fn a_request_longer_than_any_buffer_is_refused_before_it_arrives() {
    let value = vec![0; MAX_VALUE];
    let mut wire = vec![MULTI_SET];
    wire.extend(20_u64.to_le_bytes());
    for _ in 0..15 {
        FieldWriter(&mut wire).text(b"k").text(&value);
    }
    assert!(matches!(parse(&wire), Ok(Parsed::Needs(_))));
    FieldWriter(&mut wire).text(b"k").count(MAX_VALUE);
    let text = parse(&wire).unwrap_err().to_string();
    assert!(text.starts_with("a request of 134"), "{text}");
}

#[test]
fn other_protocols_are_refused() {
    assert_eq!(
        parse(b"GET / HTTP/1.0\r\n\r\n"),
        refused("unknown operation 0x47")
    );
    assert_eq!(
        parse(b"\x00\xde\xad\xbe\xef"),
        refused("the magic number is 0xefbeadde, expected 0x3c85f7ce")
    );
    assert_eq!(parse(b"\x13"), refused("unknown operation 0x13"));
}

/// Owned fields for any request.
#[derive(Clone, Debug)]
pub(crate) struct Any {
    pub op: u8,
    pub texts: Vec<Vec<u8>>,
    pub number: i64,
}

impl Any {
    pub fn request(&self) -> StoreRequest<'_> {
        let at = |i: usize| self.texts.get(i).map_or(&b""[..], Vec::as_slice);
        let (key, value) = (at(0), at(1));
        let keys = self.texts.iter().map(Vec::as_slice).collect();
        match self.op {
            VALIDATE => StoreRequest::Validate,
            SET => StoreRequest::Set { key, value },
            COMPARE_SET => StoreRequest::CompareSet {
                key,
                expected: value,
                desired: at(2),
            },
            GET => StoreRequest::Get { key },
            ADD => StoreRequest::Add {
                key,
                delta: self.number,
            },
            CHECK => StoreRequest::Check { keys },
            WAIT => StoreRequest::Wait { keys },
            NUM_KEYS => StoreRequest::NumKeys,
            DELETE => StoreRequest::Delete { key },
            APPEND => StoreRequest::Append { key, value },
            MULTI_GET => StoreRequest::MultiGet { keys },
            MULTI_SET => StoreRequest::MultiSet {
                pairs: self.texts.iter().map(|t| (t.as_slice(), value)).collect(),
            },
            CANCEL_WAIT => StoreRequest::CancelWait,
            PING => StoreRequest::Ping {
                nonce: self.number as u32,
            },
            QUEUE_PUSH => StoreRequest::QueuePush { key, value },
            QUEUE_POP => StoreRequest::QueuePop { key },
            QUEUE_LEN => StoreRequest::QueueLen { key },
            LIST_KEYS => StoreRequest::ListKeys,
            _ => StoreRequest::Barrier {
                key,
                world: self.number,
            },
        }
    }
}

prop_compose! {
    fn any_request()(op in VALIDATE..=BARRIER, texts in vec(vec(any::<u8>(), 0..12), 0..5), number: i64) -> Any {
        Any { op, texts, number }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(any in any_request(), rest in vec(any::<u8>(), 0..9)) {
        let wire = bytes(&any.request());
        let read = parse(&wire);
        prop_assert_eq!(read, Ok(Parsed::Request(any.request(), wire.len())));
        let more = [wire.clone(), rest].concat();
        prop_assert_eq!(parse(&more), Ok(Parsed::Request(any.request(), wire.len())));
    }

    #[test]
    fn a_split_anywhere_asks_for_more_and_never_for_too_much(any in any_request()) {
        let wire = bytes(&any.request());
        for end in 0..wire.len() {
            let Ok(Parsed::Needs(needed)) = parse(&wire[..end]) else { panic!("a request at {end} of {}", wire.len()) };
            prop_assert!(end < needed && needed <= wire.len());
        }
    }
}
