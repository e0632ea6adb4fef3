"""Models with lines that exporters do not take, as small as possible."""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Averages(nn.Module):
    def forward(self, x, target, like):
        out = torch.zeros(like.shape[0], x.shape[1])
        index = target[:, None].expand_as(x)
        return out.scatter_reduce(0, index, x, "mean", include_self=False)


class Packs(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x, length):
        packed = pack_padded_sequence(x, length.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        return pad_packed_sequence(out, batch_first=True)[0]


class Repeats(nn.Module):
    def forward(self, x, frames):
        rows = [torch.repeat_interleave(row, n, dim=0) for row, n in zip(x, frames, strict=True)]
        return pad_sequence(rows, batch_first=True)


class Pools(nn.Module):
    def forward(self, x):
        return functional.max_pool1d(x.unsqueeze(1), 4, 4).squeeze(1) * x.unfold(1, 4, 4).mean(-1)


class Sorts(nn.Module):
    def forward(self, x):
        return torch.sort(x, dim=1, stable=True)[1]


class Rolls(nn.Module):
    def forward(self, x):
        return torch.roll(x, x.shape[1] // 2, 1)


class Turns(nn.Module):
    def forward(self, x):
        return torch.sort(torch.roll(x, x.shape[1] // 2, 1), dim=1, stable=True)[1]


class Attends(nn.Module):
    def forward(self, q, mask):
        return functional.scaled_dot_product_attention(q, q, q, attn_mask=mask[:, None, None, :])


def quantize_aware() -> nn.Module:
    from torch.ao import quantization

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        net = nn.Sequential(quantization.QuantStub(), net, quantization.DeQuantStub()).train()
        net.qconfig = quantization.get_default_qat_qconfig("fbgemm")
        quantization.prepare_qat(net, inplace=True)
        for _ in range(3):
            net(torch.randn(2, 3, 6, 6))
        net.apply(quantization.disable_observer)
    return net.eval()


class Channels(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 6))
        self.register_buffer("scale", torch.rand(4) * 0.02 + 0.01)
        self.register_buffer("zero", torch.zeros(4, dtype=torch.int64))

    def forward(self, x):
        w = torch.quantize_per_channel(self.w, self.scale, self.zero, 0, torch.qint8)
        return functional.linear(x, w.dequantize())


class Inverse(nn.Module):
    def forward(self, real, imag):
        return torch.istft(torch.complex(real, imag), 16, 4, 16, torch.hann_window(16))


class Phases(nn.Module):
    def forward(self, magnitude, phase):
        return torch.view_as_real(magnitude * torch.exp(1j * phase))


class Roots(nn.Module):
    def forward(self, x):
        return functional.max_pool1d(torch.sqrt(x), 2)


class Sums(nn.Module):
    """Rows that are not only repeated: the rewrite of a loop over rows gives other values."""

    def forward(self, x, frames):
        rows = [torch.repeat_interleave(row, n, dim=0) for row, n in zip(x, frames, strict=True)]
        return pad_sequence(rows, batch_first=True).sum() + sum(row.sum() for row in x)
