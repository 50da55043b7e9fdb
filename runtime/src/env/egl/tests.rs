//! Tests of the device choice with made-up devices.

use super::*;

const SOFTWARE: EglDevice = EglDevice {
    driver: EglDriver::Software,
    pci: None,
};

fn nvidia(cuda: impl Into<Option<usize>>, pci: &str) -> EglDevice {
    let pci = Some(pci.to_owned()).filter(|pci| !pci.is_empty());
    EglDevice {
        driver: EglDriver::Nvidia { cuda: cuda.into() },
        pci,
    }
}

fn gpu(index: usize, pci: &str) -> EglRequest {
    let pci = Some(pci.to_owned()).filter(|pci| !pci.is_empty());
    let gpu = Gpu {
        index,
        number: None,
        pci,
    };
    EglRequest {
        gpu: Some(gpu),
        local_rank: index,
        ..EglRequest::default()
    }
}

fn first(devices: &[EglDevice], wanted: &EglRequest) -> usize {
    candidates(devices, wanted).unwrap()[0]
}

#[test]
fn the_pci_address_says_which_device_is_the_gpus_own() {
    let devices = [nvidia(1, "0000:81:00"), nvidia(0, "0000:3b:00"), SOFTWARE];
    assert_eq!(
        [
            first(&devices, &gpu(0, "0000:3b:00")),
            first(&devices, &gpu(1, "0000:81:00"))
        ],
        [1, 0]
    );
    assert_eq!(note(&devices, &gpu(0, "0000:3b:00"), 1, &[]), None);
}

#[test]
fn the_pci_address_is_believed_before_cudas_number() {
    let devices = [nvidia(0, "0000:81:00"), nvidia(None, "0000:3b:00")];
    assert_eq!(first(&devices, &gpu(0, "0000:3b:00")), 1);
}

#[test]
fn without_dri_files_cudas_number_says_it() {
    let devices = [
        nvidia(2, ""),
        nvidia(3, ""),
        nvidia(0, ""),
        nvidia(1, ""),
        SOFTWARE,
    ];
    let found = [0, 1, 2, 3].map(|index| first(&devices, &gpu(index, "0000:3b:00")));
    assert_eq!(found, [2, 3, 0, 1]);
}

#[test]
fn a_number_that_two_devices_have_is_not_believed() {
    let devices = [nvidia(0, ""), nvidia(0, ""), SOFTWARE];
    assert_eq!(
        [first(&devices, &gpu(0, "")), first(&devices, &gpu(1, ""))],
        [0, 1]
    );
    let told = note(&devices, &gpu(1, ""), 1, &[]).unwrap();
    let list = "0: NVIDIA, cuda:0; 1: NVIDIA, cuda:0; 2: Mesa on the CPU";
    let why = format!("which EGL device belongs to cuda:1 is not known ({list})");
    assert_eq!(
        told,
        format!("EGL draws pictures on device 1: {why}; --egl-device takes another")
    );
}

#[test]
fn ranks_spread_over_devices_that_nothing_identifies() {
    let devices = [SOFTWARE, nvidia(None, ""), nvidia(None, "")];
    let orders = [0, 1, 2].map(|index| candidates(&devices, &gpu(index, "")).unwrap());
    assert_eq!(orders, [[1, 2, 0], [2, 1, 0], [1, 2, 0]]);
}

#[test]
fn the_device_of_another_gpu_comes_before_the_cpu_and_is_told() {
    let devices = [SOFTWARE, nvidia(0, "0000:3b:00")];
    let wanted = gpu(1, "0000:81:00");
    assert_eq!(candidates(&devices, &wanted), Ok(vec![1, 0]));
    let list = "0: Mesa on the CPU; 1: NVIDIA, cuda:0, 0000:3b:00";
    let why = format!("no EGL device belongs to cuda:1 ({list})");
    let told = format!("EGL draws pictures on device 1: {why}; --egl-device takes another");
    assert_eq!(note(&devices, &wanted, 1, &[]), Some(told));
}

#[test]
fn where_there_is_only_mesa_every_gpu_gets_it_and_the_container_option_is_told() {
    let orders = [0, 1, 7].map(|index| first(&[SOFTWARE], &gpu(index, "0000:81:00")));
    assert_eq!(orders, [0, 0, 0]);
    let told = "EGL draws pictures on the CPU: no EGL device belongs to cuda:1 (0: Mesa on the CPU); \
                a container gets that of the GPU with NVIDIA_DRIVER_CAPABILITIES=all (docker run -e) \
                or --nv (apptainer)";
    assert_eq!(
        note(&[SOFTWARE], &gpu(1, ""), 0, &[]).as_deref(),
        Some(told)
    );
}

#[test]
fn mesas_entries_for_nvidia_cards_are_tried_last() {
    let card = |pci: &str| EglDevice {
        driver: EglDriver::MesaOnNvidia,
        pci: Some(pci.to_owned()),
    };
    let other = EglDevice {
        driver: EglDriver::OtherCard,
        pci: Some("0000:00:02".to_owned()),
    };
    let devices = [card("0000:3b:00"), card("0000:81:00"), SOFTWARE, other];
    assert_eq!(
        candidates(&devices, &gpu(1, "0000:81:00")),
        Ok(vec![3, 2, 1, 0])
    );
}

#[test]
fn the_reason_is_told_when_the_gpus_own_device_does_not_open() {
    let reasons = ["EGL device 0: permission denied".to_owned()];
    let told = note(&[nvidia(0, ""), SOFTWARE], &gpu(0, ""), 1, &reasons).unwrap();
    let why = "the EGL device of cuda:0 does not open (EGL device 0: permission denied)";
    assert!(
        told.starts_with(&format!("EGL draws pictures on the CPU: {why}; ")),
        "{told}"
    );
}

#[test]
fn a_device_that_is_asked_for_is_taken_or_refused_but_never_replaced() {
    let devices = [nvidia(0, ""), SOFTWARE];
    let asked = |device| EglRequest {
        device: Some(device),
        ..gpu(0, "")
    };
    assert_eq!(candidates(&devices, &asked(1)), Ok(vec![1]));
    assert_eq!(note(&devices, &asked(1), 1, &[]), None);
    let refused = "--egl-device 3: there are 2 EGL devices (0: NVIDIA, cuda:0; 1: Mesa on the CPU)";
    assert_eq!(
        candidates(&devices, &asked(3)).unwrap_err().to_string(),
        refused
    );
    let refused = "--egl-device 1: there is 1 EGL device (0: Mesa on the CPU)";
    assert_eq!(
        candidates(&[SOFTWARE], &asked(1)).unwrap_err().to_string(),
        refused
    );
}

#[test]
fn without_a_gpu_devices_are_tried_in_egls_order_and_nothing_is_told() {
    let wanted = EglRequest {
        local_rank: 1,
        ..EglRequest::default()
    };
    let devices = [nvidia(0, ""), nvidia(1, ""), SOFTWARE];
    assert_eq!(candidates(&devices, &wanted), Ok(vec![0, 1, 2]));
    assert_eq!(note(&[SOFTWARE], &wanted, 0, &[]), None);
    assert_eq!(candidates(&[], &wanted), Ok(vec![]));
}
