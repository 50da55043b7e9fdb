use proptest::prelude::*;

use super::*;
use crate::image::squared;

/// Resizes by the definition, pixel by pixel, on the square with its bars written out.
fn slow(source: &Image, edge: usize) -> Image {
    let axis = ResizeAxis {
        source: source.height,
        bar: 0,
        present: source.height,
        target: edge,
        from: 0,
        count: edge,
    };
    if source.height == edge {
        return source.clone();
    }
    let pixel = |y: usize, x: usize, c: usize| source.rgb[(y * source.width + x) * 3 + c];
    let mut rgb = Vec::new();
    for y in 0..edge {
        for x in 0..edge {
            for c in 0..3 {
                rgb.push(match axis.whole_scale() {
                    Some(n) => block(n, |j, i| pixel(y * n + j, x * n + i, c)),
                    None if edge < source.height => {
                        let (rows, columns) = (&axis.weighted()[y], &axis.weighted()[x]);
                        let row = |j: usize| -> f32 {
                            let terms = columns.weights.iter().enumerate();
                            terms.fold(0.0, |sum, (i, w)| {
                                sum + f32::from(pixel(j, columns.first + i, c)) * w
                            })
                        };
                        let terms = rows.weights.iter().enumerate();
                        let sum = terms.fold(0.0, |sum, (j, w)| sum + w * row(rows.first + j));
                        sum.round_ties_even().clamp(0.0, 255.0) as u8
                    }
                    None => {
                        let (rows, columns) = (axis.between()[y], axis.between()[x]);
                        let t = rows.pixels.map(|j| {
                            let term = |side: usize| {
                                i32::from(pixel(j, columns.pixels[side], c))
                                    * i32::from(columns.weights[side])
                            };
                            (term(0) + term(1)) >> 4
                        });
                        let part = |side: usize| (i32::from(rows.weights[side]) * t[side]) >> 16;
                        ((part(0) + part(1) + 2) >> 2).clamp(0, 255) as u8
                    }
                });
            }
        }
    }
    Image {
        height: edge,
        width: edge,
        rgb,
    }
}

fn block(n: usize, byte: impl Fn(usize, usize) -> u8) -> u8 {
    let sum: u32 = (0..n * n).map(|at| u32::from(byte(at / n, at % n))).sum();
    if n == 2 {
        ((sum + 2) >> 2) as u8
    } else {
        (sum as f32 * (1.0 / (n * n) as f32)).round_ties_even() as u8
    }
}

fn middle(image: &Image, count: usize) -> Image {
    let from = (image.height - count) / 2;
    let rows = image
        .rgb
        .chunks_exact(image.width * 3)
        .skip(from)
        .take(count);
    let rgb = rows
        .flat_map(|row| row[from * 3..(from + count) * 3].to_vec())
        .collect();
    Image {
        height: count,
        width: count,
        rgb,
    }
}

fn picture(height: usize, width: usize, seed: u32) -> Image {
    let mut state = seed | 1;
    let byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    Image {
        height,
        width,
        rgb: std::iter::repeat_with(byte)
            .take(height * width * 3)
            .collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn bars_and_crop_that_are_never_made_change_no_byte(
        height in 1usize..40, width in 1usize..40, edge in 1usize..40, fraction in 0.05f64..1.0, seed: u32,
    ) {
        let source = picture(height, width, seed);
        let whole = slow(&squared(source.as_picture()), edge);
        let wanted = slow(&middle(&whole, cropped(edge, fraction)), edge);
        prop_assert_eq!(Area::new().apply(source.as_picture(), edge, fraction), wanted);
    }
}

#[test]
fn tables_are_made_once_for_each_size() {
    let area = Area::new();
    let axis = ResizeAxis {
        source: 10,
        bar: 0,
        present: 10,
        target: 8,
        from: 0,
        count: 8,
    };
    let [one, other] = [(); 2].map(|()| area.tables([axis; 2]));
    assert!(Arc::ptr_eq(&one, &other));
}
