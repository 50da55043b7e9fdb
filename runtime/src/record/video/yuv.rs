//! RGB to the planes that H.264 codes: BT.709, limited range, colour at half size both ways (I420).

/// Fractions of the factors below: 16 bits.
const SHIFT: i32 = 16;
/// ITU-R BT.709-6 §3: `Y = 16 + 219 (0.2126 R + 0.7152 G + 0.0722 B) / 255`.
const Y: [i32; 3] = [11966, 40254, 4064];
/// `Cb = 128 + 224 (B − Y′) / 1.8556 / 255`; the factors sum to 0, so that grey stays grey.
const U: [i32; 3] = [-6596, -22189, 28785];
/// `Cr = 128 + 224 (R − Y′) / 1.5748 / 255`; the factors sum to 0.
const V: [i32; 3] = [28785, -26145, -2640];

/// One picture in three planes.
#[derive(Clone, Debug)]
pub(super) struct Planes {
    /// Rows, even.
    pub(super) height: usize,
    /// Columns, even.
    pub(super) width: usize,
    /// Brightness: `[height, width]`.
    pub(super) y: Vec<u8>,
    /// Blue difference: `[height / 2, width / 2]`.
    pub(super) u: Vec<u8>,
    /// Red difference: `[height / 2, width / 2]`.
    pub(super) v: Vec<u8>,
}

impl Planes {
    /// Planes for pictures of this even size.
    pub(super) fn new(height: usize, width: usize) -> Self {
        let quarter = height / 2 * (width / 2);
        Self { height, width, y: vec![0; height * width], u: vec![0; quarter], v: vec![0; quarter] }
    }

    /// Converts `[height, width, 3]`. Four pixels share the colour of their mean.
    pub(super) fn fill(&mut self, rgb: &[u8]) {
        let half = self.width / 2;
        let lines = rgb.chunks_exact(self.width * 6).zip(self.y.chunks_exact_mut(self.width * 2));
        let colours = self.u.chunks_exact_mut(half).zip(self.v.chunks_exact_mut(half));
        for ((rgb, y), (u, v)) in lines.zip(colours) {
            for (y, pixel) in y.iter_mut().zip(rgb.chunks_exact(3)) {
                *y = brightness(pixel);
            }
            let (upper, lower) = rgb.split_at(self.width * 3);
            let squares = upper.chunks_exact(6).zip(lower.chunks_exact(6));
            for ((upper, lower), (u, v)) in squares.zip(u.iter_mut().zip(v)) {
                let sum = [0, 1, 2].map(|c| {
                    i32::from(upper[c]) + i32::from(upper[c + 3]) + i32::from(lower[c]) + i32::from(lower[c + 3])
                });
                *u = difference(U, sum);
                *v = difference(V, sum);
            }
        }
    }
}

fn brightness(pixel: &[u8]) -> u8 {
    let sum = Y[0] * i32::from(pixel[0]) + Y[1] * i32::from(pixel[1]) + Y[2] * i32::from(pixel[2]);
    (16 + ((sum + (1 << (SHIFT - 1))) >> SHIFT)) as u8
}

/// Of the sum of four pixels.
fn difference(factors: [i32; 3], sum: [i32; 3]) -> u8 {
    let sum = factors[0] * sum[0] + factors[1] * sum[1] + factors[2] * sum[2];
    (128 + ((sum + (1 << (SHIFT + 1))) >> (SHIFT + 2))) as u8
}

#[cfg(test)]
mod tests {
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
}
