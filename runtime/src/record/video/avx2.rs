//! Colour conversion with AVX2 if the CPU has it. It is four times as fast as with the instructions
//! of every x86-64, which take as much time as the encoder.

use crate::record::video::yuv::Planes;

impl Planes {
    /// Converts `[height, width, 3]`. Each block of four pixels has the mean of their colours.
    pub(super) fn fill(&mut self, rgb: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the only precondition of the call is that the CPU has AVX2, which was just
            // checked.
            return unsafe { convert(self, rgb) };
        }
        self.convert(rgb);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn convert(planes: &mut Planes, rgb: &[u8]) {
    planes.convert(rgb);
}
