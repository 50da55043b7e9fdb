//! Sine and cosine with the same rounding as numpy.
//!
//! numpy reduces `float32` angles to within an eighth of a turn and evaluates a polynomial there.
//! One result in seven differs in its last bit from the nearest float, which is what the C library
//! returns. Steps and coefficients are those of numpy 2, `loops_trigonometric.dispatch.cpp`, on
//! machines with fused multiply-add.

/// The constant 2/π.
const QUARTERS_PER_RADIAN: f32 = f32::from_bits(0x3f22_f983);
/// −π/2 as a sum, so that multiples of it lose no precision.
const QUARTER: [f32; 3] = [
    f32::from_bits(0xbfc9_0fd8),
    f32::from_bits(0xb4a8_885a),
    f32::from_bits(0xa7c2_34c4),
];
/// Coefficients of x⁹, x⁷, x⁵, x³.
const SINE: [f32; 4] = [
    f32::from_bits(0x363e_9dde),
    f32::from_bits(0xb950_35dd),
    f32::from_bits(0x3c08_88cd),
    f32::from_bits(0xbe2a_aaab),
];
/// Coefficients of x⁸, x⁶, x⁴, x², 1.
const COSINE: [f32; 5] = [
    f32::from_bits(0x37cc_730b),
    f32::from_bits(0xbab6_036e),
    f32::from_bits(0x3d2a_aa9e),
    -0.5,
    1.0,
];
/// Angles in radians above which numpy calls the C library: for the sine and for the cosine.
const LARGE: [f32; 2] = [117_435.99, 71_476.06];
/// Adding and subtracting this constant rounds to the nearest integer.
const ROUNDER: f32 = 12_582_912.0;

/// Returns sine and cosine of an angle in radians.
pub(super) fn sin_cos(x: f32) -> [f32; 2] {
    // Above these limits, and for NaN, the C library is used.
    let small = LARGE.map(|limit| x.abs() <= limit);
    let quarters = x.mul_add(QUARTERS_PER_RADIAN, ROUNDER) - ROUNDER;
    let rest = QUARTER
        .iter()
        .fold(x, |rest, part| quarters.mul_add(*part, rest));
    let square = rest * rest;
    let polynomial = |coefficients: &[f32]| {
        coefficients
            .iter()
            .fold(0.0, |sum: f32, c| sum.mul_add(square, *c))
    };
    let sine = polynomial(&SINE).mul_add(square, 0.0).mul_add(rest, rest);
    let cosine = polynomial(&COSINE);
    let pick = |quarter: i32| {
        let value = if quarter & 1 == 0 { sine } else { cosine };
        if quarter & 2 == 0 { value } else { -value }
    };
    let quarter = quarters as i32;
    [
        if small[0] { pick(quarter) } else { x.sin() },
        if small[1] {
            pick(quarter.wrapping_add(1))
        } else {
            x.cos()
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Angle, sine and cosine as bits: numpy 2.4 on x86-64.
    const NUMPY: [[u32; 3]; 16] = [
        [0xc019_f889, 0xbf2b_d266, 0xbf3d_c586],
        [0xc07e_46e5, 0x3f3d_2aab, 0xbf2c_7cd2],
        [0xbf3e_bde2, 0xbf2d_93a6, 0x3f3c_2af3],
        [0x3fa1_7373, 0x3f73_d6e8, 0x3e9b_ed50],
        [0x405a_1ef6, 0xbe86_dca1, 0xbf76_f5ac],
        [0x3ea8_8250, 0x3ea5_7bbc, 0x3f72_4283],
        [0xbfd4_3771, 0xbf7f_074e, 0xbdb2_3f97],
        [0xc016_ad86, 0xbf35_5ac3, 0xbf34_aefb],
        [0x400f_c25a, 0x3f47_ca59, 0xbf20_0fd4],
        [0x409c_f06e, 0xbf7b_4c3e, 0x3e43_5cc7],
        [0x3f51_7c86, 0x3f3a_e094, 0x3f2e_f724],
        [0xc06c_cc92, 0x3f07_a290, 0xbf59_1d92],
        [0x3a83_126f, 0x3a83_126e, 0x3f7f_fff8],
        [0xc47a_0000, 0xbf53_ae61, 0x3f0f_f813],
        [0x478a_ac00, 0x3bc5_8d87, 0x3f7f_fecf],
        [0x0000_0000, 0x0000_0000, 0x3f80_0000],
    ];

    #[test]
    fn the_last_bit_is_numpys() {
        for [angle, sine, cosine] in NUMPY {
            assert_eq!(
                sin_cos(f32::from_bits(angle)).map(f32::to_bits),
                [sine, cosine],
                "{}",
                f32::from_bits(angle)
            );
        }
    }

    #[test]
    fn what_is_no_angle_has_no_sine() {
        for x in [f32::NAN, f32::INFINITY] {
            assert!(sin_cos(x).iter().all(|value| value.is_nan()));
        }
        assert_eq!(sin_cos(1e6), [1e6f32.sin(), 1e6f32.cos()]);
    }
}
