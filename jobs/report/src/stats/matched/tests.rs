use proptest::prelude::*;

use super::*;
use crate::stats::paired::{PairCounts, mean_difference};
use crate::tests::simulated::Numbers;

/// Converts sets of three digits: the control (0 or 1), the number of variants, and the number of
/// these that were solved.
fn sets(of: &str) -> Vec<MatchedSet> {
    let set = |word: &str| {
        let digits: Vec<_> = word.bytes().map(|digit| u64::from(digit - b'0')).collect();
        MatchedSet {
            control: digits[0] == 1,
            variants: digits[1],
            solved: digits[2],
        }
    };
    of.split_whitespace().map(set).collect()
}

/// Sets, rates of control and variants, interval, and p.
type Case = (&'static str, [f64; 2], [f64; 2], Option<f64>);

/// Intervals: numpy 2.5 and statsmodels 0.15.0, proportion_confint(method="wilson"); p: all ways to
/// choose the control among the outcomes of each set, counted with itertools and fractions.
const IN_PYTHON: [Case; 5] = [
    (
        "132 130 031 133 030 131 132 133",
        [0.75, 0.5],
        [-0.531_319_536_682, 0.141_461_765_757],
        Some(0.304_687_5),
    ),
    (
        "120 110 021 121 111 010",
        [0.666_666_666_667, 0.333_333_333_333],
        [-0.656_260_298_482, 0.158_605_248_225],
        Some(0.481_481_481_481_481_45),
    ),
    (
        "122 122 122 122 122 122 122 122 122 122",
        [1.0, 1.0],
        [-0.277_532_799_863, 0.277_532_799_863],
        None,
    ),
    (
        "121 121 121 121 121 121",
        [1.0, 0.5],
        [-0.746_218_402_366, -0.038_497_716_175],
        Some(0.175_582_990_397_805_2),
    ),
    (
        "140 140 140 140 140 141 141",
        [1.0, 0.071_428_571_429],
        [-0.980_187_935_885, -0.541_812_039_983],
        Some(0.000_102_4),
    ),
];

#[test]
fn intervals_and_tests_agree_with_the_formulas_in_python() {
    for (of, wanted, interval, wanted_p) in IN_PYTHON {
        let found = rates(&sets(of)).unwrap();
        let near = |a: [f64; 2], b: [f64; 2]| {
            let is_near = (a[0] - b[0]).abs() < 1e-9 && (a[1] - b[1]).abs() < 1e-9;
            assert!(is_near, "{found:?}, expected {b:?}");
        };
        near([found.control, found.variant], wanted);
        near(found.interval95, interval);
        match (p(&sets(of)), wanted_p) {
            (Some(a), Some(b)) => near([a; 2], [b; 2]),
            (a, b) => assert_eq!(a, b),
        }
    }
    assert_eq!((rates(&[]), p(&[])), (None, None));
}

#[test]
fn many_sets_have_the_test_of_the_normal_distribution() {
    let of = |[lost, won]: [usize; 2]| {
        let all = ["131 ".repeat(lost), "032 ".repeat(won)].concat();
        let chances = vec![0.5; lost + won];
        let found = p(&sets(&all)).unwrap();
        [found, exact(&chances, lost), normal(&chances, lost)]
    };
    let [found, exact_p, normal_p] = of([530, 470]);
    assert!(found < 0.07 && (found - exact_p).abs() < 1e-12);
    assert!(
        (normal_p / exact_p - 1.0).abs() < 0.01,
        "{normal_p} {exact_p}"
    );
    let [found, exact_p, normal_p] = of([531, 471]);
    assert!((found - normal_p).abs() < 1e-12 && (found - exact_p).abs() > 1e-12);
}

#[test]
fn the_interval_has_its_difference_where_variants_share_hard_episodes() {
    // Each episode has a difficulty; a variant is solved where it is below its own rate, with some
    // noise. The interval has the difference in at least 92 % of the runs. Student's interval over
    // the episodes does not where rates are close to 0 or 1.
    let mut least_of_student = 500;
    for (episodes, variants, rates_) in [
        (10, 10, [0.95, 0.05]),
        (20, 4, [0.9, 0.8]),
        (50, 10, [0.95, 0.95]),
        (50, 3, [0.6, 0.4]),
    ] {
        let mut draws = Numbers(7);
        let (mut held, mut held_by_student) = (0, 0);
        for _ in 0..500 {
            let set = |draws: &mut Numbers| {
                let hard = draws.next();
                let solved = (0..variants).filter(|_| {
                    let noisy = draws.next() < 0.2;
                    let other = draws.next();
                    (if noisy { other } else { hard }) < rates_[1]
                });
                MatchedSet {
                    control: hard < rates_[0],
                    variants,
                    solved: solved.count() as u64,
                }
            };
            let all: Vec<_> = (0..episodes).map(|_| set(&mut draws)).collect();
            let difference = rates_[1] - rates_[0];
            let has = |[low, high]: [f64; 2]| low <= difference + 1e-9 && difference <= high + 1e-9;
            held += u32::from(has(rates(&all).unwrap().interval95));
            let of_sets: Vec<_> = all
                .iter()
                .map(|set| set.variant() - set.control())
                .collect();
            let student = mean_difference(&of_sets).unwrap().interval95.unwrap();
            held_by_student += u32::from(has(student));
        }
        least_of_student = held_by_student.min(least_of_student);
        assert!(
            held >= 460,
            "{held} of 500 with {episodes} episodes and {variants} variants"
        );
    }
    assert!(least_of_student < 400, "{least_of_student} of 500");
}

proptest! {
    #[test]
    fn one_variant_in_each_set_gives_the_statistics_of_pairs(outcomes in prop::collection::vec(any::<[bool; 2]>(), 1..200)) {
        let mut counts = PairCounts::default();
        let mut sets = Vec::new();
        for [a, b] in outcomes {
            counts.add(a, b);
            sets.push(MatchedSet { control: a, variants: 1, solved: u64::from(b) });
        }
        let (found, wanted) = (rates(&sets).unwrap(), counts.interval95().unwrap());
        prop_assert!((found.difference - counts.difference().unwrap()).abs() < 1e-12);
        prop_assert!((found.interval95[0] - wanted[0]).abs() < 1e-9, "{:?} {:?}", found, wanted);
        prop_assert!((found.interval95[1] - wanted[1]).abs() < 1e-9, "{:?} {:?}", found, wanted);
        match (p(&sets), counts.mcnemar()) {
            (Some(a), Some(b)) => prop_assert!((a - b.p).abs() < 1e-12, "{} {}", a, b.p),
            (a, b) => prop_assert!(a.is_none() && b.is_none()),
        }
    }

    #[test]
    fn the_difference_lies_in_its_interval(of in prop::collection::vec((any::<bool>(), 1u64..9, 0u64..9), 1..60)) {
        let sets: Vec<_> = of
            .into_iter()
            .map(|(control, variants, solved)| MatchedSet { control, variants, solved: solved.min(variants) })
            .collect();
        let found = rates(&sets).unwrap();
        let [low, high] = found.interval95;
        prop_assert!(-1.0 <= low && low <= found.difference + 1e-12, "{:?}", found);
        prop_assert!(found.difference - 1e-12 <= high && high <= 1.0, "{:?}", found);
        prop_assert!(p(&sets).is_none_or(|p| (0.0..=1.0).contains(&p)));
    }
}
