use proptest::prelude::*;

use super::*;
use crate::stats::paired::{PairCounts, mean_difference};

/// Converts sets of control (0 or 1), number of variants, and number of these that were solved.
fn sets(of: &[[u64; 3]]) -> Vec<MatchedSet> {
    let set = |[control, variants, solved]: &[u64; 3]| MatchedSet {
        control: *control == 1,
        variants: *variants,
        solved: *solved,
    };
    of.iter().map(set).collect()
}

#[test]
fn intervals_and_tests_agree_with_the_formulas_in_python() {
    // Intervals: numpy 2.5 and statsmodels 0.15.0, proportion_confint(method="wilson"); p: all ways
    // to choose the control among the outcomes of each set, counted with itertools and fractions.
    type Case<'a> = (&'a [[u64; 3]], [f64; 2], [f64; 2], Option<f64>);
    let cases: [Case; 5] = [
        (
            &[
                [1, 3, 2],
                [1, 3, 0],
                [0, 3, 1],
                [1, 3, 3],
                [0, 3, 0],
                [1, 3, 1],
                [1, 3, 2],
                [1, 3, 3],
            ],
            [0.75, 0.5],
            [-0.531_319_536_682, 0.141_461_765_757],
            Some(0.304_687_5),
        ),
        (
            &[
                [1, 2, 0],
                [1, 1, 0],
                [0, 2, 1],
                [1, 2, 1],
                [1, 1, 1],
                [0, 1, 0],
            ],
            [0.666_666_666_667, 0.333_333_333_333],
            [-0.656_260_298_482, 0.158_605_248_225],
            Some(0.481_481_481_481_481_45),
        ),
        (
            &[[1, 2, 2]; 10],
            [1.0, 1.0],
            [-0.277_532_799_863, 0.277_532_799_863],
            None,
        ),
        (
            &[[1, 2, 1]; 6],
            [1.0, 0.5],
            [-0.746_218_402_366, -0.038_497_716_175],
            Some(0.175_582_990_397_805_2),
        ),
        (
            &[
                [1, 4, 0],
                [1, 4, 0],
                [1, 4, 0],
                [1, 4, 0],
                [1, 4, 0],
                [1, 4, 1],
                [1, 4, 1],
            ],
            [1.0, 0.071_428_571_429],
            [-0.980_187_935_885, -0.541_812_039_983],
            Some(0.000_102_4),
        ),
    ];
    for (of, wanted, interval, wanted_p) in cases {
        let (found, near) = (rates(&sets(of)).unwrap(), |a: f64, b: f64| {
            (a - b).abs() < 1e-9
        });
        assert!(
            near(found.control, wanted[0]) && near(found.variant, wanted[1]),
            "{found:?}"
        );
        assert!(
            near(found.interval95[0], interval[0]) && near(found.interval95[1], interval[1]),
            "{found:?}, expected {interval:?}"
        );
        let found_p = p(&sets(of));
        assert!(
            found_p
                .zip(wanted_p)
                .map_or(found_p == wanted_p, |(a, b)| near(a, b)),
            "{found_p:?}, expected {wanted_p:?}"
        );
    }
    assert_eq!((rates(&[]), p(&[])), (None, None));
}

#[test]
fn many_sets_have_the_test_of_the_normal_distribution() {
    let of = |[lost, won]: [usize; 2]| {
        let all = [vec![[1, 3, 1]; lost], vec![[0, 3, 2]; won]].concat();
        let chances = vec![0.5; lost + won];
        [
            p(&sets(&all)).unwrap(),
            exact(&chances, lost),
            normal(&chances, lost),
        ]
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

/// The linear congruential generator of Knuth's MMIX, so that the test draws the same numbers on
/// every machine.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
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
        let mut draws = Draws(7);
        let (mut held, mut held_by_student) = (0, 0);
        for _ in 0..500 {
            let set = |draws: &mut Draws| {
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
