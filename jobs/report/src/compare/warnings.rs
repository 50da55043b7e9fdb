//! Reports differences other than the policy, because the policy alone does not explain the results
//! then.

use std::collections::BTreeMap;

use jobs::count::listed;

use crate::compare::side::SideJob;
use crate::verify::HOW;

/// Number of jobs that one warning names.
const NAMED: usize = 3;

/// Returns one line per difference, with the jobs that it is in.
pub(super) fn warnings(common: &[(&str, &SideJob, &SideJob)]) -> Vec<String> {
    let mut differences: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, a, b) in common {
        for difference in settings(a, b).into_iter().chain(jobs(a, b)) {
            differences.entry(difference).or_default().push(name);
        }
    }
    let line = |(difference, names): (String, Vec<&str>)| {
        let jobs = listed(&names, NAMED);
        match names.len() {
            1 => format!("{difference} ({jobs})"),
            count => format!("{difference} ({count} jobs {jobs})"),
        }
    };
    differences.into_iter().map(line).collect()
}

/// Returns the settings in effect that may affect the results and that both sides report with
/// different values.
fn settings(a: &SideJob, b: &SideJob) -> Vec<String> {
    let named = a
        .settings
        .iter()
        .filter(|(name, _)| !HOW.contains(&name.as_str()));
    let both = named.filter_map(|(name, ours)| Some((name, ours, b.settings.get(name)?)));
    both.filter(|(_, ours, theirs)| ours != theirs)
        .map(|(name, ours, theirs)| format!("{name} is {ours} in A and {theirs} in B"))
        .collect()
}

/// Returns the fields of the jobs that affect the results and differ, except the policy and the
/// number of episodes.
fn jobs(a: &SideJob, b: &SideJob) -> Vec<String> {
    let (Some(ours), Some(theirs)) = (&a.identity, &b.identity) else {
        return Vec::new();
    };
    let is_policy = |field: &str| field.starts_with("policy_");
    let changes = ours.differences(theirs).into_iter();
    let told = changes.filter(|change| {
        !is_policy(&change.field) && !change.is_coverage() && change.field != "seed"
    });
    told.map(|change| {
        let text = |value: Option<String>| value.unwrap_or_else(|| "not set".to_owned());
        format!(
            "{} is {} in A and {} in B",
            change.field,
            text(change.before),
            text(change.after)
        )
    })
    .collect()
}
