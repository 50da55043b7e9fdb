//! Runs a parser on mutated inputs, for any length of time: cargo-fuzz without a nightly compiler.
//!
//! ```no_run
//! let target = rig::hostile::Target::new("hostlist").dictionary(&[b"[", b"-", b"node"]);
//! target.run(|input| input.len() % 7);
//! ```
//! Inputs are the files of `tests/hostile/corpus/<name>/`, unchanged and mutated. The return value
//! of the function describes the parser's result for an input (the kind of error, the number of
//! items). An input with a new result joins those that are mutated. That takes the place of a
//! fuzzer's coverage.
//!
//! The same build tries the same inputs in the same order. A panic, or an input that takes longer
//! than [`Target::deadline`], fails the test and leaves the input in `target/hostile/`; add it to
//! the corpus after the fix. After an abort, `target/hostile/<name>.at` has the number of the
//! input, and `HOSTILE_SAVE=<number>` writes that input to a file before it is tried.
//!
//! | variable | |
//! |---|---|
//! | `HOSTILE_INPUTS` | inputs per target; the default is 20 000, `make hostile` sets 10 000 000 |
//! | `HOSTILE_SEED` | another sequence of mutations |
//! | `HOSTILE_SAVE` | number of an input to write to a file |

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

/// Default number of inputs per target, for quick tests of about a second.
const INPUTS: u64 = 20_000;

/// Default maximum size of a mutated input in bytes; see [`Target::longest`].
const LONGEST: usize = 4096;

/// Maximum number of inputs that are kept because of a new result.
const KEPT: usize = 4096;

/// Default time limit for one input, far above what a loaded machine adds to microseconds.
const DEADLINE: Duration = Duration::from_secs(20);

/// A parser of untrusted input.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    dictionary: Vec<Vec<u8>>,
    longest: usize,
    deadline: Duration,
    share: u64,
}

impl Target {
    /// Creates a target with a name, which is also its folder in the corpus.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            dictionary: Vec::new(),
            longest: LONGEST,
            deadline: DEADLINE,
            share: 1,
        }
    }

    /// Sets tokens of the format, which mutations insert or overwrite with.
    #[must_use]
    pub fn dictionary(mut self, words: &[&[u8]]) -> Self {
        self.dictionary = words.iter().map(|word| word.to_vec()).collect();
        self
    }

    /// Sets the maximum size of an input in bytes; files of the corpus may be longer.
    #[must_use]
    pub fn longest(mut self, bytes: usize) -> Self {
        self.longest = bytes;
        self
    }

    /// Sets the time limit for one input; the default is 20 s.
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

    /// Tries all inputs; prints their number, the slowest one, and the memory of the process before
    /// and after.
    ///
    /// # Panics
    /// Panics if `parse` panics or takes too long, or if the corpus has no file.
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock finds inputs that hang"
    )]
    pub fn run<O: Hash>(self, mut parse: impl FnMut(&[u8]) -> O) {
        let corpus = self.corpus();
        assert!(
            !corpus.is_empty(),
            "tests/hostile/corpus/{} has no file",
            self.name
        );
        let inputs =
            (number("HOSTILE_INPUTS").unwrap_or(INPUTS) / self.share).max(corpus.len() as u64);
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
                    eprintln!(
                        "hostile {}: panic at input {at}, kept in {}",
                        self.name,
                        place.save(&input).display()
                    );
                    resume_unwind(panic);
                }
            };
            assert!(
                taken < self.deadline,
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
        let mut said = format!(
            "hostile {}: {inputs} inputs in {:.1} s",
            self.name,
            begun.elapsed().as_secs_f64()
        );
        // Writing to a string cannot fail.
        let _ = write!(
            said,
            ", {} results, slowest {:?} (input {})",
            known.len(),
            slowest.0,
            slowest.1
        );
        let _ = write!(
            said,
            ", resident {} MB before, {} MB after",
            memory >> 20,
            memory::resident() >> 20
        );
        println!("{said}");
    }

    /// Returns the files of the corpus, sorted by name.
    fn corpus(&self) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../hostile/corpus")
            .join(self.name);
        let mut paths: Vec<PathBuf> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        paths.sort();
        paths
            .iter()
            .map(|path| fs::read(path).expect("a file of the corpus is readable"))
            .collect()
    }
}

/// The files in which a run records its position and saves inputs.
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
