"""Split off; to be described."""

from __future__ import annotations

from typing import Literal

from exporter.core.frozen_model import ChecksummedModel, FrozenModel, Items


class Sample(FrozenModel):
    """One input set: PyTorch's inputs and outputs lie in `test_data_set_<index>`."""

    index: int
    name: str
    """`declared`, `batch=7`, `batch=7 sequence=11`, `other mask`, or the name of a case."""
    kind: Literal["declared", "axis", "case", "values"]
    axes: dict[str, int]
    """Size of every axis that the inputs have."""
    error: str = ""
    """Why PyTorch itself does not run on it; then there are no outputs."""
    scales: Items[float] = ()
    """Largest finite magnitude of each output in PyTorch; 0 for outputs that are not floats."""
    sha256: str = ""
    """Of the files in its folder; see `checks.samples.sample_digest`."""
    exact: bool = True
    """Whether it was run in float64 too, be it in vain."""
    noise: Items[float | None] = ()
    """Of each output, where it has a noise of its own: inputs of another magnitude."""

    @property
    def says(self) -> tuple[object, ...]:
        """What PyTorch was given and gave back, in short."""
        return (self.kind, self.axes, self.error, self.scales)


class TableParts(FrozenModel):
    """A weight that a file may read row by row, as digests of its parts."""

    dtype: str
    """By ONNX's name: `FLOAT`."""
    shape: Items[int]
    parts: Items[str]
    """In the order of the rows; empty for a part of nothing but zeros."""


class NamedWeight(FrozenModel):
    """A weight that the manifest names, as PyTorch has it."""

    name: str
    """In the file."""
    source: str
    """In the model: `features.0.weight`."""
    dtype: str
    """By PyTorch's name: `float32`."""
    shape: Items[int]
    sha256: str
    """Of its values, row by row."""
    is_read: bool = True
    """Whether a run of the model reads it; a file may lack what is never read."""


class Weight(FrozenModel):
    """A weight of a model whose file takes its weights as inputs."""

    name: str
    """In the file."""
    dtype: str
    shape: Items[int]
    is_read: bool
    """Whether a run of the model reads it."""
    same_as: str = ""
    """The first name of the same tensor, where it has several."""


class Reference(ChecksummedModel):
    """What PyTorch says: the samples, and how exact its own float32 is."""

    samples: Items[Sample]
    noise: Items[float | None]
    """For each output, the largest |float32 - float64| over the samples that were run in float64,
    as a share of the output's scale. None where float64 cannot say (the output is no float, or did
    not run)."""
    float64: str = ""
    """Why there is no float64 reference; empty where there is one."""
    unstable: str = ""
    """How PyTorch differs from itself on the declared inputs; empty where it does not."""
    output_spread: Items[float | None]
    """For each output, how far it moves when inputs get other values: floats as a share of their
    scale, others as a share of the elements; None where PyTorch took no other values."""
    overflow: Items[str] = ()
    """For each output, how far PyTorch's dtype leaves its range where float64 does not; empty
    where it does not, as far as samples were run in float64."""
    thorough: bool = False
    """Whether more sizes and values were tried than by default."""
    returns_objects: bool = False
    """Whether the model returns more than tuples, lists and dicts of tensors."""
    tables: Items[TableParts] = ()
    """Every weight of two dimensions: of a table, samples read a few rows."""
    weights: Items[NamedWeight] = ()
    """The weights that the manifest names."""
    weight_inputs: Items[Weight] = ()
    """Every weight in the order of the `state_dict`, where a file takes them as inputs; see
    `JobFolder.weight`."""

    def is_compatible_with(self, other: Reference) -> bool:
        """Whether both can be of one model: what they both looked at is the same.

        How many samples there are, and how many of them were run in float64, is a matter of how
        thoroughly the model was looked at.
        """
        theirs = {sample.name: sample for sample in other.samples}
        pairs = [(mine, theirs[mine.name]) for mine in self.samples if mine.name in theirs]
        return (
            bool(pairs)
            and all(one.says == another.says for one, another in pairs)
            and (self.tables, self.unstable) == (other.tables, other.unstable)
        )

    @property
    def is_measured_everywhere(self) -> bool:
        """Whether no sample is left that float64 could say more of."""
        asked = all(sample.exact or sample.error for sample in self.samples)
        return asked or all(share is None for share in self.noise)
