"""Operators on the imitated card beside those of the CPU; prints each that is too far apart."""

import torch
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention as attend

torch.manual_seed(0)
compared = 0


def there(argument):
    return argument.cuda() if isinstance(argument, torch.Tensor) else argument


def same(name, function, *arguments, bound=0.0):
    global compared
    found, wanted = function(*map(there, arguments)), function(*arguments)
    apart = (found.cpu().double() - wanted.double()).abs().max().item()
    if not apart <= bound:
        print("apart:", name, apart)
    compared += 1


def at(x, *indices):
    return torch.tensor(indices, device=x.device)


def attention(kind, bound):
    q, k, v = (torch.randn(3, 8, 33, 40, dtype=kind) for _ in range(3))
    few_k, few_v = (torch.randn(3, 4, 33, 40, dtype=kind) for _ in range(2))
    mask = torch.rand(3, 1, 33, 33) > 0.3
    short = lambda q, k, v: attend(q[:, :, :5].transpose(1, 2).contiguous().transpose(1, 2), k, v)
    same("attention", attend, q, k, v, bound=bound)
    same("causal", lambda *a: attend(*a, is_causal=True), q, k, v, bound=bound)
    same("masked", lambda *a: attend(*a[:3], attn_mask=a[3]), q, k, v, mask, bound=bound)
    same("short queries", short, q, k, v, bound=bound)
    same("grouped", lambda *a: attend(*a, is_causal=True, enable_gqa=True), q, few_k, few_v,
         bound=bound)


def products(kind, bound):
    x, w = torch.randn(64, 48, dtype=kind), torch.randn(32, 48, dtype=kind)
    b = torch.randn(32, dtype=kind)

    def gelu(x, w, b):
        if x.is_cuda:
            return torch._addmm_activation(b, x, w.t(), use_gelu=True)
        return F.gelu(F.linear(x, w, b), approximate="tanh")

    def relu(x, w, b):
        return torch._addmm_activation(b, x, w.t())

    same("linear", F.linear, x, w, b, bound=bound)
    same("linear without bias", F.linear, x, w, bound=bound)
    same("linear, GELU", gelu, x, w, b, bound=10 * bound)
    same("linear, ReLU", relu, x, w, b, bound=10 * bound)
    same("add a product", lambda x, w, s: torch.addmm(s, x, w.t(), beta=0.5, alpha=2), x, w,
         torch.randn(64, 32, dtype=kind), bound=10 * bound)
    same("add in place", lambda x, w, s: s.clone().addmm_(x, w.t()), x, w,
         torch.randn(64, 32, dtype=kind), bound=10 * bound)
    same("batches", lambda x: torch.bmm(x[None], x.t()[None]), x, bound=10 * bound)
    same("add batches", lambda x: torch.baddbmm(x[None, :, :48], x[None], x[None, :48]), x,
         bound=10 * bound)


def elements(kind, bound):
    x, w = torch.randn(64, 48, dtype=kind), torch.randn(48, dtype=kind)
    y = torch.randn(10, 48, dtype=kind)
    for name, function in {
        "layer norm": lambda x, w: F.layer_norm(x, (48,), w, w),
        "root mean square": lambda x, w: F.rms_norm(x, (48,), w),
        "GELU": lambda x, w: F.gelu(x, approximate="tanh"),
        "SiLU": lambda x, w: F.silu(x),
        "softmax": lambda x, w: x.softmax(-1),
        "mean": lambda x, w: x.mean(1),
        "add a product of elements": lambda x, w: torch.addcmul(x, x, x, value=0.5),
        "scalars": lambda x, w: 0.25 * x + torch.tensor(2.0),
        "sine, cosine": lambda x, w: x.sin() * x.cos(),
        "cumulative sum": lambda x, w: x.cumsum(0) / 8,
        "split": lambda x, w: x.chunk(3, 1)[1].contiguous() * x.split(16, 1)[0],
    }.items():
        same(name, function, x, w, bound=bound)
    for name, function in {
        "roll": lambda x, y: x.roll(3, 0),
        "copy rows": lambda x, y: x.clone().index_copy_(0, at(x, *range(10)), y),
        "add rows": lambda x, y: x.clone().index_add_(0, at(x, *range(10)), y),
        "pick rows": lambda x, y: x[at(x, 1, 5, 2)],
        "side by side": lambda x, y: torch.cat([x, x.flip(0)], 1),
        "stack": lambda x, y: torch.stack([x, x + 1], 1),
        "casts": lambda x, y: x.double().float().bfloat16(),
        "repeat": lambda x, y: x.repeat(2, 3),
        "expand": lambda x, y: x[:, None].expand(-1, 4, -1).reshape(-1, 48),
        "clamp": lambda x, y: x.clamp(-0.5, 0.5),
        "in place, transposed": lambda x, y: x.clone().add_(1).mul_(2).t().sub_(3),
        "add a part": lambda x, y: torch.add(x, x, alpha=0.25),
        "given result": lambda x, y: torch.add(x, 1, out=torch.empty_like(x)),
        "embedding": lambda x, y: F.embedding(at(x, 3, 1), x),
        "where": lambda x, y: torch.where(x > 0, x, 0),
    }.items():
        same(name, function, x, y)


for kind, bound in (torch.float32, 1e-5), (torch.bfloat16, 2e-2):
    attention(kind, bound)
    products(kind, bound)
    elements(kind, bound)
same("bytes", lambda x: (x.float() - 127.5) / 127.5, torch.randint(0, 256, (5, 768)).byte())
same("indices of true", lambda x: (x > 0.5).nonzero(), torch.rand(100))
same("equality", lambda x: torch.tensor(torch.equal(x, x.clone())), torch.rand(100))
print(compared, "compared")
