//! Runs a parser on mutated inputs, for any length of time: cargo-fuzz without a nightly compiler.
//!
//! ```no_run
//! let target = rig::hostile::Target::new("hostlist");
//! target.run(|input| input.len() % 7);
//! ```
//! Inputs are the files of `tests/hostile/corpus/<name>/`, unchanged and mutated, with the tokens
//! of `tests/hostile/dictionary/<name>`, a file as AFL and libFuzzer read them. The return value of
//! the function describes the parser's result for an input (the kind of error, the number of
//! items). An input with a new result joins those that are mutated. That takes the place of a
//! fuzzer's coverage.
//!
//! The same build tries the same inputs in the same order. A panic, or an input that takes longer
//! than [`DEADLINE`], fails the test and leaves the input in `target/hostile/`; add it to
//! the corpus after the fix. After an abort, `target/hostile/<name>.at` has the number of the
//! input, and `HOSTILE_SAVE=<number>` writes that input to a file before it is tried.
//!
//! | variable | |
//! |---|---|
//! | `HOSTILE_INPUTS` | inputs per target; the default is 20 000, `make hostile` sets 10 000 000 |
//! | `HOSTILE_SEED` | another sequence of mutations |
//! | `HOSTILE_SAVE` | number of an input to write to a file |

mod mutate;

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Mutator;

/// Default number of inputs per target, for quick tests of about a second.
const INPUTS: u64 = 20_000;

/// Default maximum size of a mutated input in bytes; see [`Target::longest`].
const LONGEST: usize = 4096;

/// Maximum number of inputs that are kept because of a new result.
const KEPT: usize = 4096;

/// Time limit for one input, far above what a loaded machine adds to microseconds.
const DEADLINE: Duration = Duration::from_secs(20);

/// A parser of untrusted input.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    corpus: &'static str,
    longest: usize,
    share: u64,
}

impl Target {
    /// Creates a target with a name, which is also that of its corpus and dictionary.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            corpus: name,
            longest: LONGEST,
            share: 1,
        }
    }

    /// Takes corpus and dictionary of another target.
    #[must_use]
    pub fn corpus(mut self, name: &'static str) -> Self {
        self.corpus = name;
        self
    }

    /// Sets the maximum size of an input in bytes; files of the corpus may be longer.
    #[must_use]
    pub fn longest(mut self, bytes: usize) -> Self {
        self.longest = bytes;
        self
    }

    /// Tries only one input of `share`, for a parser that takes much longer than microseconds.
    #[must_use]
    pub fn one_in(mut self, share: u64) -> Self {
        self.share = share.max(1);
        self
    }

    /// Tries all inputs; prints their number and the slowest one.
    ///
    /// # Panics
    /// Panics if `parse` panics or takes too long, or if the corpus has no file.
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock finds inputs that hang"
    )]
    pub fn run<O: Hash>(self, mut parse: impl FnMut(&[u8]) -> O) {
        let (corpus, dictionary) = (inputs(self.corpus), dictionary(self.corpus));
        assert!(!corpus.is_empty(), "{} has no corpus", self.corpus);
        let inputs =
            (number("HOSTILE_INPUTS").unwrap_or(INPUTS) / self.share).max(corpus.len() as u64);
        let save = number("HOSTILE_SAVE");
        let place = Place::of(self.name);
        let mut mutator = Mutator::new(seed(self.name), &dictionary, self.longest);
        let (mut known, mut pool) = (HashSet::new(), corpus);
        let seeds = pool.len();
        let mut slowest = (Duration::ZERO, 0);
        let begun = Instant::now();
        for at in 0..inputs {
            let input = match usize::try_from(at) {
                Ok(at) if at < seeds => pool[at].clone(),
                _ => mutator.next(&pool),
            };
            place.mark(at);
            if save == Some(at) {
                place.save(&input);
            }
            let start = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(|| parse(&input)));
            let taken = start.elapsed();
            let outcome = match result {
                Ok(outcome) => outcome,
                Err(panic) => {
                    eprintln!(
                        "hostile {}: panic at input {at}, kept in {}",
                        self.name,
                        place.save(&input).display()
                    );
                    resume_unwind(panic);
                }
            };
            assert!(
                taken < DEADLINE,
                "input {at} took {taken:?}, kept in {}",
                place.save(&input).display()
            );
            slowest = slowest.max((taken, at));
            let mut hash = DefaultHasher::new();
            outcome.hash(&mut hash);
            if known.insert(hash.finish()) && at >= seeds as u64 && pool.len() < seeds + KEPT {
                pool.push(input);
            }
        }
        println!(
            "hostile {}: {inputs} inputs in {:.1} s, {} results, slowest {:?} (input {})",
            self.name,
            begun.elapsed().as_secs_f64(),
            known.len(),
            slowest.0,
            slowest.1
        );
    }
}

/// Returns the files of a corpus, sorted by name.
pub fn inputs(corpus: &str) -> Vec<Vec<u8>> {
    let folder = tests().join("hostile/corpus").join(corpus);
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let inputs = paths.iter().map(fs::read);
    inputs.map(Result::unwrap).collect()
}

/// Returns the tokens of a dictionary: lines of `"…"`, with `\\`, `\"` and `\xNN` in them.
fn dictionary(name: &str) -> Vec<Vec<u8>> {
    let path = tests().join("hostile/dictionary").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    text.lines().map(token).collect()
}

fn token(line: &str) -> Vec<u8> {
    let quoted = line
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let mut left = quoted.unwrap_or_else(|| panic!("`{line}` has no quotes"));
    let mut bytes = Vec::new();
    while let Some((plain, escaped)) = left.split_once('\\') {
        bytes.extend(plain.bytes());
        if let Some(digits) = escaped.strip_prefix('x') {
            bytes.push(u8::from_str_radix(&digits[..2], 16).unwrap());
            left = &digits[2..];
        } else {
            bytes.push(escaped.as_bytes()[0]);
            left = &escaped[1..];
        }
    }
    bytes.extend(left.bytes());
    bytes
}

fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The files in which a run records its position and saves inputs.
struct Place {
    folder: PathBuf,
    name: &'static str,
    at: File,
}

impl Place {
    fn of(name: &'static str) -> Self {
        let folder = tests().join("../target/hostile");
        fs::create_dir_all(&folder).expect("target is writable");
        let at = File::create(folder.join(format!("{name}.at"))).expect("target is writable");
        Self { folder, name, at }
    }

    /// Writes a number of fixed width, so that a smaller number overwrites a larger one completely.
    fn mark(&self, at: u64) {
        let _ = self.at.write_at(format!("{at:>20}\n").as_bytes(), 0);
    }

    fn save(&self, input: &[u8]) -> PathBuf {
        let mut hash = DefaultHasher::new();
        input.hash(&mut hash);
        let path = self
            .folder
            .join(format!("{}-{:016x}", self.name, hash.finish()));
        fs::write(&path, input).expect("target is writable");
        path
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is `{text}`, a whole number is wanted")),
    )
}

fn seed(name: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    name.hash(&mut hash);
    hash.finish() ^ number("HOSTILE_SEED").unwrap_or(0)
}
