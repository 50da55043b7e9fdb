//! Reads `processor_config.json`. A missing key means the reference's default, not the released
//! value.

use std::collections::BTreeMap;
use std::path::Path;

use jobs::refusal::Refusal;
use serde::Deserialize;

use crate::gr00t::directory::processor_dir;
use crate::gr00t::processor::modality::Modalities;
use crate::image::Geometry;
use crate::json::Document;

/// Maximum picture edge that a processor may ask for, in pixels.
const LONGEST_EDGE: usize = 8192;
/// Maximum width of a network's state or action.
const WIDEST: usize = 1 << 16;

/// The settings with which the processor was trained.
#[derive(Clone, Debug)]
pub struct ProcessorConfig {
    /// Modalities by embodiment tag.
    pub embodiments: BTreeMap<String, Modalities>,
    /// How pictures are resized.
    pub geometry: Geometry,
    /// Whether upper case and punctuation are removed from instructions.
    pub formalize_language: bool,
    /// How values are normalised.
    pub scaling: Scaling,
}

/// How values are normalised, and how many the network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Scaling {
    /// Width of the network's state, which is padded with zeros.
    pub max_state_dim: usize,
    /// Width of the network's actions.
    pub max_action_dim: usize,
    /// Whether the range is from the 1st to the 99th percentile instead of from minimum to maximum.
    pub use_percentiles: bool,
    /// Whether normalised states are clipped to [-1, 1].
    pub clip_outliers: bool,
    /// Whether the state keys listed for it are encoded as sine and cosine.
    #[serde(rename = "apply_sincos_state_encoding")]
    pub sin_cos_states: bool,
    /// Whether relative actions are added to the state.
    pub use_relative_action: bool,
    /// Whether the network gets zeros instead of the state.
    pub exclude_state: bool,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            max_state_dim: 29,
            max_action_dim: 29,
            use_percentiles: false,
            clip_outliers: true,
            sin_cos_states: false,
            use_relative_action: false,
            exclude_state: false,
        }
    }
}

impl Scaling {
    /// Returns the statistics between which values lie.
    pub(super) fn range(&self) -> [&'static str; 2] {
        match self.use_percentiles {
            true => ["q01", "q99"],
            false => ["min", "max"],
        }
    }
}

/// The rest of `processor_kwargs`.
#[derive(Deserialize)]
#[serde(default)]
struct Arguments {
    use_albumentations: bool,
    shortest_image_edge: Option<usize>,
    crop_fraction: Option<f64>,
    image_crop_size: Option<[usize; 2]>,
    image_target_size: Option<[usize; 2]>,
    formalize_language: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            use_albumentations: false,
            shortest_image_edge: Some(256),
            crop_fraction: Some(0.95),
            image_crop_size: None,
            image_target_size: None,
            formalize_language: true,
        }
    }
}

impl ProcessorConfig {
    /// Reads and checks a `processor_config.json`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names file and field.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        Self::from_json(&Document::read(path)?)
    }

    /// Reads the `processor_config.json` of a model directory.
    ///
    /// # Errors
    /// As [`ProcessorConfig::read`].
    pub fn of(model_dir: &Path) -> Result<Self, Refusal> {
        Self::read(&processor_dir(model_dir)?.join("processor_config.json"))
    }

    fn from_json(file: &Document) -> Result<Self, Refusal> {
        let embodiments: BTreeMap<String, Modalities> =
            file.get(&["processor_kwargs", "modality_configs"])?;
        for (tag, modalities) in &embodiments {
            modalities.check(file, &["processor_kwargs", "modality_configs", tag])?;
        }
        let arguments: Arguments = file.get(&["processor_kwargs"])?;
        let scaling: Scaling = file.get(&["processor_kwargs"])?;
        for (name, width) in [
            ("max_state_dim", scaling.max_state_dim),
            ("max_action_dim", scaling.max_action_dim),
        ] {
            check_range(file, name, &[width], WIDEST)?;
        }
        Ok(Self {
            embodiments,
            geometry: arguments.geometry(file)?,
            formalize_language: arguments.formalize_language,
            scaling,
        })
    }

    /// Returns the embodiment tags of the checkpoint.
    pub fn tags(&self) -> Vec<&str> {
        self.embodiments.keys().map(String::as_str).collect()
    }
}

impl Arguments {
    fn geometry(&self, file: &Document) -> Result<Geometry, Refusal> {
        let need = |holds, name, wanted| file.need(holds, &["processor_kwargs", name], wanted);
        let edges = |name, found: Option<[usize; 2]>| {
            need(found.is_some(), name, "expected height and width in pixels")?;
            let edges = found.unwrap_or_default();
            check_range(file, name, &edges, LONGEST_EDGE)?;
            Ok::<_, Refusal>(edges)
        };
        let crop = || edges("image_crop_size", self.image_crop_size);
        let target = || edges("image_target_size", self.image_target_size);
        if !self.use_albumentations {
            let (crop, target) = (crop()?, target()?);
            let fits = crop[0] <= target[0] && crop[1] <= target[1];
            need(
                fits,
                "image_crop_size",
                "expected at most `image_target_size`",
            )?;
            return Ok(Geometry::Bilinear { crop, target });
        }
        let edge = match self.shortest_image_edge {
            Some(edge) => edge,
            None => target()?[0],
        };
        let crop_fraction = match self.crop_fraction {
            Some(fraction) => fraction,
            None => crop()?[0] as f64 / target()?[0] as f64,
        };
        check_range(file, "shortest_image_edge", &[edge], LONGEST_EDGE)?;
        let (fits, wanted) = (
            crop_fraction > 0.0 && crop_fraction <= 1.0,
            "expected a number above 0 and up to 1",
        );
        need(fits, "crop_fraction", wanted)?;
        Ok(Geometry::Area {
            edge,
            crop_fraction,
        })
    }
}

fn check_range(file: &Document, name: &str, sizes: &[usize], most: usize) -> Result<(), Refusal> {
    let fits = sizes.iter().all(|size| (1..=most).contains(size));
    let wanted = format_args!("expected a whole number from 1 to {most}");
    file.need(fits, &["processor_kwargs", name], wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ProcessorConfig, Refusal> {
        let path = Path::new("processor_config.json");
        ProcessorConfig::from_json(&Document::parse(path, text.as_bytes())?)
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
            (config.formalize_language, config.scaling),
            (true, Scaling::default())
        );
        let Scaling {
            max_state_dim,
            max_action_dim,
            clip_outliers,
            ..
        } = config.scaling;
        assert_eq!((max_state_dim, max_action_dim), (29, 29));
        assert!(clip_outliers);
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
