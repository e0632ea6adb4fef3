"""Lines of Python that exporters take in place of others that they do not take.

A mode replaces the calls of torch while PyTorch computes its outputs, exports and proves the file.
So the model is not edited, and the lines are advice after their file passed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.nn import functional

from exporter.checks.protocol import CheckedFile
from exporter.core.text import join_names
from exporter.manifest import ModelSpec, Output
from exporter.worker.dependencies.source_files import find_frame_line
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.reference.eager_run import Outputs, run_model
from exporter.worker.reference.noise import is_rounding, read_call
from exporter.worker.reference.operator_calls import FunctionMode
from exporter.worker.reference.python_state import ModelSnapshot

Function: TypeAlias = Callable[..., Any]


class Rewrite(NamedTuple):
    """A replacement of some functions of torch."""

    replaced: str
    code: str
    create: Callable[[], Mapping[str, Function]]
    """Return the functions by the name of the replaced one.

    Each gets the replaced function and its arguments, and returns None if the call stays as it is.
    """
    changes_outputs: bool = False
    """Whether PyTorch's outputs may be others than those of the model."""


def _average(
    _func: Function, out: Any, dim: int, index: Any, src: Any, *args: Any, **kw: Any
) -> Any:
    reduce, include_self = _bind(("reduce", "include_self"), args, kw, (None, True))
    if reduce != "mean" or include_self:
        return None
    count = torch.zeros_like(out).scatter_add(dim, index, torch.ones_like(src))
    total = torch.zeros_like(out).scatter_add(dim, index, src)
    return torch.where(count > 0, total / count.clamp(min=1), out)


def _average_all(
    _func: Function, out: Any, dim: int, index: Any, src: Any, *args: Any, **kw: Any
) -> Any:
    reduce, include_self = _bind(("reduce", "include_self"), args, kw, (None, True))
    if reduce != "mean" or not include_self:
        return None
    count = torch.ones_like(out).scatter_add(dim, index, torch.ones_like(src))
    return out.scatter_add(dim, index, src) / count


