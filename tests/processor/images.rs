//! Tests of images: every byte and every patch is that of the reference.

use models::gr00t::model::Normalise;
use models::gr00t::processor::{Geometry, Image, PictureProcessor, RgbPicture};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::processor::files::{bytes, cases_with, floats, json, tensors};

/// Returns a picture of a golden: height, width and 3 colours.
fn image(tensor: &Tensor) -> Image {
    let (height, width, 3) = tensor.size3().unwrap() else {
        panic!("{:?} is no picture", tensor.size())
    };
    Image {
        height: height as usize,
        width: width as usize,
        rgb: bytes(tensor),
    }
}

fn view(image: &Image) -> RgbPicture<'_> {
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

#[test]
fn pictures_and_patches_are_those_of_the_reference() {
    for case in cases_with("cases.json") {
        let (inputs, expected) = (
            tensors(&case.join("inputs.safetensors")),
            tensors(&case.join("expected.safetensors")),
        );
        for entry in json(&case.join("cases.json"))["images"].as_array().unwrap() {
            let name = format!("{}.{}", entry["mode"].as_str().unwrap(), entry["image"]);
            let raw = image(&inputs[&format!("img.{}", entry["image"])]);
            let config = case.join("vlm/preprocessor_config.json");
            let pictures = PictureProcessor::read(geometry(&entry["params"]), &config).unwrap();
            let found = pictures.transform(view(&raw));
            assert!(found == image(&expected[&format!("{name}.u8")]), "{name}");

            let prepared = pictures.prepare(&[view(&raw)]).unwrap();
            let normalise = Normalise::new(pictures.scale, Device::Cpu);
            let found = floats(&normalise.apply(&prepared.pixels, Kind::Float));
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
            for (found, wanted) in [
                (sum, &entry["pixel_values_sum"]),
                (absolute, &entry["pixel_values_abs_sum"]),
            ] {
                let apart = (found - wanted.as_f64().unwrap()).abs();
                assert!(apart < 1e-6, "{name}: {found}");
            }
            if let Some(wanted) = expected.get(&format!("{name}.pixel_values")) {
                assert!(found == floats(wanted), "{name}");
            }
        }
    }
}
