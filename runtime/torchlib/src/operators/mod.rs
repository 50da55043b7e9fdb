//! Operators that tch lacks or calls with wrong arguments, implemented through our own shim.
//!
//! | | on a CUDA device | on a CPU |
//! |---|---|---|
//! | [`linear_gelu`], [`linear_relu`] | one launch: the activation is fused | two or three |
//! | [`add_linear`] | one launch: the sum is the third operand | one without a bias, else two |
//!
//! tch 0.24 has `_addmm_activation` too, but its wrapper passes `use_gelu` as `beta`, so that the
//! result is a ReLU (`docs/gpu.md`).

mod ffi;

use tch::{Device, Tensor};

use crate::TorchError;
use crate::cuda;

pub use ffi::{InferenceMode, normal};

/// Computes the tanh-approximated GELU of x·Wᵀ + b: `x` is `[rows, in]`, `weight` `[out, in]`,
/// `bias` `[out]`.
///
/// # Panics
/// Panics like tch's own operators, with libtorch's message.
pub fn linear_gelu(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    // On a CPU, libtorch's fused operator computes the exact GELU.
    if x.device().is_cuda() {
        ffi::linear_activation([x, &weight.tr(), bias], true)
    } else {
        x.linear(weight, Some(bias)).gelu("tanh")
    }
}

/// Computes the ReLU of x·Wᵀ + b, with the shapes of [`linear_gelu`].
///
/// # Panics
/// Panics like tch's own operators, with libtorch's message.
pub fn linear_relu(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    if x.device().is_cuda() {
        ffi::linear_activation([x, &weight.tr(), bias], false)
    } else {
        x.linear(weight, Some(bias)).relu()
    }
}

/// Computes sum + x·Wᵀ + b, overwriting `sum`. `sum` is `[rows, out]`,
/// `x` `[rows, in]`, `weight` `[out, in]`, `bias` `[out]`.
///
/// # Panics
/// Panics like tch's own operators, with libtorch's message.
pub fn add_linear(mut sum: Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if sum.device().is_cuda() {
        fused_add(&sum, &sum, x, weight, bias);
        return sum;
    }
    match bias {
        Some(_) => plain_add(&sum, x, weight, bias),
        // On a CPU, the product can also take the sum as its third operand, but then no bias.
        None => sum.addmm_(x, &weight.tr()),
    }
}

/// As [`add_linear`], but into a new tensor.
///
/// # Panics
/// Panics like tch's own operators, with libtorch's message.
pub fn linear_plus(sum: &Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if sum.device().is_cuda() {
        let out = sum.empty_like();
        fused_add(&out, sum, x, weight, bias);
        return out;
    }
    match bias {
        Some(_) => plain_add(sum, x, weight, bias),
        None => sum.addmm(x, &weight.tr()),
    }
}

fn plain_add(sum: &Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let mut out = x.linear(weight, bias);
    out += sum;
    out
}

/// Copies a tensor to host memory. From a CUDA device it copies through pinned memory, and waits
/// only for this copy.
///
/// # Panics
/// Panics like tch's own operators, with libtorch's message.
pub fn to_host(x: &Tensor) -> Tensor {
    match cuda::loaded().filter(|_| x.device().is_cuda()) {
        Some(cuda) => cuda.fetch(x).unwrap_or_else(|error| panic_as_tch(&error)),
        None => x.to_device(Device::Cpu),
    }
}

fn fused_add(out: &Tensor, sum: &Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) {
    let cuda = cuda::loaded().expect("a tensor is on a CUDA device, so CUDA was loaded");
    if let Err(error) = cuda.add_linear([out, sum, x, weight], bias) {
        panic_as_tch(&error);
    }
}

/// Panics with libtorch's error, as tch does, so that one place catches both.
fn panic_as_tch(error: &TorchError) -> ! {
    panic!("{error}")
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    fn random(shape: &[i64]) -> Tensor {
        Tensor::randn(shape, (Kind::Float, Device::Cpu))
    }

    fn difference(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn noise_is_that_of_python_whoever_else_draws() {
        let draw = || std::thread::spawn(|| drop(random(&[1000])));
        let threads = [draw(), draw()];
        let found = Vec::<f32>::try_from(normal(11, &[3])).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        // torch.manual_seed(11); torch.randn(3)
        assert_eq!(found, [0.737_629_5, 1.945_929_2, -0.699_541_6]);
        assert_eq!(normal(11, &[8, 7]), normal(11, &[8, 7]));
    }

    #[test]
    fn a_sum_and_a_linear_layer_are_added_in_every_form() {
        tch::manual_seed(1);
        let (sum, x, weight, bias) = (
            random(&[5, 3]),
            random(&[5, 4]),
            random(&[3, 4]),
            random(&[3]),
        );
        let wanted = &sum + x.linear(&weight, Some(&bias));
        assert!(difference(&linear_plus(&sum, &x, &weight, Some(&bias)), &wanted) < 1e-6);
        assert!(difference(&add_linear(sum.copy(), &x, &weight, Some(&bias)), &wanted) < 1e-6);
        assert!(difference(&add_linear(sum, &x, &weight, None), &(wanted - bias)) < 1e-6);
    }

    #[test]
    fn the_shims_activation_is_the_one_that_is_asked_for() {
        let (x, weight, bias) = (random(&[5, 4]), random(&[4, 3]), random(&[3]));
        let product = x.matmul(&weight) + &bias;
        // The fused operator computes the exact GELU on a CPU.
        let gelu = ffi::linear_activation([&x, &weight, &bias], true);
        assert!(difference(&gelu, &product.gelu("none")) < 1e-6);
        let relu = ffi::linear_activation([&x, &weight, &bias], false);
        assert!(difference(&relu, &product.relu()) < 1e-6);
    }

    #[test]
    fn shapes_that_do_not_fit_are_told_in_libtorchs_words() {
        let refused = std::panic::catch_unwind(|| {
            ffi::linear_activation([&random(&[5, 4]), &random(&[3, 3]), &random(&[3])], true)
        });
        let text = refused.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("shapes cannot be multiplied"), "{text}");
    }

    #[test]
    fn inference_mode_ends_with_its_guard() {
        let is_inference = |tensor: &Tensor| tensor.is_inference();
        {
            let _mode = InferenceMode::begin();
            assert!(is_inference(&random(&[1])));
        }
        assert!(!is_inference(&random(&[1])));
    }
}
