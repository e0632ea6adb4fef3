"""One output of the file held against PyTorch's: a tensor, or a sequence item by item.

In: what the session put out, and the sample. Out: comparisons, each with the words for what was
compared: `output 'y'`, `item 2 of output 'parts'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from exporter.checks.comparison.compare_arrays import (
    Comparison,
    compare_arrays,
    measure_scale,
    report_mismatch,
)
from exporter.checks.comparison.tolerance import (
    Limit,
    compute_limit,
    compute_limit_without_float64,
    is_float,
    is_limit_measured,
)
from exporter.checks.files.sample_files import SampleData
from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import Reference
from exporter.manifest import Output
from exporter.runtimes.values import Array, OnnxValue


@dataclass(frozen=True, slots=True)
class OutputContext:
    """Which output is held against what is said of it."""

    context: CheckContext
    index: int
    device: str
    is_exact: bool = True
    """Whether the sample was run in float64, be it in vain."""

    @property
    def output(self) -> Output:
        """The output, as it is declared."""
        return self.context.spec.outputs[self.index]

    @property
    def overflow(self) -> str:
        """How PyTorch's dtype leaves its range here; empty where it does not."""
        return get_overflow(self.context.reference, self.index)


def compare_output(
    actual: object, data: SampleData, at: OutputContext
) -> Iterator[tuple[str, Comparison]]:
    """Holds an output against PyTorch's: of a sequence the count first, then each item."""
    name = f"output '{at.output.name}'"
    expected, exact = data.outputs[at.index], data.float64_outputs[at.index]
    if not isinstance(expected, list):
        yield name, _compare(actual, expected, None if isinstance(exact, list) else exact, at)
    elif not isinstance(actual, list):
        yield name, report_mismatch(f"no sequence but a {type(actual).__name__}")
    elif len(actual) != len(expected):
        yield name, report_mismatch(f"{_items(len(actual))}, PyTorch gives {len(expected)}")
    else:
        wides = split_float64_items(exact, len(expected))
        for place, columns in enumerate(zip(actual, expected, wides, strict=True)):
            yield f"item {place} of {name}", _compare(*columns, at)


def get_overflow(reference: Reference, index: int) -> str:
    """How PyTorch's dtype leaves its range in an output; empty where it does not."""
    return reference.overflow[index] if index < len(reference.overflow) else ""


def split_float64_items(exact: OnnxValue | None, count: int) -> list[Array | None]:
    """The items of a sequence in float64; None for each where there is no such sequence."""
    if isinstance(exact, list) and len(exact) == count:
        return [*exact]
    return [None] * count


def choose_limit(
    expected: Array, exact: Array | None, at: OutputContext
) -> tuple[Limit | None, Array]:
    """The limit of one tensor, and the values that it is about: PyTorch's own, or float64's.

    Args:
        expected: What PyTorch put out.
        exact: The same in float64.
        at: The output that it is, or is an item of.

    Returns:
        No limit where values must be equal.
    """
    where = (at.context, at.index, at.device)
    if not is_float(expected.dtype.name) or not is_float(at.output.dtype):
        return None, expected
    if not at.is_exact and is_limit_measured(*where):
        return compute_limit_without_float64(*where, measure_scale(expected)), expected
    usable = exact is not None and exact.shape == expected.shape and measure_scale(exact) > 0
    measured = usable and is_limit_measured(*where)
    against = exact if measured and exact is not None else expected
    return compute_limit(*where, measure_scale(against), float64_outputs=measured), against


def _compare(actual: object, expected: Array, exact: Array | None, at: OutputContext) -> Comparison:
    limit, against = choose_limit(expected, exact, at)
    found = compare_arrays(actual, expected, limit, against)
    if found.has_nonfinite_mismatch and at.overflow:
        return replace(found, problem=f"{found.problem}; {at.overflow}")
    return found


def _items(count: int) -> str:
    return f"{count} item" if count == 1 else f"{count} items"
