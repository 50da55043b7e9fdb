//! Reads `processor_config.json`. A missing key means the reference's default, not the released
//! value.

use std::path::Path;

use jobs::refusal::Refusal;

use crate::gr00t::processor::field::{Field, Json};
use crate::gr00t::processor::modality::Modalities;

/// Maximum picture edge that a processor may ask for, in pixels.
const LONGEST_EDGE: usize = 8192;
/// Maximum width of a network's state or action.
const WIDEST: usize = 1 << 16;

/// The settings with which the processor was trained.
#[derive(Clone, Debug)]
pub struct ProcessorConfig {
    /// Modalities by embodiment tag, in the file's order.
    pub embodiments: Vec<(String, Modalities)>,
    /// How pictures are resized.
    pub geometry: Geometry,
    /// Whether upper case and punctuation are removed from instructions.
    pub formalize_language: bool,
    /// Width of the network's state, which is padded with zeros.
    pub max_state_dim: usize,
    /// Width of the network's actions.
    pub max_action_dim: usize,
    /// How values are normalised.
    pub scaling: Scaling,
}

/// How pictures are resized after they were padded with zeros to a square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Geometry {
    /// `use_albumentations`: resize to `edge`, crop the middle, and resize to `edge` again, by
    /// area.
    Area {
        /// Edge of the result in pixels.
        edge: usize,
        /// Edge of the crop as a fraction, above 0 and up to 1.
        crop_fraction: f64,
    },
    /// torchvision: resize to `target`, crop the middle `crop`, and resize to `target`, bilinear
    /// with antialiasing.
    Bilinear {
        /// Height and width of the crop in pixels.
        crop: [usize; 2],
        /// Height and width of the result in pixels.
        target: [usize; 2],
    },
}

/// How values are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// Whether the range is from the 1st to the 99th percentile instead of from minimum to maximum.
    pub use_percentiles: bool,
    /// Whether normalised states are clipped to [-1, 1].
    pub clip_outliers: bool,
    /// Whether the state keys listed for it are encoded as sine and cosine.
    pub sin_cos_states: bool,
    /// Whether relative actions are added to the state.
    pub use_relative_action: bool,
    /// Whether the network gets zeros instead of the state.
    pub exclude_state: bool,
}

impl ProcessorConfig {
    /// Reads and checks a `processor_config.json`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names file and field.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        Self::from_json(&Json::read(path)?)
    }

    fn from_json(file: &Json) -> Result<Self, Refusal> {
        let kwargs = file.root().get("processor_kwargs")?;
        let mut embodiments = Vec::new();
        for (tag, modalities) in kwargs.get("modality_configs")?.members()? {
            embodiments.push((tag.to_owned(), Modalities::read(&modalities)?));
        }
        Ok(Self {
            embodiments,
            geometry: Geometry::read(&kwargs)?,
            formalize_language: flag(&kwargs, "formalize_language", true)?,
            max_state_dim: size(&kwargs, "max_state_dim", 29)?,
            max_action_dim: size(&kwargs, "max_action_dim", 29)?,
            scaling: Scaling {
                use_percentiles: flag(&kwargs, "use_percentiles", false)?,
                clip_outliers: flag(&kwargs, "clip_outliers", true)?,
                sin_cos_states: flag(&kwargs, "apply_sincos_state_encoding", false)?,
                use_relative_action: flag(&kwargs, "use_relative_action", false)?,
                exclude_state: flag(&kwargs, "exclude_state", false)?,
            },
        })
    }

    /// Returns the embodiment tags of the checkpoint.
    pub fn tags(&self) -> Vec<&str> {
        self.embodiments
            .iter()
            .map(|(tag, _)| tag.as_str())
            .collect()
    }

    /// Returns the modalities of an embodiment, if the checkpoint has it.
    pub fn modalities(&self, tag: &str) -> Option<&Modalities> {
        self.embodiments
            .iter()
            .find(|(name, _)| name == tag)
            .map(|(_, modalities)| modalities)
    }
}