def _bind(
    names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], defaults: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the values of arguments that are given by position or by name."""
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return tuple(given.get(name, each) for name, each in zip(names, defaults, strict=True))


def _pad_to_the_input() -> Mapping[str, Function]:
    lengths: list[int] = []

    def pack(func: Function, x: Any, length: Any, batch_first: bool) -> Any:
        lengths[:] = [x.shape[1 if batch_first else 0]]
        return func(x, length, batch_first)

    def pad(func: Function, data: Any, sizes: Any, first: bool, value: Any, _: Any) -> Any:
        return func(data, sizes, first, value, lengths[-1]) if lengths else None

    return {"_pack_padded_sequence": pack, "_pad_packed_sequence": pad}


def _select_rows() -> Mapping[str, Function]:
    tensors: dict[int, tuple[Any, Any]] = {}
    """The tensor of which another one is the first row, by its identity; both are kept."""
    repeated: dict[int, tuple[Any, Any, Any]] = {}

    def unbind(_func: Function, x: Any, dim: int = 0) -> Any:
        if dim or x.ndim < 2:
            return None
        row = x[0]
        tensors[id(row)] = (row, x)
        return (row,)

    def repeat(_func: Function, row: Any, counts: Any, dim: Any = None, **_: Any) -> Any:
        if dim != 0 or not {id(row), id(counts)} <= set(tensors):
            return None
        repeated[id(row)] = (row, tensors[id(row)][1], tensors[id(counts)][1])
        return row

    def pad(_func: Function, rows: Any, batch_first: bool = False, *_: Any) -> Any:
        if len(rows) != 1 or id(rows[0]) not in repeated:
            return None
        _, x, counts = repeated[id(rows[0])]
        ends = counts.cumsum(1)
        time = torch.arange(ends[:, -1].max(), device=x.device)[None, :, None]
        chosen = (time >= (ends - counts)[:, None]) & (time < ends[:, None])
        y = chosen.to(x.dtype) @ x
        return y if batch_first else y.transpose(0, 1)

    return {"unbind": unbind, "repeat_interleave": repeat, "pad_sequence": pad}


def _pool(_func: Function, x: Any, *args: Any, **kwargs: Any) -> Any:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    values = _bind(names, args, kwargs, (None, None, 0, 1, False))
    size, stride, padding, dilation = (
        each[0] if isinstance(each, (tuple, list)) and each else each for each in values[:4]
    )
    if stride not in (None, (), [], size) or padding or dilation != 1 or values[4]:
        return None
    number = x.shape[-1] // size
    return x[..., : number * size].unflatten(-1, (number, size)).amax(-1)


def _unfold(_func: Function, x: Any, *args: Any, **kwargs: Any) -> Any:
    dim, size, step = _bind(("dimension", "size", "step"), args, kwargs, (0, 0, 0))
    if size != step or not size:
        return None
    dim %= x.ndim
    number = x.shape[dim] // size
    return x.narrow(dim, 0, number * size).unflatten(dim, (number, size)).movedim(dim + 1, -1)


def _sort(func: Function, x: Any, *args: Any, **kwargs: Any) -> Any:
    options = {"dim": kwargs.get("dim", -1), "descending": kwargs.get("descending", False)}
    if not kwargs.get("stable") or args:
        return None
    values, indices = torch.sort(x, **options)
    return indices if "arg" in func.__name__ else (values, indices)


def _subtract(_func: Function, mask: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
    is_mixed = isinstance(other, float) and not (args or kwargs) and not mask.is_floating_point()
    return other - mask.to(torch.get_default_dtype()) if is_mixed else None


def _roll(_func: Function, x: Any, shifts: Any, dims: Any = (), **_: Any) -> Any:
    pairs = [tuple(each) if isinstance(each, (tuple, list)) else (each,) for each in (shifts, dims)]
    if not pairs[1]:
        return None
    for shift, dim in zip(*pairs, strict=True):
        order = (torch.arange(x.shape[dim], device=x.device) - shift) % x.shape[dim]
        x = x.index_select(dim, order)
    return x


def _index(func: Function, x: Any, index: Any, *args: Any) -> Any:
    items = index if isinstance(index, tuple) else (index,)
    narrow = [isinstance(each, torch.Tensor) and each.dtype is torch.int32 for each in items]
    if not any(narrow):
        return None
    wide = (
        each.long() if is_narrow else each for each, is_narrow in zip(items, narrow, strict=True)
    )
    return func(x, tuple(wide), *args)


def _attend(
    func: Function, q: Any, k: Any, v: Any, attn_mask: Any = None, *args: Any, **kw: Any
) -> Any:
    if attn_mask is None or attn_mask.dtype is not torch.bool:
        return None
    empty = ~attn_mask.any(-1, keepdim=True)
    mask = (attn_mask | empty).expand(*attn_mask.shape[:-2], q.shape[-2], k.shape[-2])
    return func(q, k, v, mask, *args, **kw).masked_fill(empty, 0.0)


def _quantize_plainly(
    _func: Function, x: Any, observer_on: Any, fake_quant_on: Any, *args: Any
) -> Any:
    _, _, scale, zero_point, _, low, high, axis, per_row, *_ = args
    with suppress(Exception):  # a capture has no values; the run before it had them
        if bool(observer_on):
            return None
        if not bool(fake_quant_on):
            return x
    shape = [1] * x.ndim
    shape[axis] = -1
    scale, zero = (each.reshape(shape) if per_row else each for each in (scale, zero_point))
    return ((x * (1 / scale) + zero).round().clamp(low, high) - zero) * scale


_RANGES = {torch.qint8: (-128, 127), torch.quint8: (0, 255)}


def _quantize(
    _func: Function, x: Any, scale: Any, zero_point: Any, *args: Any, **kwargs: Any
) -> Any:
    *axis, dtype = (*args, *kwargs.values())
    if dtype not in _RANGES:
        return None
    low, high = _RANGES[dtype]
    if not axis:
        return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)
    zero = zero_point.int()
    return torch.fake_quantize_per_channel_affine(x, scale.to(x.dtype), zero, axis[0], low, high)


def _dequantize(_func: Function, x: Any) -> Any:
    return None if x.is_quantized else x


def _invert(_func: Function, spectrum: Any, n_fft: int, *args: Any, **kwargs: Any) -> Any:
    names = ("hop_length", "win_length", "window", "center", "normalized", "onesided", "length")
    defaults = (n_fft // 4, n_fft, None, True, False, None, None)
    hop, width, window, center, normalized, onesided, length = _bind(names, args, kwargs, defaults)
    is_usual = center and not normalized and onesided is not False and length is None
    if not is_usual or width != n_fft or window is None or spectrum.ndim != 3:
        return None
    frames = torch.fft.irfft(spectrum.transpose(1, 2), n_fft) * window
    eye = torch.eye(n_fft, dtype=window.dtype, device=window.device)[:, None]
    total = functional.conv_transpose1d(frames.transpose(1, 2), eye, stride=hop)
    weights = (window**2).expand_as(frames).transpose(1, 2)
    weight = functional.conv_transpose1d(weights, eye, stride=hop)
    return (total / weight)[:, 0, n_fft // 2 : -(n_fft // 2)]


def _turn() -> Mapping[str, Function]:
    angles: dict[int, tuple[Any, Any]] = {}

    def multiply(_func: Function, angle: Any, factor: Any, **_: Any) -> Any:
        is_imaginary = isinstance(factor, complex) and not factor.real
        if not is_imaginary or not isinstance(angle, torch.Tensor) or not angle.is_floating_point():
            return None
        result = torch.complex(torch.zeros_like(angle), angle * factor.imag)
        angles[id(result)] = (result, angle * factor.imag)
        return result

    def exponentiate(_func: Function, z: Any, **_: Any) -> Any:
        if id(z) not in angles:
            return None
        angle = angles[id(z)][1]
        return torch.polar(torch.ones_like(angle), angle)

    return {**dict.fromkeys(("mul", "__rmul__", "__mul__"), multiply), "exp": exponentiate}


def _root(func: Function, x: Any, **_: Any) -> Any:
    return func(x.clamp(min=0))


_COUNT = "torch.{}_like(out).scatter_add(dim, index, torch.ones_like(x))"
_REPEATED = (
    "ends = frames.cumsum(1); t = torch.arange(ends[:, -1].max())[None, :, None]; "
    "mask = (t >= (ends - frames)[:, None]) & (t < ends[:, None]); y = mask.to(x.dtype) @ x"
)
_FOLDED = (
    "frames = torch.fft.irfft(z.transpose(1, 2), n) * window; eye = torch.eye(n)[:, None]; "
    "total = conv_transpose1d(frames.transpose(1, 2), eye, stride=hop); "
    "weight = conv_transpose1d((window**2).expand_as(frames).transpose(1, 2), eye, stride=hop); "
    "y = (total / weight)[:, 0, n // 2 : -(n // 2)]"
)
_FUSED = (
    "shape = [-1 if dim == self.ch_axis else 1 for dim in range(x.ndim)]; "
    "scale, zero = (each.reshape(shape) for each in (self.scale, self.zero_point)); "
    "y = ((x * (1 / scale) + zero).round().clamp(self.quant_min, self.quant_max) - zero) * scale"
)
_PLAIN_QUANTIZED = (
    "torch.fake_quantize_per_channel_affine(w, scale, zero.int(), axis, -128, 127)",
    "torch.fake_quantize_per_tensor_affine(w, scale, zero, -128, 127)",
)


def _replace(**functions: Function) -> Callable[[], Mapping[str, Function]]:
    return lambda: functions


#: The replaced functions, the lines, and the functions that compute them.
REWRITES = (
    Rewrite(
        "scatter_reduce with the mean",
        "total = torch.zeros_like(out).scatter_add(dim, index, x); "
        f"count = {_COUNT.format('zeros')}; "
        "y = torch.where(count > 0, total / count.clamp(min=1), out)",
        _replace(scatter_reduce=_average),
    ),
    Rewrite(
        "scatter_reduce with the mean",
        f"count = {_COUNT.format('ones')}; y = out.scatter_add(dim, index, x) / count",
        _replace(scatter_reduce=_average_all),
    ),
    Rewrite(
        "pad_packed_sequence",
        "pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])",
        _pad_to_the_input,
        changes_outputs=True,
    ),
    Rewrite("the loop over rows and pad_sequence", _REPEATED, _select_rows),
    Rewrite(
        "max_pool1d",
        "n = x.shape[-1] // k; y = x[..., : n * k].unflatten(-1, (n, k)).amax(-1)",
        _replace(max_pool1d=_pool),
    ),
    Rewrite(
        "unfold",
        "n = x.shape[1] // k; y = x[:, : n * k].unflatten(1, (n, k))",
        _replace(unfold=_unfold),
    ),
    Rewrite(
        "sort with stable=True",
        "torch.sort(x, dim=dim)",  # ONNX keeps the order of equal values
        _replace(sort=_sort, argsort=_sort),
    ),
    Rewrite("1.0 - mask", "1.0 - mask.to(torch.float32)", _replace(__rsub__=_subtract)),
    Rewrite(
        "roll",
        "n = x.shape[1]; y = x.index_select(1, (torch.arange(n) - shift) % n)",
        _replace(roll=_roll),
    ),
    Rewrite("x[index]", "x[index.long()]", _replace(__getitem__=_index)),
    Rewrite(
        "scaled_dot_product_attention with rows without a key",
        "empty = ~mask.any(-1, keepdim=True); "
        "mask = (mask | empty).expand(-1, -1, q.shape[-2], -1); "
        "y = scaled_dot_product_attention(q, k, v, mask).masked_fill(empty, 0.0)",
        _replace(scaled_dot_product_attention=_attend),
    ),
    Rewrite(
        "the forward of FusedMovingAvgObsFakeQuantize",
        _FUSED,
        _replace(fused_moving_avg_obs_fake_quant=_quantize_plainly),
    ),
    Rewrite(
        "quantize_per_channel and dequantize",
        _PLAIN_QUANTIZED[0],
        _replace(quantize_per_channel=_quantize, dequantize=_dequantize),
    ),
    Rewrite(
        "quantize_per_tensor and dequantize",
        _PLAIN_QUANTIZED[1],
        _replace(quantize_per_tensor=_quantize, dequantize=_dequantize),
    ),
    Rewrite("istft", _FOLDED, _replace(istft=_invert)),
    Rewrite("exp(1j * x)", "torch.polar(torch.ones_like(x), x)", _turn),
    Rewrite("sqrt", "x.clamp(min=0).sqrt()", _replace(sqrt=_root), changes_outputs=True),
)


Call: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class RewrittenModel(NamedTuple):
    """A model in which other functions of torch run."""

    setting: str
    create: Callable[[], Call]
    """Return the function that calls the functions of torch in one run."""
    outputs: tuple[Output, ...]
    loss: str = ""
    """How PyTorch's outputs differ from those of the model, or ""."""


