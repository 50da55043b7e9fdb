//! Tries a parser on mutated inputs, for as long as one has time: cargo-fuzz without a nightly compiler.
//!
//! ```no_run
//! hostile::Target::new("hostlist").dictionary(&[b"[", b"-", b"node"]).run(|input| input.len() % 7);
//! ```
//! Inputs are the files of `tests/hostile/corpus/<name>/`, as they are and mutated. What the function returns stands for
//! what the parser made of an input (the kind of error, the number of items): an input with a result that no earlier one
//! had joins those that are mutated. That takes the place of a fuzzer's coverage.
//!
//! The same build tries the same inputs in the same order. A panic, or an input that takes longer than
//! [`Target::deadline`], fails the test and leaves the input in `target/hostile/`; it belongs into the corpus once it is
//! mended. After an abort, `target/hostile/<name>.at` has the number of the input, and `HOSTILE_SAVE=<number>` writes that
//! one down before it is tried.
//!
//! | variable | |
//! |---|---|
//! | `HOSTILE_INPUTS` | inputs per target, 20 000 unless said; `make hostile` says 10 000 000 |
//! | `HOSTILE_SEED` | another sequence of mutations |
//! | `HOSTILE_SAVE` | number of an input to write down |

mod memory;
mod mutate;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Mutator;

/// Inputs of a target in the quick tests: a second or so.
const INPUTS: u64 = 20_000;

/// Longest input that mutation makes, unless [`Target::longest`] says otherwise.
const LONGEST: usize = 4096;

/// Most inputs that are kept because of a new result.
const KEPT: usize = 4096;

/// Longest time that one input may take, far above what a loaded machine adds to microseconds.
const DEADLINE: Duration = Duration::from_secs(20);

/// A function that reads what a stranger sends.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    dictionary: Vec<Vec<u8>>,
    longest: usize,
    deadline: Duration,
    share: u64,
}

impl Target {
    /// Names the target and its folder of the corpus.
    pub fn new(name: &'static str) -> Self {
        Self { name, dictionary: Vec::new(), longest: LONGEST, deadline: DEADLINE, share: 1 }
    }

    /// Words of the format, to be put in and over others.
    #[must_use]
    pub fn dictionary(mut self, words: &[&[u8]]) -> Self {
        self.dictionary = words.iter().map(|word| word.to_vec()).collect();
        self
    }

    /// Longest input in bytes; files of the corpus may be longer.
    #[must_use]
    pub fn longest(mut self, bytes: usize) -> Self {
        self.longest = bytes;
        self
    }

    /// Longest time for one input, 20 s unless said.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Tries only one input of `share`, for a parser that takes much longer than microseconds.
    #[must_use]
    pub fn one_in(mut self, share: u64) -> Self {
        self.share = share.max(1);
        self
    }

    /// Tries all inputs, and prints how many there were, the slowest, and the memory of the process before and after.
    ///
    /// # Panics
    /// When `parse` does, or takes too long; when the corpus has no file.
    #[expect(clippy::disallowed_methods, reason = "the clock finds inputs that hang")]
    pub fn run<O: Hash>(self, mut parse: impl FnMut(&[u8]) -> O) {
        let corpus = self.corpus();
        assert!(!corpus.is_empty(), "tests/hostile/corpus/{} has no file", self.name);
        let inputs = (number("HOSTILE_INPUTS").unwrap_or(INPUTS) / self.share).max(corpus.len() as u64);
        let save = number("HOSTILE_SAVE");
        let place = Place::of(self.name);
        let memory = memory::resident();
        let mut mutator = Mutator::new(seed(self.name), &self.dictionary, self.longest);
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
                    eprintln!("hostile {}: panic at input {at}, kept in {}", self.name, place.save(&input).display());
                    resume_unwind(panic);
                }
            };
            assert!(taken < self.deadline, "input {at} took {taken:?}, kept in {}", place.save(&input).display());
            slowest = slowest.max((taken, at));
            let mut hash = DefaultHasher::new();
            outcome.hash(&mut hash);
            if known.insert(hash.finish()) && at >= seeds as u64 && pool.len() < seeds + KEPT {
                pool.push(input);
            }
        }
        let mut said = format!("hostile {}: {inputs} inputs in {:.1} s", self.name, begun.elapsed().as_secs_f64());
        // Writing to a string cannot fail.
        let _ = write!(said, ", {} results, slowest {:?} (input {})", known.len(), slowest.0, slowest.1);
        let _ = write!(said, ", resident {} MB before, {} MB after", memory >> 20, memory::resident() >> 20);
        println!("{said}");
    }

    /// Files of the corpus by name.
    fn corpus(&self) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name);
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).expect("a file of the corpus is readable")).collect()
    }
}

/// Where a run tells how far it is.
struct Place {
    folder: PathBuf,
    name: &'static str,
    at: File,
}

impl Place {
    fn of(name: &'static str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/hostile");
        fs::create_dir_all(&folder).expect("target is writable");
        let at = File::create(folder.join(format!("{name}.at"))).expect("target is writable");
        Self { folder, name, at }
    }

    /// Of a fixed width, so that a smaller number leaves nothing of a larger one.
    fn mark(&self, at: u64) {
        let _ = self.at.write_at(format!("{at:>20}\n").as_bytes(), 0);
    }

    fn save(&self, input: &[u8]) -> PathBuf {
        let mut hash = DefaultHasher::new();
        input.hash(&mut hash);
        let path = self.folder.join(format!("{}-{:016x}", self.name, hash.finish()));
        fs::write(&path, input).expect("target is writable");
        path
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is `{text}`, a whole number is wanted")))
}

fn seed(name: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    name.hash(&mut hash);
    hash.finish() ^ number("HOSTILE_SEED").unwrap_or(0)
}
