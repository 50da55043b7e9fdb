//! The demonstrations of a dataset, of either format: those that the journal names, and those that no
//! episode names, because a rank wrote them before it died and did not write their lines.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::OnceLock;

use jobs::count;
use jobs::episode::DemoRef;
use jobs::journal;
use jobs::layout::RunFolder;
use report::verify::{ExpectedDemo, Findings, episodes};

/// Number of demonstrations of a dataset that are named.
const NAMED: usize = 5;

/// What was found in a dataset.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Checked {
    pub(super) findings: Findings,
    /// What it holds beside the expected demonstrations.
    pub(super) extra: Vec<ExtraDemo>,
}

impl Checked {
    /// Compares the demonstrations that are `there`, by name, with those that the journal names.
    /// `reasons` says what is wrong with one, and `episode` of which episode one is.
    pub(super) fn compare<T>(
        &mut self,
        demos: &[ExpectedDemo],
        mut there: BTreeMap<String, T>,
        mut reasons: impl FnMut(&ExpectedDemo, Option<T>) -> Vec<String>,
        episode: impl Fn(&T) -> Option<u64>,
    ) {
        // The same problem of several demonstrations is reported in one line.
        let mut wrong: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for demo in demos {
            for reason in reasons(demo, there.remove(&demo.name)) {
                wrong.entry(reason).or_default().push(demo.outcome.episode);
            }
        }
        let told = wrong
            .into_iter()
            .map(|(reason, numbers)| format!("{} {reason}", episodes(numbers)));
        self.findings.wrong.extend(told);
        self.extra
            .extend(there.into_iter().map(|(name, demo)| ExtraDemo {
                episode: episode(&demo),
                name,
            }));
    }
}

/// A demonstration that no episode that counts names.
#[derive(Debug, PartialEq)]
pub(super) struct ExtraDemo {
    /// Its name in the dataset.
    pub(super) name: String,
    /// The episode that it is of, if the dataset says so.
    pub(super) episode: Option<u64>,
}

/// The demonstrations that lines of the journals name, whether they count or not. They are only
/// read if a dataset holds more than it should.
pub(super) struct NamedDemos<'a> {
    folder: &'a RunFolder,
    named: OnceLock<BTreeSet<DemoRef>>,
}

impl<'a> NamedDemos<'a> {
    pub(super) fn of(folder: &'a RunFolder) -> Self {
        let named = OnceLock::new();
        Self { folder, named }
    }

    /// Adds what the dataset `file` holds too much to its findings. A line that does not count may
    /// name it: of an episode that two ranks have run, or that is not in the plan any more.
    pub(super) fn judge(&self, file: &str, checked: Checked) -> io::Result<Findings> {
        let Checked {
            mut findings,
            extra,
        } = checked;
        if extra.is_empty() {
            return Ok(findings);
        }
        let named = self.named()?;
        let is_named = |extra: &ExtraDemo| {
            named.contains(&DemoRef {
                file: file.to_owned(),
                demo: extra.name.clone(),
            })
        };
        let (uncounted, unnamed): (Vec<_>, Vec<_>) = extra.into_iter().partition(is_named);
        for (extra, list, who) in [
            (
                uncounted,
                &mut findings.notes,
                "no episode that counts names",
            ),
            (
                unnamed,
                &mut findings.wrong,
                "no line of the journals names",
            ),
        ] {
            if !extra.is_empty() {
                list.push(format!("also has {}, which {who}", listed(&extra)));
            }
        }
        Ok(findings)
    }

    fn named(&self) -> io::Result<&BTreeSet<DemoRef>> {
        if let Some(named) = self.named.get() {
            return Ok(named);
        }
        let named = journal::demos(&self.folder.journals())?;
        Ok(self.named.get_or_init(|| named))
    }
}

fn listed(extra: &[ExtraDemo]) -> String {
    let text = |extra: &ExtraDemo| match extra.episode {
        Some(episode) => format!("{} (episode {episode})", extra.name),
        None => extra.name.clone(),
    };
    let names: Vec<_> = extra.iter().map(text).collect();
    count::listed(&names, NAMED)
}
