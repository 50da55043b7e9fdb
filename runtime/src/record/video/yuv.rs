//! Converts RGB to the planes that H.264 encodes: BT.709, limited range, colour at half resolution
//! in both directions (I420).

/// Number of fraction bits of the factors below: 16.
const SHIFT: i32 = 16;
/// ITU-R BT.709-6 §3: `Y = 16 + 219 (0.2126 R + 0.7152 G + 0.0722 B) / 255`.
const Y: [i32; 3] = [11966, 40254, 4064];
/// `Cb = 128 + 224 (B − Y′) / 1.8556 / 255`; the factors sum to 0, so that grey stays grey.
const U: [i32; 3] = [-6596, -22189, 28785];
/// `Cr = 128 + 224 (R − Y′) / 1.5748 / 255`; the factors sum to 0.
const V: [i32; 3] = [28785, -26145, -2640];

/// One image in three planes.
#[derive(Clone, Debug)]
pub(super) struct Planes {
    /// Height in pixels, even.
    pub(super) height: usize,
    /// Width in pixels, even.
    pub(super) width: usize,
    /// Luma: `[height, width]`.
    pub(super) y: Vec<u8>,
    /// Blue difference: `[height / 2, width / 2]`.
    pub(super) u: Vec<u8>,
    /// Red difference: `[height / 2, width / 2]`.
    pub(super) v: Vec<u8>,
}

impl Planes {
    /// Creates planes for images of this even size.
    pub(super) fn new(height: usize, width: usize) -> Self {
        let quarter = height / 2 * (width / 2);
        Self {
            height,
            width,
            y: vec![0; height * width],
            u: vec![0; quarter],
            v: vec![0; quarter],
        }
    }

    /// Implements `Planes::fill` (in `avx2`), and is compiled for the CPU features of its caller.
    /// Sums cannot overflow (see the factors); wrapping operations let the compiler vectorise
    /// although overflow checks are on.
    #[inline(always)]
    pub(super) fn convert(&mut self, rgb: &[u8]) {
        let half = self.width / 2;
        let lines = rgb
            .chunks_exact(self.width * 6)
            .zip(self.y.chunks_exact_mut(self.width * 2));
        let colours = self
            .u
            .chunks_exact_mut(half)
            .zip(self.v.chunks_exact_mut(half));
        for ((rgb, y), (u, v)) in lines.zip(colours) {
            for (y, pixel) in y.iter_mut().zip(rgb.as_chunks::<3>().0) {
                *y = weigh(
                    Y,
                    [
                        i32::from(pixel[0]),
                        i32::from(pixel[1]),
                        i32::from(pixel[2]),
                    ],
                    16,
                    SHIFT,
                );
            }
            let (upper, lower) = rgb.split_at(self.width * 3);
            let squares = upper
                .as_chunks::<6>()
                .0
                .iter()
                .zip(lower.as_chunks::<6>().0);
            for ((upper, lower), (u, v)) in squares.zip(u.iter_mut().zip(v)) {
                let sum = [
                    square(upper, lower, 0),
                    square(upper, lower, 1),
                    square(upper, lower, 2),
                ];
                *u = weigh(U, sum, 128, SHIFT + 2);
                *v = weigh(V, sum, 128, SHIFT + 2);
            }
        }
    }
}

/// Returns the sum of one colour of four pixels.
#[inline(always)]
fn square(upper: &[u8; 6], lower: &[u8; 6], colour: usize) -> i32 {
    let above = u16::from(upper[colour]).wrapping_add(u16::from(upper[colour + 3]));
    let below = u16::from(lower[colour]).wrapping_add(u16::from(lower[colour + 3]));
    i32::from(above.wrapping_add(below))
}

/// Returns `base` plus the weighted sum, rounded.
#[inline(always)]
fn weigh(factors: [i32; 3], rgb: [i32; 3], base: i32, shift: i32) -> u8 {
    let red = factors[0].wrapping_mul(rgb[0]);
    let green = factors[1].wrapping_mul(rgb[1]);
    let blue = factors[2].wrapping_mul(rgb[2]);
    let rounded = (base << shift) + (1 << (shift - 1));
    (red.wrapping_add(green)
        .wrapping_add(blue)
        .wrapping_add(rounded)
        >> shift) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn planes_of(colour: [u8; 3]) -> [u8; 3] {
        let mut planes = Planes::new(2, 2);
        planes.fill(&[colour; 4].concat());
        [planes.y[3], planes.u[0], planes.v[0]]
    }

    #[test]
    fn known_colours_have_the_values_of_bt709() {
        assert_eq!(planes_of([0, 0, 0]), [16, 128, 128]);
        assert_eq!(planes_of([255, 255, 255]), [235, 128, 128]);
        assert_eq!(planes_of([255, 0, 0]), [63, 102, 240]);
        assert_eq!(planes_of([0, 255, 0]), [173, 42, 26]);
        assert_eq!(planes_of([0, 0, 255]), [32, 240, 118]);
    }

    proptest! {
        #[test]
        fn both_compilations_give_the_same_planes(seed in any::<u32>(), half_width in 1..40_usize) {
            let width = half_width * 2;
            let bytes = (0..width * 4 * 3).map(|at| (seed.wrapping_add(at as u32).wrapping_mul(2_654_435_761) >> 24) as u8);
            let rgb: Vec<u8> = bytes.collect();
            let (mut wide, mut narrow) = (Planes::new(4, width), Planes::new(4, width));
            wide.fill(&rgb);
            narrow.convert(&rgb);
            prop_assert_eq!((wide.y, wide.u, wide.v), (narrow.y, narrow.u, narrow.v));
        }
    }
}
