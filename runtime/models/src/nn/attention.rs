//! Multi-head attention.

use tch::{Device, Tensor};

use crate::nn::layers::Linear;
use crate::weights::Weights;

/// The keys that a query attends to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VisibleKeys<'a> {
    /// All keys.
    All,
    /// The key at the query's own position and all earlier keys.
    Causal,
    /// The keys where a `bool` mask, broadcast to `[B, heads, queries, keys]`, is true. A query
    /// without any such key gives zeros.
    Where(&'a Tensor),
}

/// Computes softmax(q·kᵀ/√d)·v for queries `[B, heads, queries, d]` and keys and values `[B,
/// kv_heads, keys, d]`, and returns it as rows `[B·queries, heads·d]`. Each key head serves the
/// same number of consecutive query heads.
pub(crate) fn attend(q: &Tensor, k: &Tensor, v: &Tensor, visible: VisibleKeys<'_>) -> Tensor {
    let (batch, heads, queries, width) = q.size4().expect("queries are [B, heads, queries, d]");
    let grouped = k.size()[1] != heads;
    let out = match visible {
        VisibleKeys::Causal if grouped && q.device() == Device::Cpu => {
            return causal_groups(q, k, v);
        }
        VisibleKeys::All => sdpa([q, k, v], None, false, grouped),
        VisibleKeys::Causal => sdpa([q, k, v], None, true, grouped),
        VisibleKeys::Where(mask) if grouped => {
            let (k, v) = (repeat(k, heads), repeat(v, heads));
            sdpa([q, &k, &v], Some(mask), false, false)
        }
        VisibleKeys::Where(mask) => sdpa([q, k, v], Some(mask), false, false),
    };
    out.transpose(1, 2)
        .reshape([batch * queries, heads * width])
}

fn sdpa([q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, causal: bool, grouped: bool) -> Tensor {
    Tensor::scaled_dot_product_attention(q, k, v, mask, 0.0, causal, None, grouped)
}

/// Computes causal grouped-query attention, sample by sample. Key heads take the place of the batch
/// axis and are repeated by a stride of 0. libtorch's own grouping copies them on a CPU, at two to
/// three times the cost.
fn causal_groups(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let (heads, kv_heads) = (q.size()[1], k.size()[1]);
    let group = heads / kv_heads;
    let spread = |x: Tensor| x.unsqueeze(1).expand([-1, group, -1, -1], false);
    let sample = |b: i64| {
        let q = q.get(b).unflatten(0, [kv_heads, group]);
        let (k, v) = (spread(k.get(b)), spread(v.get(b)));
        let out = sdpa([&q, &k, &v], None, true, false);
        out.permute([2, 0, 1, 3]).flatten(1, 3)
    };
    let mut samples: Vec<_> = (0..q.size()[0]).map(sample).collect();
    if samples.len() == 1 {
        samples.remove(0)
    } else {
        Tensor::cat(&samples, 0)
    }
}

/// Repeats every key head once for each query head that shares it.
fn repeat(heads: &Tensor, wanted: i64) -> Tensor {
    let (batch, found, keys, width) = heads.size4().expect("keys are [B, heads, keys, d]");
    let copies = wanted / found;
    heads
        .unsqueeze(2)
        .expand([batch, found, copies, keys, width], false)
        .reshape([batch, wanted, keys, width])
}

/// The attention heads of one layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    /// Number of heads.
    pub count: i64,
    /// Width of one head.
    pub width: i64,
}

impl Heads {
    /// Returns the width of all heads together.
    pub fn inner(self) -> i64 {
        self.count * self.width
    }

    /// Reshapes `[B·n, inner]` to `[B, heads, n, width]`.
    pub fn split(self, x: &Tensor, batch: i64) -> Tensor {
        x.view([batch, -1, self.count, self.width]).transpose(1, 2)
    }
}

/// Self-attention with the layer names of diffusers: `to_q`, `to_k`, `to_v`, `to_out.0`, all with
/// bias and without a mask.
pub(crate) struct SelfAttention {
    qkv: Linear,
    out: Linear,
    heads: Heads,
}

impl SelfAttention {
    /// Takes the four layers whose names start with `name`.
    pub fn take(weights: &mut Weights, name: &str, width: i64, heads: Heads) -> Self {
        let layers = ["to_q", "to_k", "to_v"].map(|part| (format!("{name}.{part}"), heads.inner()));
        Self {
            qkv: Linear::joint(weights, &layers, width),
            out: Linear::take(weights, &format!("{name}.to_out.0"), heads.inner(), width),
            heads,
        }
    }

    /// Returns `sum` plus the result for `x`, both `[B·n, width]`.
    pub fn add_to(&self, sum: Tensor, x: &Tensor, batch: i64) -> Tensor {
        let qkv = self
            .qkv
            .forward(x)
            .view([batch, -1, 3, self.heads.count, self.heads.width])
            .permute([2, 0, 3, 1, 4]);
        self.out.add_to(
            sum,
            &attend(&qkv.get(0), &qkv.get(1), &qkv.get(2), VisibleKeys::All),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    #[test]
    fn a_query_that_sees_nothing_gives_zeros() {
        let x = Tensor::ones([1, 2, 3, 4], (Kind::Float, Device::Cpu));
        let mask = Tensor::zeros([1, 1, 3, 3], (Kind::Bool, Device::Cpu));
        assert_eq!(
            attend(&x, &x, &x, VisibleKeys::Where(&mask))
                .abs()
                .max()
                .double_value(&[]),
            0.0
        );
    }

    #[test]
    fn key_heads_serve_consecutive_query_heads() {
        let q = Tensor::randn([2, 4, 3, 8], (Kind::Float, Device::Cpu));
        let (k, v) = (q.narrow(1, 0, 2), q.narrow(1, 2, 2));
        let mask = Tensor::ones([1, 1, 3, 3], (Kind::Bool, Device::Cpu)).tril(0);
        let grouped = attend(&q, &k, &v, VisibleKeys::Causal);
        assert!(
            (grouped - attend(&q, &k, &v, VisibleKeys::Where(&mask)))
                .abs()
                .max()
                .double_value(&[])
                < 1e-5
        );
    }
}
