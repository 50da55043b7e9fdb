//! Tests of the facts that the driver and libtorch report about a GPU.

use crate::gpu::card::card;
use runtime::device::gpu::visible;
use runtime::device::{DeviceRequest, resolve};
use tch::{Kind, Tensor};
use torchlib::cuda;

#[test]
fn gpu_devices_are_counted_where_cuda_can_be_loaded_and_elsewhere_its_reason_is_said() {
    let wanted = match cuda::load() {
        Ok(cuda) => Ok(cuda.device_count().unwrap()),
        Err(none) => Err(none.to_string()),
    };
    assert_eq!(visible().unwrap(), wanted);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert_eq!(maps.contains("libtorch_cuda"), wanted.is_ok());
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_facts_are_the_drivers() {
    let Some(card) = card() else { return };
    assert!(tch::Cuda::is_available());
    let request = DeviceRequest {
        local_world_size: 1,
        ..DeviceRequest::default()
    };
    assert!(
        resolve(&request, &visible().unwrap())
            .unwrap()
            .device
            .is_cuda()
    );
    let facts = card.cuda.device(card.index).unwrap();
    println!("{facts:?}");
    println!("{:?}", card.cuda.versions().unwrap());
    assert!(
        facts.uuid.starts_with("GPU-") && facts.total_bytes > 1 << 30 && !facts.name.is_empty()
    );
    assert!(card.cuda.device(99).is_err());
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_memory_is_counted_and_too_much_is_out_of_memory() {
    let Some(card) = card() else { return };
    let tensor = Tensor::f_ones([1 << 20], (Kind::Float, card.device())).unwrap();
    let memory = card.cuda.memory(card.index).unwrap();
    println!("{memory:?}");
    assert!(
        memory.allocated_bytes >= 4 << 20 && memory.allocated_peak_bytes >= memory.allocated_bytes
    );
    let err = Tensor::f_empty([1 << 42], (Kind::Float, card.device()))
        .unwrap_err()
        .to_string();
    assert!(err.contains("out of memory"), "{err}");
    // The GPU is still usable.
    assert_eq!(
        tensor.sum(Kind::Float).double_value(&[]),
        f64::from(1 << 20)
    );
    drop(tensor);
    card.cuda.empty_cache().unwrap();
    card.cuda.reset_peak(card.index).unwrap();
}
