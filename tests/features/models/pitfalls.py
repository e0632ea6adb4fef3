"""Code that the documentation of torch.onnx warns of, and the recommended code."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.onnx.operators import reshape_from_tensor_shape, shape_as_tensor


class Reshaped(nn.Module):
    """Takes a size as an input, and uses `.item()` or the tensor."""

    def __init__(self, *, by_item: bool) -> None:
        super().__init__()
        self.by_item = by_item

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        size = rows.item() if self.by_item else rows
        return x.reshape(size, -1) * 2


class Concatenated(nn.Module):
    def __init__(self, *, by_numpy: bool) -> None:
        super().__init__()
        self.by_numpy = by_numpy

    def forward(self, x: Tensor) -> Tensor:
        if self.by_numpy:
            joined = np.concatenate((x.numpy(), x.numpy()), axis=1)
            return x.sum() * 0 + torch.from_numpy(joined)
        return torch.cat((x, x), dim=1)


class Centred(nn.Module):
    def __init__(self, *, by_data: bool) -> None:
        super().__init__()
        self.by_data = by_data

    def forward(self, x: Tensor) -> Tensor:
        mean = x.data.mean() if self.by_data else x.detach().mean()
        return x - mean


class Grown(nn.Module):
    """The example of the documentation: `real += 2` changes `length` if both are one tensor."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[0]
        real = length
        if self.in_place:
            real += 2
        else:
            real = real + 2
        return x * (real * 10 + length)


class ShapeTensor(nn.Module):
    """Reads sizes as a tensor by the functions of torch.onnx that precede `x.shape`."""

    def forward(self, x: Tensor) -> Tensor:
        return reshape_from_tensor_shape(x * 2, shape_as_tensor(x).flip(0))


class Mode(nn.Module):
    """A text selects the computation."""

    def forward(self, x: Tensor, mode: str) -> Tensor:
        return x * 2 if mode == "double" else x - 1


class Scalars(nn.Module):
    """Python numbers with tensors of other dtypes."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return (x + 1) * 2.5 + n * 0.5 + torch.where(n > 2, 1.0, 2) - (n + 2) * 3


class Recurrent(nn.Module):
    """An LSTM over a sequence of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Packed(nn.Module):
    """An LSTM for sequences of different lengths, longest first; `pads_to_input` pads it."""

    def __init__(self, *, pads_to_input: bool) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True)
        self.length = 7 if pads_to_input else None

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        out, _ = self.layer(packed)
        return pad_packed_sequence(out, batch_first=True, total_length=self.length)[0]


class Missing(nn.Module):
    """Two operators that ONNX lacks."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x) + torch.special.i1e(x)


class ByKey(nn.Module):
    """Takes a dictionary of tensors with a text in it."""

    def forward(self, values: dict[str, Tensor]) -> Tensor:
        if values.get("how") == "add":
            return values["a"] + values["b"]
        return values["a"] - values["b"]


class NestedOut(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return x * 2, [x * 3, x * 4]


class Keys(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"twice": x * 2, "half": x / 2}


class Numbered(nn.Module):
    def forward(self, x: Tensor) -> dict[int, Tensor]:
        return {0: x * 2, 1: x / 2}


class Sized(nn.Module):
    """Creates a tensor with the size of another, by a Python integer or by the size itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[0]).unsqueeze(1)
