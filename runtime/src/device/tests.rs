//! The choice of a device: a file of requests.

use super::*;

const NO_DRIVER: &str = "no NVIDIA driver: /proc/driver/nvidia is missing";

/// Returns reason and warnings of the choice for `local rank/local ranks`, followed by what is
/// asked for and by the number of visible GPUs.
fn decided(given: &str) -> String {
    let mut words = given.split_whitespace();
    let (rank, world) = words.next().unwrap().split_once('/').unwrap();
    let mut request = DeviceRequest {
        local_rank: rank.parse().ok(),
        local_world_size: world.parse().unwrap(),
        ..DeviceRequest::default()
    };
    let mut visible = Err(NO_DRIVER.to_owned());
    for word in words {
        let (name, value) = word.split_once('=').unwrap();
        match name {
            "id" => request.policy_device_id = value.parse().ok(),
            "device" => request.policy_device = Some(value.to_owned()),
            "config" => request.config_device = Some(value.to_owned()),
            "gpus" => visible = Ok(value.parse().unwrap()),
            "placed" => {
                request.placed = Some(Placed {
                    device: value.parse().unwrap(),
                    reason: "rollout worker 1 is placed on GPU 3".to_owned(),
                });
            }
            _ => panic!("{word}"),
        }
    }
    match resolve(&request, &visible) {
        Ok(Decision {
            device,
            reason,
            warnings,
        }) => {
            assert!(
                reason.starts_with(&format!("{}: ", name(device))),
                "{given}"
            );
            let warnings = warnings
                .iter()
                .map(|warning| format!("\nwarning: {warning}"));
            reason + &warnings.collect::<String>()
        }
        Err(err) => format!("error: {err}"),
    }
}

#[test]
fn the_weightiest_request_decides_and_what_is_overruled_is_said() {
    rig::cases::check("src/device/choices.txt", decided);
}
