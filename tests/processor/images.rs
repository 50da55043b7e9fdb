//! Tests of images: every byte is that of the reference.

use std::path::Path;

use models::gr00t::processor::{Geometry, Image, PictureProcessor, RgbPicture};
use serde_json::Value;

use crate::processor::files::{cases_with, json, tensors};

pub fn view(image: &Image) -> RgbPicture<'_> {
    RgbPicture::new(image.height, image.width, &image.rgb).unwrap()
}

fn pair(value: &Value) -> [usize; 2] {
    [0, 1].map(|index| value[index].as_u64().unwrap() as usize)
}

fn geometry(params: &Value) -> Geometry {
    if params["use_albumentations"] == false {
        return Geometry::Bilinear {
            crop: pair(&params["image_crop_size"]),
            target: pair(&params["image_target_size"]),
        };
    }
    let edge = params["shortest_image_edge"]
        .as_u64()
        .map(|edge| edge as usize);
    let fraction = params["crop_fraction"].as_f64();
    let ratio = || {
        pair(&params["image_crop_size"])[0] as f64 / pair(&params["image_target_size"])[0] as f64
    };
    Geometry::Area {
        edge: edge.unwrap_or_else(|| pair(&params["image_target_size"])[0]),
        crop_fraction: fraction.unwrap_or_else(ratio),
    }
}

fn pictures(case: &Path, geometry: Geometry) -> PictureProcessor {
    PictureProcessor::read(geometry, &case.join("vlm/preprocessor_config.json")).unwrap()
}

#[test]
fn pictures_are_those_of_the_reference_byte_for_byte() {
    for case in cases_with("cases.json") {
        let (inputs, expected) = (
            tensors(&case.join("inputs.safetensors")),
            tensors(&case.join("expected.safetensors")),
        );
        for entry in json(&case.join("cases.json"))["images"].as_array().unwrap() {
            let name = format!("{}.{}", entry["mode"].as_str().unwrap(), entry["image"]);
            let raw = inputs[&format!("img.{}", entry["image"])].image();
            let found = pictures(&case, geometry(&entry["params"])).transform(view(&raw));
            assert!(found == expected[&format!("{name}.u8")].image(), "{name}");
        }
    }
}

#[test]
fn patches_are_those_of_the_reference() {
    for case in cases_with("cases.json") {
        let (inputs, expected) = (
            tensors(&case.join("inputs.safetensors")),
            tensors(&case.join("expected.safetensors")),
        );
        for entry in json(&case.join("cases.json"))["images"].as_array().unwrap() {
            let name = format!("{}.{}", entry["mode"].as_str().unwrap(), entry["image"]);
            let raw = inputs[&format!("img.{}", entry["image"])].image();
            let prepared = pictures(&case, geometry(&entry["params"]))
                .prepare(&[view(&raw)])
                .unwrap();
            let found: Vec<f32> = Vec::try_from(prepared.pixels.view(-1)).unwrap();
            assert_eq!(
                serde_json::json!(prepared.grids),
                entry["image_grid_thw"],
                "{name}"
            );
            for (found, wanted) in found
                .iter()
                .zip(entry["pixel_values_first_row_head"].as_array().unwrap())
            {
                assert_eq!(*found, wanted.as_f64().unwrap() as f32, "{name}");
            }
            let sum: f64 = found.iter().map(|value| f64::from(*value)).sum();
            let absolute: f64 = found.iter().map(|value| f64::from(value.abs())).sum();
            assert!(
                (sum - entry["pixel_values_sum"].as_f64().unwrap()).abs() < 1e-6,
                "{name}: {sum}"
            );
            assert!(
                (absolute - entry["pixel_values_abs_sum"].as_f64().unwrap()).abs() < 1e-6,
                "{name}: {absolute}"
            );
            if let Some(wanted) = expected.get(&format!("{name}.pixel_values")) {
                assert!(found == wanted.floats(), "{name}");
            }
        }
    }
}
