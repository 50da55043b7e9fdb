//! The choice of a device, with made-up devices.

use super::*;

/// Reads `nvidia/<CUDA's number>/<PCI address>`, of which each may be missing.
fn device(word: &str) -> EglDevice {
    let parts: Vec<&str> = word.split('/').collect();
    let driver = match parts[0] {
        "nvidia" => EglDriver::Nvidia {
            cuda: parts[1].parse().ok(),
        },
        "mesa-on-nvidia" => EglDriver::MesaOnNvidia,
        "other" => EglDriver::OtherCard,
        "cpu" => EglDriver::Software,
        _ => panic!("{word}"),
    };
    let pci = parts.get(2).filter(|pci| !pci.is_empty());
    EglDevice {
        driver,
        pci: pci.map(|pci| (*pci).to_owned()),
    }
}

/// Reads `gpu=<number>/<PCI address>`, `asked=<device>`, `rank=<local rank>`.
fn request(words: &str) -> EglRequest {
    let mut request = EglRequest::default();
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        match name {
            "gpu" => {
                let (index, pci) = value.split_once('/').unwrap();
                request.local_rank = index.parse().unwrap();
                request.gpu = Some(Gpu {
                    index: request.local_rank,
                    number: None,
                    pci: Some(pci.to_owned()).filter(|pci| !pci.is_empty()),
                });
            }
            "asked" => request.device = value.parse().ok(),
            "rank" => request.local_rank = value.parse().unwrap(),
            _ => panic!("{word}"),
        }
    }
    request
}

/// Returns the order in which devices are tried, and what the user is told if the first opens.
fn chosen(given: &str) -> String {
    let (wanted, devices) = given.split_once(" of").unwrap();
    let wanted = request(wanted);
    let devices: Vec<_> = devices.split_whitespace().map(device).collect();
    match candidates(&devices, &wanted) {
        Ok(order) => {
            let said = order
                .first()
                .and_then(|&first| note(&devices, &wanted, first, &[]));
            format!("{order:?}\n{}", said.unwrap_or_default())
        }
        Err(err) => err.to_string(),
    }
}

#[test]
fn a_rank_gets_the_egl_device_of_its_gpu_or_the_next_best_and_is_told() {
    rig::cases::check("src/env/egl/choices.txt", chosen);
}

#[test]
fn the_reason_is_told_when_the_gpus_own_device_does_not_open() {
    let devices = ["nvidia/0/", "cpu"].map(device);
    let reasons = ["EGL device 0: permission denied".to_owned()];
    let told = note(&devices, &request("gpu=0/"), 1, &reasons).unwrap();
    let why = "the EGL device of cuda:0 does not open (EGL device 0: permission denied)";
    let wanted = format!("EGL draws pictures on the CPU: {why}; ");
    assert!(told.starts_with(&wanted), "{told}");
}

#[test]
fn a_pci_address_is_told_without_its_function() {
    assert_eq!(
        without_function("0000:3b:00.0").as_deref(),
        Some("0000:3b:00")
    );
    assert_eq!(
        [without_function("vgem"), without_function("soc.0")],
        [None, None]
    );
}

#[test]
fn mesa_alone_is_a_device_without_a_card() {
    let Ok(devices) = devices() else {
        return rig::need::lacks("EGL", "there is no library");
    };
    assert_eq!(devices.known.len(), devices.handles.len());
    if devices.known.len() == 1 && !Path::new("/dev/dri").exists() {
        let software = EglDevice {
            driver: EglDriver::Software,
            pci: None,
        };
        assert_eq!(devices.known, [software]);
    }
}