def list_rewritten_models(opset_export: OpsetExport, checked: CheckedFile) -> list[RewrittenModel]:
    """Return the model with each rewrite that has an effect, and with all of them."""
    lines: dict[str, str] = {}
    _run_samples(opset_export, checked, partial(_create_call, REWRITES, lines))
    models: list[RewrittenModel] = []
    effective: list[Rewrite] = []
    for each in REWRITES:
        if each.code in lines and (model := _describe([each], lines, opset_export, checked)):
            models.append(model)
            effective.append(each)
    together = _describe(effective, lines, opset_export, checked) if len(models) > 1 else None
    return [*models, together] if together else models


def _create_call(rewrites: Sequence[Rewrite], lines: dict[str, str] | None = None) -> Call:
    """Return a function that calls the replacements.

    `lines`: It gets the code of each rewrite with an effect, and the line of the first call.
    """
    tables = [(each, each.create()) for each in rewrites]

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for rewrite, table in tables:
            replacement = table.get(getattr(func, "__name__", ""))
            result = replacement(func, *args, **kwargs) if replacement else None
            if result is not None:
                if lines is not None and rewrite.code not in lines:
                    # The working folder of a worker is the root of the project.
                    lines[rewrite.code] = find_frame_line(traceback.walk_stack(None), Path())
                return result
        return func(*args, **kwargs)

    return call


