//! The encoding of the rendezvous state in the store, such that a torchrun agent fails with a
//! reason instead of waiting.
//!
//! Torchrun keeps its own state under the same key: base64 of a Python pickle. Ours is base64 of a
//! pickle too, but one that Python cannot load: it calls `int` on a text that explains the
//! conflict, and Python's error repeats that text. The state follows behind it as JSON.
//!
//! ```text
//! PROTO 4 · "builtins" · "int" · STACK_GLOBAL · "rrun keeps …" · TUPLE1 · REDUCE · STOP · {JSON…}
//! ```

use anyhow::bail;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::rendezvous::state::RendezvousState;

/// The text that Python's error repeats, cut after 200 characters: `ValueError: invalid literal for
/// int() with base 10: 'rrun keeps …'`.
const NOTICE: &str = "rrun keeps this rendezvous and torchrun cannot take part in it: start this node with rrun too, or \
                      give the launch another --rdzv-id";

/// The value that a torchrun agent writes before there is a state
/// (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py, torch 2.11).
const SENTINEL: &[u8] = b"Y2FuaW1hZGFt";

/// The meaning of a value under the key of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A state of rrun.
    State(Box<RendezvousState>),
    /// A state of torchrun.
    Torchrun,
    /// Neither of them.
    Unknown,
}

/// Encodes a state.
pub fn seal(state: &RendezvousState) -> Vec<u8> {
    let json = serde_json::to_vec(state).expect("a state is names, numbers and lists");
    STANDARD.encode([&head(), json.as_slice()].concat()).into()
}

/// Decodes a value.
pub fn open(text: &[u8]) -> Content {
    if text == SENTINEL {
        return Content::Torchrun;
    }
    let Ok(bytes) = STANDARD.decode(text) else {
        return Content::Unknown;
    };
    let json = bytes.strip_prefix(head().as_slice());
    match json.map(serde_json::from_slice::<Box<RendezvousState>>) {
        Some(Ok(state)) if state.is_plausible() => Content::State(state),
        Some(_) => Content::Unknown,
        None if bytes.starts_with(b"\x80") => Content::Torchrun,
        None => Content::Unknown,
    }
}

/// Reads the state that the store has under `key`.
///
/// # Errors
/// Returns an error if `text` is a state of torchrun or something else.
pub fn read(key: &str, text: &[u8]) -> anyhow::Result<RendezvousState> {
    match open(text) {
        Content::State(state) => Ok(*state),
        Content::Torchrun => bail!(
            "torchrun keeps the rendezvous `{key}` and rrun cannot take part in it: start all its \
             nodes with rrun, or give this launch another --rdzv-id"
        ),
        Content::Unknown => {
            bail!("the value of `{key}` in the store is not a rendezvous; choose another --rdzv-id")
        }
    }
}

/// Returns a pickle that calls `int(NOTICE)`. Python's pickletools.py has the opcodes.
fn head() -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("the texts here are short");
        [&[0x8c, length], text.as_bytes()].concat() // SHORT_BINUNICODE
    };
    [
        b"\x80\x04".to_vec(),
        text("builtins"),
        text("int"),
        vec![0x93],
        text(NOTICE),
        vec![0x85, b'R', b'.'],
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rendezvous::state::NodeInfo;

    #[test]
    fn a_state_comes_back() {
        let state = RendezvousState {
            version: 3,
            round: 2,
            ..RendezvousState::default()
        };
        assert_eq!(open(&seal(&state)), Content::State(Box::new(state)));
    }

    #[test]
    fn numbers_that_would_overflow_are_not_read() {
        let of = |change: fn(&mut RendezvousState)| {
            let mut state = RendezvousState::default();
            change(&mut state);
            open(&seal(&state))
        };
        let node_info = |nproc| NodeInfo {
            addr: "a".to_owned(),
            node_rank: 0,
            role: "default".to_owned(),
            nproc,
            peer_port: None,
        };
        let world = |nproc| {
            let world = vec![("a".to_owned(), node_info(nproc))];
            let state = RendezvousState {
                world,
                ..RendezvousState::default()
            };
            open(&seal(&state))
        };
        assert!(matches!(world(8), Content::State(_)));
        for (content, what) in [
            (world(0), "no ranks"),
            (world(usize::MAX), "ranks"),
            (of(|state| state.version = u64::MAX), "version"),
            (of(|state| state.round = u64::MAX), "round"),
            (of(|state| state.restarts = u32::MAX), "restarts"),
        ] {
            assert_eq!(content, Content::Unknown, "{what}");
        }
    }

    #[test]
    fn the_notice_is_one_that_python_repeats_whole() {
        assert!(
            NOTICE.len() < 190 && !NOTICE.contains('\''),
            "{}",
            NOTICE.len()
        );
    }

    #[test]
    fn torchrun_s_states_are_told_from_rubbish() {
        let contents = [
            &b"Y2FuaW1hZGFt"[..],
            b"gASVaAEAAAAAAACMN3RvcmNo",
            b"",
            b"abc",
            b"!!!!",
            b"YWJj",
        ]
        .map(open);
        let (torchrun, unknown) = (Content::Torchrun, Content::Unknown);
        let expected =
            [&torchrun, &torchrun, &unknown, &unknown, &unknown, &unknown].map(Clone::clone);
        assert_eq!(contents, expected);
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_something(text: Vec<u8>) {
            let _ = open(&text);
        }
    }
}
