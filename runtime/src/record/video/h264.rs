//! Encodes images as H.264 samples for an mp4 file, with Cisco's OpenH264.

use openh264::encoder::{
    BitRate, Complexity, Encoder, EncoderConfig, FrameRate, FrameType, IntraFramePeriod,
    RateControlMode, UsageType, VuiConfig,
};
use openh264::formats::YUVSlices;
use openh264::{OpenH264API, Timestamp};

use crate::record::video::yuv::Planes;

/// Skips of one image before the encoder counts as stuck. An image of `n` times its share of the
/// bit rate causes about `n` skips, so this is never reached above [`LEAST_BITRATE`].
const MOST_SKIPS: u32 = 10_000;

/// Bit rate in bits per second below which no image is recognisable.
pub(in crate::record) const LEAST_BITRATE: u32 = 10_000;

/// Frame rate, bit rate and key frame distance.
#[derive(Clone, Copy, Debug)]
pub(in crate::record) struct Rate {
    /// Images per second, at least 1.
    pub(in crate::record) fps: u32,
    /// Average bits per second.
    pub(in crate::record) bitrate: u32,
    /// Number of images from one key frame to the next, at least 1; players can seek to key frames.
    pub(in crate::record) keyframe_every: u32,
}

/// One encoded image.
#[derive(Debug, Default)]
pub(in crate::record) struct EncodedImage {
    /// NAL units without parameter sets, each prefixed by its length: `u32`, big endian.
    pub(super) bytes: Vec<u8>,
    /// True for a key frame, which depends on no other image.
    pub(super) keyframe: bool,
    /// Sequence parameter set, with a key frame.
    pub(super) sps: Vec<u8>,
    /// Picture parameter set, with a key frame.
    pub(super) pps: Vec<u8>,
}

/// An encoder for images of one size, which the first image determines.
pub(super) struct H264 {
    encoder: Encoder,
    rate: Rate,
    coded: u64,
}

impl H264 {
    /// Creates an encoder with one thread and the fastest search, because recording must not take
    /// cores from simulators. Without `skip_frames` OpenH264 prints a warning on stderr and does
    /// not keep the bit rate; [`H264::encode`] explains why no image is lost with it.
    pub(super) fn new(rate: Rate) -> Result<Self, String> {
        let config = EncoderConfig::new()
            .usage_type(UsageType::CameraVideoRealTime)
            .complexity(Complexity::Low)
            .num_threads(1)
            .skip_frames(true)
            .rate_control_mode(RateControlMode::Bitrate)
            .bitrate(BitRate::from_bps(rate.bitrate))
            .max_frame_rate(FrameRate::from_hz(rate.fps as f32))
            .intra_frame_period(IntraFramePeriod::from_num_frames(rate.keyframe_every))
            .scene_change_detect(false)
            .adaptive_quantization(false)
            .background_detection(false)
            .vui(VuiConfig::bt709());
        let encoder = Encoder::with_api_config(OpenH264API::from_source(), config);
        let encoder = encoder.map_err(|err| err.to_string())?;
        Ok(Self {
            encoder,
            rate,
            coded: 0,
        })
    }

    /// Encodes the next image, as a key frame if that is asked for. OpenH264 skips an image when
    /// its virtual buffer is too full for the bit rate, and drains the buffer by one image's share;
    /// so the same image is offered until it is taken.
    pub(super) fn encode(
        &mut self,
        planes: &Planes,
        keyframe: bool,
    ) -> Result<EncodedImage, String> {
        for _ in 0..=MOST_SKIPS {
            if let Some(sample) = self.offer(planes, keyframe)? {
                self.coded += 1;
                return Ok(sample);
            }
        }
        let picture = self.coded;
        Err(format!(
            "OpenH264 skipped picture {picture} {MOST_SKIPS} times"
        ))
    }

    fn offer(&mut self, planes: &Planes, keyframe: bool) -> Result<Option<EncodedImage>, String> {
        // Before its first image the encoder is not initialised; that image is a key frame anyway.
        if keyframe && self.coded > 0 {
            self.encoder.force_intra_frame();
        }
        let (width, height) = (planes.width, planes.height);
        let source = YUVSlices::new(
            (&planes.y, &planes.u, &planes.v),
            (width, height),
            (width, width / 2, width / 2),
        );
        let time = Timestamp::from_millis(self.coded * 1000 / u64::from(self.rate.fps));
        let stream = self.encoder.encode_at(&source, time);
        let stream = stream.map_err(|err| err.to_string())?;
        let keyframe = match stream.frame_type() {
            FrameType::IDR => true,
            FrameType::I | FrameType::P => false,
            FrameType::Skip => return Ok(None),
            other => {
                let number = self.coded;
                return Err(format!("OpenH264 answered picture {number} with {other:?}"));
            }
        };
        let mut sample = EncodedImage {
            keyframe,
            ..EncodedImage::default()
        };
        for layer in (0..stream.num_layers()).filter_map(|l| stream.layer(l)) {
            for unit in (0..layer.nal_count()).filter_map(|n| layer.nal_unit(n)) {
                sample.add(unit);
            }
        }
        Ok(Some(sample))
    }
}

impl EncodedImage {
    /// Adds a NAL unit with its start code (ITU-T H.264 §7.3.1 and Annex B).
    fn add(&mut self, unit: &[u8]) {
        const SPS: u8 = 7;
        const PPS: u8 = 8;
        let zeros = unit.iter().take_while(|byte| **byte == 0).count();
        let Some((1, unit)) = unit[zeros..].split_first() else {
            return;
        };
        match unit.first().map(|header| header & 0x1f) {
            None => {}
            Some(SPS) => self.sps = unit.to_vec(),
            Some(PPS) => self.pps = unit.to_vec(),
            Some(_) => {
                self.bytes.extend((unit.len() as u32).to_be_bytes());
                self.bytes.extend(unit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u32) -> Planes {
        let mut planes = Planes::new(64, 96);
        planes.y.fill_with(crate::record::tests::noise(seed));
        planes
    }

    #[test]
    fn no_picture_is_dropped_although_noise_exceeds_the_bit_rate() {
        let mut h264 = H264::new(Rate {
            fps: 20,
            bitrate: 10_000,
            keyframe_every: 40,
        })
        .unwrap();
        let sizes: Vec<usize> = (0..60)
            .map(|i| h264.encode(&noise(i), false).unwrap().bytes.len())
            .collect();
        assert!(sizes.iter().all(|size| *size > 4), "{sizes:?}");
        assert_eq!(h264.coded, 60);
    }

    #[test]
    fn a_keyframe_comes_when_it_is_wanted_and_brings_parameter_sets() {
        let mut h264 = H264::new(Rate {
            fps: 30,
            bitrate: 500_000,
            keyframe_every: 60,
        })
        .unwrap();
        let first = h264.encode(&noise(1), true).unwrap();
        let second = h264.encode(&noise(2), false).unwrap();
        let third = h264.encode(&noise(3), true).unwrap();
        assert_eq!(
            (first.keyframe, second.keyframe, third.keyframe),
            (true, false, true)
        );
        assert!(!first.sps.is_empty() && first.sps == third.sps && first.pps == third.pps);
    }
}