impl Geometry {
    fn read(kwargs: &Field) -> Result<Self, Refusal> {
        let crop = kwargs.get("image_crop_size")?;
        let target = kwargs.get("image_target_size")?;
        if !flag(kwargs, "use_albumentations", false)? {
            let (inner, outer) = (edges(&crop)?, edges(&target)?);
            if inner[0] > outer[0] || inner[1] > outer[1] {
                return Err(crop.refuse("expected at most `image_target_size`"));
            }
            return Ok(Self::Bilinear {
                crop: inner,
                target: outer,
            });
        }
        let (edge, fraction) = (
            kwargs.get("shortest_image_edge")?,
            kwargs.get("crop_fraction")?,
        );
        let edge = match &edge {
            field if field.is_missing() => 256,
            field if field.is_null() => edges(&target)?[0],
            field => field.size(1, LONGEST_EDGE)?,
        };
        let crop_fraction = match &fraction {
            field if field.is_missing() => 0.95,
            field if field.is_null() => edges(&crop)?[0] as f64 / edges(&target)?[0] as f64,
            field => field.number()?,
        };
        if crop_fraction <= 0.0 || crop_fraction > 1.0 {
            return Err(fraction.refuse("expected a number above 0 and up to 1"));
        }
        Ok(Self::Area {
            edge,
            crop_fraction,
        })
    }
}

fn flag(kwargs: &Field, name: &str, default: bool) -> Result<bool, Refusal> {
    let field = kwargs.get(name)?;
    if field.is_missing() {
        Ok(default)
    } else {
        field.bool()
    }
}

fn size(kwargs: &Field, name: &str, default: usize) -> Result<usize, Refusal> {
    let field = kwargs.get(name)?;
    if field.is_missing() {
        Ok(default)
    } else {
        field.size(1, WIDEST)
    }
}

fn edges(field: &Field) -> Result<[usize; 2], Refusal> {
    let sizes = match field.is_list() {
        true => field
            .items()?
            .iter()
            .map(|item| item.size(1, LONGEST_EDGE))
            .collect::<Result<Vec<_>, _>>()?,
        false => Vec::new(),
    };
    sizes
        .try_into()
        .map_err(|_| field.refuse("expected height and width in pixels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ProcessorConfig, Refusal> {
        ProcessorConfig::from_json(&Json::parse(
            Path::new("processor_config.json"),
            text.as_bytes(),
        )?)
    }

    #[test]
    fn a_missing_key_has_the_default_of_the_reference() {
        let text = r#"{"processor_kwargs": {"modality_configs": {},
            "image_crop_size": [230, 230], "image_target_size": [256, 256]}}"#;
        let config = parse(text).unwrap();
        assert_eq!(
            config.geometry,
            Geometry::Bilinear {
                crop: [230, 230],
                target: [256, 256]
            }
        );
        assert_eq!(
            (
                config.max_state_dim,
                config.max_action_dim,
                config.formalize_language
            ),
            (29, 29, true)
        );
        assert!(
            config.scaling.clip_outliers
                && !config.scaling.use_percentiles
                && !config.scaling.use_relative_action
        );
    }

    #[test]
    fn a_null_edge_and_fraction_come_from_the_sizes() {
        let text = r#"{"processor_kwargs": {"modality_configs": {}, "use_albumentations": true, "crop_fraction": null,
            "shortest_image_edge": null, "image_crop_size": [58, 58], "image_target_size": [64, 64]}}"#;
        assert_eq!(
            parse(text).unwrap().geometry,
            Geometry::Area {
                edge: 64,
                crop_fraction: 58.0 / 64.0
            }
        );
        let text = r#"{"processor_kwargs": {"modality_configs": {}, "use_albumentations": true}}"#;
        assert_eq!(
            parse(text).unwrap().geometry,
            Geometry::Area {
                edge: 256,
                crop_fraction: 0.95
            }
        );
    }

    #[test]
    fn a_wrong_field_is_named_with_its_value() {
        let text = r#"{"processor_kwargs": {"modality_configs": {}, "use_albumentations": true, "crop_fraction": 1.5}}"#;
        assert_eq!(
            parse(text).unwrap_err().to_string(),
            "`processor_config.json`: `processor_kwargs.crop_fraction` is 1.5, expected a number \
             above 0 and up to 1"
        );
    }

    #[test]
    fn a_pose_format_that_does_not_exist_is_refused_with_its_place() {
        let text = include_str!("tests/processor_config.json").replace("XYZ_ROT6D", "XYZ_QUAT");
        assert!(
            parse(&text)
                .unwrap_err()
                .to_string()
                .contains("robot.action.action_configs[0].format` is \"XYZ_QUAT\"")
        );
    }
}