def _run_samples(
    opset_export: OpsetExport, checked: CheckedFile, create: Callable[[], Call]
) -> list[tuple[Outputs, Outputs]]:
    """Return the outputs of the model and of the rewritten one; nothing if one does not run."""
    pairs = []
    state = ModelSnapshot(opset_export.model)
    try:
        for sample in checked.reference.promised_samples:
            inputs, outputs = read_call(checked.folder.sample(sample.index), checked.spec)
            if not sample.error:
                with FunctionMode(create()):
                    others = run_model(opset_export.model, opset_export.spec, inputs)
                pairs.append((outputs, others))
    except Exception:  # a replacement that does not suit this call is no advice
        return []
    finally:
        state.restore()
    return pairs


def _describe(
    rewrites: Sequence[Rewrite],
    lines: Mapping[str, str],
    opset_export: OpsetExport,
    checked: CheckedFile,
) -> RewrittenModel | None:
    """Return the model with these rewrites, None if its outputs are others against the promise."""
    create = partial(_create_call, rewrites)
    pairs = _run_samples(opset_export, checked, create)
    is_same = all(is_rounding(*pair) for pair in pairs)
    if not pairs or is_same is any(each.changes_outputs for each in rewrites):
        return None
    places = ((each.replaced, lines[each.code]) for each in rewrites)
    replaced = join_names([f"{name} at {line}" if line else name for name, line in places])
    code = " and ".join(f"`{each.code}`" for each in rewrites)
    outputs = tuple(
        _declare_sizes(output, [pair[1][index] for pair in pairs], opset_export.spec)
        for index, output in enumerate(checked.spec.outputs)
    )
    changed = [each for each in outputs if each not in checked.spec.outputs]
    tables = (f"'{each.name}' with shape = {list(each.shape)}" for each in changed)
    loss = "" if is_same else "; PyTorch's outputs change, which the file then has too"
    return RewrittenModel(
        setting=", ".join((f"in place of {replaced}, {code}", *tables)),
        create=create,
        outputs=outputs,
        loss=loss,
    )


def _declare_sizes(output: Output, values: Sequence[Any], spec: ModelSpec) -> Output:
    """Return the output with numbers for axes of it that have one size in all runs."""
    used = {axis for item in spec.inputs for axis in item.shape}
    shape = list(output.shape)
    for dim, axis in enumerate(shape):
        sizes = {value.shape[dim] for value in values if isinstance(value, torch.Tensor)}
        if isinstance(axis, str) and axis not in used and len(values) > 1 and len(sizes) == 1:
            shape[dim] = sizes.pop()
    return output.model_copy(update={"shape": tuple(shape)})
