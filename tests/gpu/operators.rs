//! Tests of the shim's own operators on a GPU, compared with float64 on the CPU.

use tch::{Device, Kind, Tensor};
use torchlib::operators::{add_linear, linear_gelu, linear_plus, linear_relu, to_host};

use crate::gpu::card::card;

/// Rows, inputs and outputs: of the network's layers, of a single row or output, and of odd sizes.
const SHAPES: [[i64; 3]; 5] = [
    [41, 1536, 1536],
    [1, 64, 48],
    [256, 1024, 1],
    [3, 7, 5],
    [130, 2048, 256],
];

struct Layer {
    sum: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
}

impl Layer {
    fn random([rows, inputs, outputs]: [i64; 3], kind: Kind, device: Device) -> Self {
        let random = |shape: &[i64], scale: f64| {
            (Tensor::randn(shape, (Kind::Float, Device::Cpu)) * scale)
                .to_kind(kind)
                .to_device(device)
        };
        Self {
            sum: random(&[rows, outputs], 1.0),
            x: random(&[rows, inputs], 1.0),
            weight: random(&[outputs, inputs], 1.0 / (inputs as f64).sqrt()),
            bias: random(&[outputs], 1.0),
        }
    }

    fn linear(&self) -> Tensor {
        linear(&self.x, &self.weight, &self.bias)
    }
}

/// Returns x·Wᵀ + b in float64.
fn linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    wide(x).matmul(&wide(weight).tr()) + wide(bias)
}

fn wide(x: &Tensor) -> Tensor {
    x.to_device(Device::Cpu).to_kind(Kind::Double)
}

/// Checks the difference against a few roundings of one result; sums are computed in float32.
fn assert_close(found: &Tensor, wanted: &Tensor, what: &str) {
    let rounding = if found.kind() == Kind::Float {
        2e-6
    } else {
        8e-3
    };
    let largest = wanted.abs().max().double_value(&[]).max(1.0);
    let difference = (wide(found) - wanted).abs().max().double_value(&[]);
    assert!(
        difference <= rounding * largest,
        "{what}: {difference} apart, the largest value is {largest}"
    );
}

fn each_layer(check: impl Fn(Layer, &str)) {
    let Some(card) = card() else { return };
    let _no_grad = tch::no_grad_guard();
    tch::manual_seed(3);
    for shape in SHAPES {
        for kind in [Kind::Float, Kind::BFloat16, Kind::Half] {
            let layer = Layer::random(shape, kind, card.device());
            check(layer, &format!("{shape:?} {kind:?}"));
        }
    }
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_linear_layer_is_added_to_its_sum_in_place() {
    each_layer(|layer, what| {
        let wanted = wide(&layer.sum) + layer.linear();
        let place = layer.sum.data_ptr();
        let found = add_linear(layer.sum, &layer.x, &layer.weight, Some(&layer.bias));
        assert_eq!(found.data_ptr(), place);
        assert_close(&found, &wanted, what);
    });
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_sum_that_is_kept_does_not_change() {
    each_layer(|layer, what| {
        let before = wide(&layer.sum);
        let found = linear_plus(&layer.sum, &layer.x, &layer.weight, None);
        let wanted = &before + layer.linear() - wide(&layer.bias);
        assert_close(&found, &wanted, what);
        assert_eq!(wide(&layer.sum), before, "{what}");
    });
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_weights_may_lie_in_columns_and_rows_apart() {
    each_layer(
        |Layer {
             sum,
             x,
             weight,
             bias,
         },
         what| {
            let columns = weight.tr().contiguous().tr();
            let apart = Tensor::cat(&[&x, &x], 1).narrow(1, 0, x.size()[1]);
            let scattered = x.tr().contiguous().tr();
            let alike = sum.narrow(0, 0, 1).expand_as(&sum);
            for (sum, x, weight) in [
                (&sum, &x, &columns),
                (&sum, &apart, &weight),
                (&sum, &scattered, &weight),
                (&alike, &x, &weight),
            ] {
                let wanted = wide(sum) + linear(x, weight, &bias);
                let found = linear_plus(sum, x, weight, Some(&bias));
                assert_close(&found, &wanted, what);
            }
        },
    );
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_an_activation_is_the_one_that_is_asked_for() {
    each_layer(|layer, what| {
        let linear = layer.linear();
        let gelu = linear_gelu(&layer.x, &layer.weight, &layer.bias);
        assert_close(&gelu, &linear.gelu("tanh"), what);
        let relu = linear_relu(&layer.x, &layer.weight, &layer.bias);
        assert_close(&relu, &linear.relu(), what);
    });
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_sums_of_other_shapes_are_refused() {
    let Some(card) = card() else { return };
    let layer = Layer::random([4, 8, 6], Kind::Float, card.device());
    let refused = std::panic::catch_unwind(|| linear_plus(&layer.x, &layer.x, &layer.weight, None));
    let text = refused.unwrap_err().downcast::<String>().unwrap();
    assert!(
        text.contains("a sum of [4, 8] is not that of [4, 8] times [6, 8] transposed"),
        "{text}"
    );
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_query_that_sees_no_key_gives_zeros() {
    let Some(card) = card() else { return };
    let _no_grad = tch::no_grad_guard();
    for kind in [Kind::Float, Kind::BFloat16] {
        let x = Tensor::randn([2, 4, 24, 64], (Kind::Float, card.device())).to_kind(kind);
        let mask = Tensor::ones([2, 1, 24, 24], (Kind::Bool, card.device()));
        let _ = mask.narrow(2, 3, 2).fill_(0);
        let out =
            Tensor::scaled_dot_product_attention(&x, &x, &x, Some(&mask), 0.0, false, None, false);
        let out = to_host(&out.to_kind(Kind::Float));
        assert_eq!(out.isfinite().all().int64_value(&[]), 1, "{kind:?}");
        let blind = out.narrow(2, 3, 2).abs().max().double_value(&[]);
        assert_eq!(blind, 0.0, "{kind:?}");
        let seeing = out.narrow(2, 0, 3).abs().min().double_value(&[]);
        assert!(seeing > 0.0, "{kind:?}");
    }
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_what_comes_back_is_what_was_there() {
    let Some(card) = card() else { return };
    let x = Tensor::randn([7, 5], (Kind::Float, Device::Cpu));
    assert_eq!(to_host(&x.to_device(card.device())), x);
    assert_eq!(to_host(&x.to_device(card.device()).tr()), x.tr());
}
