"""Inputs for two files that have no entry: sizes that the reference accepts, and drawn values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from exporter.checks.file_differences import GraphValue
from exporter.commands.verify.client import PairOptions
from exporter.core.errors import ExitCode, ExporterError, suggest_nearest
from exporter.runtimes import RunFailure
from exporter.runtimes.session import Array, OnnxValue

#: Small different sizes first: equal ones hide an axis in the place of another.
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
#: Sizes of all axes but the first ones, if the reference does not accept the small ones.
_COMMON = (1, 4, 8, 16, 32, 64, 77, 128, 224, 256, 512)
#: Elements of all inputs together.
_MOST = 1 << 24
#: The upper ends of integers, excluded, of which no table is known.
_USUAL = {"uint8": 256}
_DEFAULT_END = 2
#: The same for one more set; larger ones may be the sizes of huge tensors.
_LARGER_END = 100
_DRAWN = frozenset({"f", "i", "u", "b"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSet:
    """The inputs of one comparison, with the reference's outputs."""

    name: str
    kind: str
    """`declared`, `axis` or `values`, as of a sample."""
    axes: Mapping[str, int]
    inputs: Mapping[str, Array]
    outputs: Sequence[OnnxValue]
    factor: float = 1.0
    """The factor of inputs with another magnitude."""


