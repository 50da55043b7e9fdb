//! Mutates inputs like a fuzzer.

/// Powers of two at which parsers often fail, and the numbers below them, are inserted in 1 to 8
/// bytes of either byte order.
const POWERS: [u32; 10] = [0, 1, 7, 8, 15, 16, 31, 32, 63, 64];

/// Texts at which parsers often fail.
const WORDS: &[&str] = &[
    "0",
    "-1",
    "1e308",
    "1e999",
    "-0.0",
    "NaN",
    "null",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1000000000000",
    "../",
    "/",
    "\0",
    "\"",
    "\\",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{fffd}",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\n",
];

/// Maximum number of changes to one input.
const CHANGES: u64 = 6;

/// Generates a sequence of mutated inputs.
pub(crate) struct Mutator<'a> {
    state: u64,
    dictionary: &'a [Vec<u8>],
    longest: usize,
}

impl<'a> Mutator<'a> {
    pub(crate) fn new(seed: u64, dictionary: &'a [Vec<u8>], longest: usize) -> Self {
        Self {
            state: seed,
            dictionary,
            longest,
        }
    }

    /// Returns a mutation of an input in `pool`, which must not be empty.
    pub(crate) fn next(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        let mut input = pool[self.below(pool.len())].clone();
        for _ in 0..=self.random() % CHANGES {
            self.change(&mut input, pool);
        }
        input.truncate(self.longest);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, pool: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.random() % 12 {
            0 if at < input.len() => input[at] ^= 1 << (self.random() % 8),
            1 if at < input.len() => input[at] = self.byte(),
            2 => input.truncate(at),
            3 => drop(input.drain(at..self.end(at, input.len()))),
            4 => {
                let part = input[at..self.end(at, input.len())].to_vec();
                self.insert(input, at, &part);
            }
            5 => {
                let bytes = self.bytes();
                self.insert(input, at, &bytes);
            }
            6 => self.number(input, at),
            7 => {
                let word = WORDS[self.below(WORDS.len())];
                self.put(input, at, word.as_bytes());
            }
            8 | 9 if !self.dictionary.is_empty() => {
                let word = &self.dictionary[self.below(self.dictionary.len())];
                self.put(input, at, word);
            }
            10 => {
                let other = &pool[self.below(pool.len())];
                let from = self.below(other.len() + 1);
                let part = &other[from..self.end(from, other.len())];
                self.put(input, at, part);
            }
            _ => self.decimal(input, at),
        }
    }

    /// Overwrites or inserts bytes, each half of the time.
    fn put(&mut self, input: &mut Vec<u8>, at: usize, part: &[u8]) {
        if self.random().is_multiple_of(2) {
            let end = (at + part.len()).min(input.len());
            input.splice(at..end, part.iter().copied());
        } else {
            self.insert(input, at, part);
        }
    }

    fn insert(&self, input: &mut Vec<u8>, at: usize, part: &[u8]) {
        if input.len() + part.len() <= self.longest {
            input.splice(at..at, part.iter().copied());
        }
    }

    fn number(&mut self, input: &mut Vec<u8>, at: usize) {
        let power = 1_u128 << POWERS[self.below(POWERS.len())];
        let number = power - u128::from(self.random() % 2);
        let width = [1, 2, 4, 8][self.below(4)];
        let bytes = (number as u64).to_be_bytes();
        let mut part = bytes[8 - width..].to_vec();
        if self.random().is_multiple_of(2) {
            part.reverse();
        }
        self.put(input, at, &part);
    }

    /// Replaces the first decimal number after `at`.
    fn decimal(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some(start) = input[at..]
            .iter()
            .position(u8::is_ascii_digit)
            .map(|offset| at + offset)
        else {
            return;
        };
        let digits = input[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let word = WORDS[self.below(12)];
        input.splice(start..start + digits, word.bytes());
    }

    fn bytes(&mut self) -> Vec<u8> {
        let count = 1 + self.below(16);
        (0..count).map(|_| self.byte()).collect()
    }

    fn byte(&mut self) -> u8 {
        (self.random() & 0xff) as u8
    }

    /// Returns a random end for a part that begins at `at`; short parts are more likely.
    fn end(&mut self, at: usize, len: usize) -> usize {
        let room = len - at;
        let reach = if self.random().is_multiple_of(4) {
            room
        } else {
            room.min(16)
        };
        at + self.below(reach + 1)
    }

    /// Returns a random number below `bound`, which must not be 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.random() % bound as u64) as usize
    }

    /// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn inputs_differ_stay_short_and_come_again_from_the_same_seed() {
        let pool = [b"{\"episodes\": 12}".to_vec(), Vec::new()];
        let words = [b"jobs".to_vec()];
        let sequence = || {
            let mut mutator = Mutator::new(7, &words, 40);
            (0..1000).map(|_| mutator.next(&pool)).collect::<Vec<_>>()
        };
        let inputs = sequence();
        assert_eq!(inputs, sequence());
        assert!(inputs.iter().all(|input| input.len() <= 40));
        assert!(inputs.iter().collect::<HashSet<_>>().len() > 500);
        assert!(
            inputs
                .iter()
                .any(|input| input.windows(4).any(|part| part == b"jobs"))
        );
    }
}
