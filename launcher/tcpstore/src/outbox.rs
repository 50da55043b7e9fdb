//! The queue of bytes to send to one client. Short texts are copied; long ones are shared with the
//! table, so that a client that asks for much and reads nothing costs little memory.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::value::StoreValue;

/// Texts of at least this many bytes are shared: copying shorter ones is cheaper than a piece of
/// their own.
pub const SHARE: usize = 1024;

/// Queue length in bytes above which every text is shared.
const SHARE_ALL: usize = 64 * 1024;

/// Most pieces in one `writev`.
const AT_ONCE: usize = 32;

/// The bytes to send to one client.
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<OutboxPiece>,
    /// Bytes of the first piece that have been sent.
    sent: usize,
    /// Bytes that have not been sent.
    length: usize,
    /// Bytes that the pieces hold besides what they share with the table.
    owned: usize,
}

#[derive(Debug)]
enum OutboxPiece {
    Own(Vec<u8>),
    /// A length as it is on the wire, and the value.
    Value([u8; 8], StoreValue),
    /// A length as it is on the wire, and the key.
    Key([u8; 8], Arc<[u8]>),
}

impl OutboxPiece {
    fn parts(&self) -> [&[u8]; 2] {
        match self {
            OutboxPiece::Own(bytes) => [bytes, &[]],
            OutboxPiece::Value(length, value) => [length, value],
            OutboxPiece::Key(length, key) => [length, key],
        }
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    fn owned(&self) -> usize {
        let bytes = if let OutboxPiece::Own(bytes) = self {
            bytes.len()
        } else {
            0
        };
        size_of::<OutboxPiece>() + bytes
    }
}

impl Outbox {
    /// Returns the number of bytes that have not been sent.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns the number of bytes that the outbox owns, without the values that it shares with the
    /// table.
    pub fn owned(&self) -> usize {
        self.owned
    }

    /// Returns whether everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends the length of a value, then the value.
    pub fn value(&mut self, value: &StoreValue) {
        self.text(value, |length| {
            OutboxPiece::Value(length, Arc::clone(value))
        });
    }

    /// Appends the length of a key, then the key.
    pub fn key(&mut self, key: &Arc<[u8]>) {
        self.text(key, |length| OutboxPiece::Key(length, Arc::clone(key)));
    }

    fn text(&mut self, text: &[u8], share: impl FnOnce([u8; 8]) -> OutboxPiece) {
        let length = (text.len() as u64).to_le_bytes();
        if text.len() < SHARE && self.length < SHARE_ALL {
            self.raw(&length);
            return self.raw(text);
        }
        self.length += length.len() + text.len();
        self.push(share(length));
    }

    fn push(&mut self, piece: OutboxPiece) {
        self.owned += piece.owned();
        self.pieces.push_back(piece);
    }

    /// Appends bytes.
    pub fn raw(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.length += bytes.len();
        match self.pieces.back_mut() {
            Some(OutboxPiece::Own(piece)) => {
                self.owned += bytes.len();
                piece.extend_from_slice(bytes);
            }
            _ => self.push(OutboxPiece::Own(bytes.to_vec())),
        }
    }

    /// Moves everything from `other` to the end of this outbox. Nothing of `other` may have been
    /// sent.
    pub fn append(&mut self, other: &mut Outbox) {
        if self.is_empty() {
            return std::mem::swap(self, other);
        }
        self.length += std::mem::take(&mut other.length);
        self.owned += std::mem::take(&mut other.owned);
        self.pieces.append(&mut other.pieces);
    }

    /// Passes the pieces to `write`, which returns how many bytes it accepted, until the outbox is
    /// empty or `write` fails.
    pub fn drain(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while !self.is_empty() {
            let parts = self
                .pieces
                .iter()
                .take(AT_ONCE)
                .flat_map(OutboxPiece::parts);
            let mut slices: Vec<_> = parts
                .filter(|part| !part.is_empty())
                .map(IoSlice::new)
                .collect();
            let mut unsent = slices.as_mut_slice();
            IoSlice::advance_slices(&mut unsent, self.sent);
            match write(unsent)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                taken => self.advance(taken),
            }
        }
        Ok(())
    }

    fn advance(&mut self, taken: usize) {
        self.length -= taken;
        self.sent += taken;
        while let Some(piece) = self.pieces.front()
            && self.sent >= piece.len()
        {
            self.sent -= piece.len();
            self.owned -= piece.owned();
            self.pieces.pop_front();
        }
    }

    /// Returns all bytes that have not been sent.
    #[cfg(test)]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.pieces
            .iter()
            .flat_map(OutboxPiece::parts)
            .flatten()
            .copied()
            .skip(self.sent)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_large_value_is_shared_with_the_table() {
        let value = StoreValue::new(vec![7; SHARE]);
        let mut out = Outbox::default();
        out.value(&value);
        assert_eq!(StoreValue::strong_count(&value), 2);
        out.drain(|slices| Ok(slices.iter().map(|slice| slice.len()).sum()))
            .unwrap();
        assert_eq!((StoreValue::strong_count(&value), out.len()), (1, 0));
    }

    #[test]
    fn a_long_reply_of_small_values_is_shared_too() {
        let value = StoreValue::new(vec![7; 100]);
        let mut out = Outbox::default();
        (0..10_000).for_each(|_| out.value(&value));
        assert!(StoreValue::strong_count(&value) > 9_000);
        assert_eq!(out.len(), 108 * 10_000);
    }

    #[test]
    fn what_a_refused_write_left_is_kept() {
        let mut out = Outbox::default();
        out.raw(b"hello");
        let mut first = true;
        let refused = out.drain(|_| {
            if std::mem::take(&mut first) {
                Ok(2)
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            }
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(out.to_bytes(), b"llo");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn short_writes_lose_and_double_nothing(
            sizes in vec(prop_oneof![0..40_usize, SHARE..SHARE + 9], 0..2 * AT_ONCE),
            takes in vec(prop_oneof![1..20_usize, 1000..50_000_usize, 5000..50_000_usize], 1..20),
        ) {
            let mut out = Outbox::default();
            for (i, size) in sizes.iter().enumerate() {
                let mut other = Outbox::default();
                other.value(&StoreValue::new(vec![i as u8; *size]));
                other.key(&Arc::from(vec![!(i as u8); *size]));
                out.append(&mut other);
            }
            let wanted = out.to_bytes();
            prop_assert_eq!(wanted.len(), out.len());
            let (mut got, mut takes) = (Vec::<u8>::new(), takes.iter().cycle());
            out.drain(|slices| {
                let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                let taken = all.len().min(*takes.next().expect("it cycles"));
                got.extend(&all[..taken]);
                Ok(taken)
            }).unwrap();
            prop_assert_eq!(got, wanted);
            prop_assert_eq!(out.owned(), 0);
        }
    }
}