@dataclass(slots=True)
class InputDraw:
    """The draw of inputs for a reference.

    `fixed`: Sizes of axes that only the other file fixes.
    `ends`: The number of rows of the table that an input selects from.
    """

    inputs: Sequence[GraphValue]
    options: PairOptions
    fixed: Mapping[str, int]
    ends: Mapping[str, int]
    run: Callable[[Mapping[str, Array]], Sequence[OnnxValue]]
    _accepted: set[str] = field(init=False, default_factory=set)
    """The inputs whose larger integers the reference accepts."""

    def __post_init__(self) -> None:
        axes = self.list_axes()
        names = [item.name for item in self.inputs]
        for option, given, known in (
            ("--size", self.options.sizes, axes),
            ("--values", self.options.values, names),
        ):
            if unknown := next((name for name in given if name not in known), ""):
                hint = suggest_nearest(unknown, known) or f"; use {', '.join(known) or 'none'}"
                kind = "free axis" if option == "--size" else "input"
                message = f"{option}: the reference has no {kind} '{unknown}'{hint}"
                raise ExporterError(ExitCode.MANIFEST, message)
        for item in self.inputs:
            if not item.has_rank or not item.dtype or _find_dtype(item).kind not in _DRAWN:
                message = f"input '{item.name}' is {item}: such values cannot be drawn; "
                raise ValueError(f"{message}prove the file with an entry that has data (`fill`)")

    def list_axes(self) -> list[str]:
        """Return the names of the free axes."""
        dims = (dim for item in self.inputs for dim in name_axes(item))
        return list(dict.fromkeys(dim for dim in dims if isinstance(dim, str)))

    def draw(self) -> tuple[list[DrawnSet], list[str]]:
        """Return the sets with the reference's outputs, the first declared, and what is missing.

        Raises:
            ValueError: If the reference accepts no sizes that were tried.
        """
        base, first = self._find_base()
        sets, missing = [first], list[str]()
        for axis in self._list_free():
            sizes = (1, base[axis] + 1, 2 * base[axis], 3 * base[axis])
            tried = [{**base, axis: size} for size in sizes if size != base[axis]]
            accepted = [drawn for each in tried if (drawn := self._try(axis, each))]
            if not accepted:  # axes of several inputs may have one size, with names of their own
                same = [name for name in self._list_free() if base[name] == base[axis]]
                tried = [{**base, **dict.fromkeys(same, size[axis])} for size in tried]
                accepted = [drawn for each in tried if (drawn := self._try(axis, each))]
            sets += [each for each in accepted if self._is_new(each, sets)]
            if not accepted:
                missing.append(f"other sizes of '{axis}': the reference accepts only {base[axis]}")
        for seed, factor in ((1, 1.0), (2, 1.0), (3, 1.0), (4, 10.0)):
            inputs = self._fill(base, seed, factor)
            try:
                outputs = self.run(inputs)
            except RunFailure:
                continue
            drawn = replace(first, name=f"values of seed {seed}", kind="values", factor=factor)
            sets.append(replace(drawn, inputs=inputs, outputs=outputs))
        return [*sets, *self._draw_larger(first)], missing

    def _draw_larger(self, first: DrawnSet) -> Iterator[DrawnSet]:
        """Yield a set with larger integers if the reference accepts them where the range is open.

        A mask of other numbers than 0 and 1 has no meaning.
        """
        names = [name for name in self._list_open() if "mask" not in name.lower()]
        if not names:
            return
        inputs = self._fill(first.axes, 5, ends=dict.fromkeys(names, _LARGER_END))
        with suppress(RunFailure):
            name = f"integers up to {_LARGER_END - 1}"
            drawn = replace(first, name=name, kind="values", inputs=inputs)
            yield replace(drawn, outputs=self.run(inputs))
            self._accepted = {*names}

    def _list_free(self) -> list[str]:
        """Return the axes with more than one size."""
        known = {**self.options.sizes, **self.fixed}
        return [axis for axis in self.list_axes() if axis not in known]

    @staticmethod
    def _is_new(drawn: DrawnSet, known: Sequence[DrawnSet]) -> bool:
        return all(drawn.axes != each.axes for each in known)

    def _try(self, axis: str, sizes: Mapping[str, int]) -> DrawnSet | None:
        inputs = self._fill(sizes, 0)
        if sum(array.size for array in inputs.values()) > _MOST:
            return None
        try:
            outputs = self.run(inputs)
        except RunFailure:
            return None
        name = f"{axis}={sizes[axis]}"
        return DrawnSet(name=name, kind="axis", axes=sizes, inputs=inputs, outputs=outputs)

    def _find_base(self) -> tuple[Mapping[str, int], DrawnSet]:
        problem = ""
        for sizes in self._list_bases():
            inputs = self._fill(sizes, 0)
            try:
                outputs = self.run(inputs)
            except RunFailure as failure:
                problem = problem or str(failure)
                continue
            drawn = DrawnSet(
                name="drawn inputs", kind="declared", axes=sizes, inputs=inputs, outputs=outputs
            )
            return sizes, drawn
        fix = "tell sizes by `--size AXIS=N` and the range of integers by `--values NAME=LOW..HIGH`"
        raise ValueError(f"the reference fails on all inputs that were drawn: {problem}; {fix}")

    def _list_bases(self) -> Iterator[dict[str, int]]:
        axes = self.list_axes()
        given = {**self.fixed, **self.options.sizes}
        primes = (_PRIMES[index % len(_PRIMES)] for index in range(len(axes)))
        yield {**dict(zip(axes, primes, strict=True)), **given}
        first = {dim for item in self.inputs for dim in name_axes(item)[:1]}
        for size in _COMMON:
            yield {**{axis: 2 if axis in first else size for axis in axes}, **given}
        for size in (1, 2, 8):
            yield {**dict.fromkeys(axes, size), **given}

    def _fill(
        self,
        sizes: Mapping[str, int],
        seed: int,
        factor: float = 1.0,
        ends: Mapping[str, int] | None = None,
    ) -> dict[str, Array]:
        generator = np.random.default_rng(seed)
        return {
            item.name: self._fill_input(item, sizes, seed, generator, factor, ends or {})
            for item in self.inputs
        }

    def _fill_input(
        self,
        item: GraphValue,
        sizes: Mapping[str, int],
        seed: int,
        generator: np.random.Generator,
        factor: float,
        ends: Mapping[str, int],
    ) -> Array:
        dtype = _find_dtype(item)
        shape = tuple(dim if isinstance(dim, int) else sizes[dim] for dim in name_axes(item))
        low, high = self.options.values.get(item.name, (0.0, 1.0))
        is_given = item.name in self.options.values
        if dtype.kind == "b":
            return generator.random(shape) < 0.5
        if dtype.kind in "iu":
            end = int(high) + 1 if is_given else ends.get(item.name) or self._find_end(item)
            drawn = generator.integers(int(low), max(end, int(low) + 1), shape)
            if drawn.size > 1:  # the ends of a table are the first to be cut off
                drawn.flat[0], drawn.flat[-1] = int(low), max(end - 1, int(low))
            return drawn.astype(dtype)
        if is_given or seed == 3:  # a logarithm or a root needs numbers above 0
            return (low + (high - low) * generator.random(shape)).astype(dtype)
        return (factor * generator.standard_normal(shape)).astype(dtype)

    def _find_end(self, item: GraphValue) -> int:
        return self.ends.get(item.name) or _USUAL.get(item.dtype, _DEFAULT_END)

    def list_guesses(self) -> list[str]:
        """Return the inputs of integers whose range is only a guess."""
        return [
            f"input '{name}' had 0 {last} only, because no table limits it; tell its range by "
            f"`--values {name}=LOW..HIGH`"
            for name in self._list_open()
            for last in (f"to {_LARGER_END - 1}" if name in self._accepted else "and 1",)
        ]

    def _list_open(self) -> list[str]:
        """Return the inputs of integers whose range nothing shows."""
        return [
            item.name
            for item in self.inputs
            if item.name not in {**self.ends, **self.options.values}
            and _find_dtype(item).kind in "iu"
            and item.dtype not in _USUAL
        ]


def _find_dtype(item: GraphValue) -> np.dtype[np.generic]:
    try:
        return np.dtype(item.dtype)
    except TypeError:
        return np.dtype(object)


def name_axes(item: GraphValue) -> list[int | str]:
    """Return the shape with a name for each free axis: `x.0` for one without a name."""
    return [
        dim if isinstance(dim, int) else dim or f"{item.name}.{index}"
        for index, dim in enumerate(item.shape)
    ]
