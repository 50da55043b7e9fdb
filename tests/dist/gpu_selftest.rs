//! What needs a GPU; without one it only checks that the machine says why.

use crate::ranks::{PATIENCE, serve};
use runtime::device::{DeviceRequest, Visible, resolve, visible};
use runtime::dist::{Group, Reduction, cuda};
use tch::{Device, Kind, Tensor};

#[test]
fn gpu_selftest() {
    let cuda = match cuda::load() {
        Ok(cuda) => cuda,
        Err(none) => {
            eprintln!("skipped: {none}");
            assert_eq!(visible(), Visible::None { reason: none.to_string() });
            assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("libtorch_cuda"));
            return;
        }
    };
    assert!(tch::Cuda::is_available());
    let decision = resolve(&DeviceRequest { local_world_size: 1, ..DeviceRequest::default() }, &visible()).unwrap();
    assert_eq!(decision.device, Device::Cuda(0));
    let facts = cuda.device(0).unwrap();
    eprintln!("{facts:?}");
    assert!(facts.uuid.starts_with("GPU-") && facts.total_bytes > 1 << 30);
    cuda.select(0).unwrap();

    let tensor = Tensor::f_ones([1 << 20], (Kind::Float, Device::Cuda(0))).unwrap();
    let memory = cuda.memory(0).unwrap();
    eprintln!("{memory:?}");
    assert!(memory.allocated_bytes >= 4 << 20 && memory.allocated_peak_bytes >= memory.allocated_bytes);
    let err = Tensor::f_empty([1 << 42], (Kind::Float, Device::Cuda(0))).unwrap_err().to_string();
    assert!(err.contains("out of memory"), "{err}");
    assert_eq!(tensor.sum(Kind::Float).double_value(&[]), f64::from(1 << 20));
    drop(tensor);
    cuda.empty_cache().unwrap();
    cuda.reset_peak(0).unwrap();
    assert!(cuda.device(99).is_err());

    let group = Group::nccl(&serve().default_group("cuda"), (0, 1), 0, PATIENCE).unwrap();
    let mut one = Tensor::ones([4], (Kind::Float, Device::Cuda(0)));
    group.all_reduce(&mut one, Reduction::Sum).unwrap();
    assert_eq!(one.double_value(&[0]), 1.0);
    assert_eq!(group.all_gather_bytes(b"alone").unwrap(), [b"alone"]);
    group.barrier().unwrap();
    group.close().unwrap();
}
