"""The file of a chain: a graph with one node for each link, whose file is beside it.

No runtime loads it: its session runs the file of each link in a session of its own, on the outputs
of the links before it, as a program does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, helper

from exporter.core.files import read_regular_file
from exporter.core.text import join_names
from exporter.runtimes.drivers.driver import Placement
from exporter.runtimes.session import Array, LoadFailure, OnnxValue, RunFailure, Session

#: The domain of the nodes that are links.
DOMAIN = "exporter.chain"
_FILE, _INPUTS, _OUTPUTS = "file", "link_inputs", "link_outputs"
#: The largest file of a chain: it has no weights.
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFile:
    """A link, and the values that it gets and gives, by the names in its file."""

    id: str
    file: str
    """The name of its file, beside the file of the chain."""
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def make_nodes(links: Sequence[LinkFile]) -> list[onnx.NodeProto]:
    """Return the nodes of the graph of a chain."""
    return [
        helper.make_node(
            link.id,
            list(link.inputs.values()),
            list(link.outputs.values()),
            name=link.id,
            domain=DOMAIN,
            file=link.file,
            link_inputs=[*link.inputs],
            link_outputs=[*link.outputs],
        )
        for link in links
    ]


def list_links(proto: ModelProto) -> tuple[LinkFile, ...]:
    """Return the links of the file of a chain; none for another file."""
    return tuple(_read_link(node) for node in proto.graph.node if node.domain == DOMAIN)


def _read_link(node: onnx.NodeProto) -> LinkFile:
    values = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    names = {key: [text.decode() for text in values.get(key, ())] for key in (_INPUTS, _OUTPUTS)}
    return LinkFile(
        id=node.name,
        file=values.get(_FILE, b"").decode(),
        inputs=dict(zip(names[_INPUTS], node.input, strict=False)),
        outputs=dict(zip(names[_OUTPUTS], node.output, strict=False)),
    )


def read_chain(path: Path) -> ModelProto | None:
    """Return the graph of a chain, or None if the file is another one or cannot be read."""
    try:
        content = read_regular_file(path, _MAX_BYTES, may_be_link=True)
        if DOMAIN.encode() not in content:
            return None
        proto = onnx.load_model_from_string(content)
    except (OSError, DecodeError, ValueError):
        return None  # the runtime reports it
    return proto if list_links(proto) else None


class ChainSession:
    """The sessions of all links of a chain."""

    def __init__(self, path: Path, proto: ModelProto, load: Callable[[Path], Session]) -> None:
        self.links = list_links(proto)
        self.output_names = [item.name for item in proto.graph.output]
        #: The values that are the outputs.
        self.sources = self.output_names
        self._sessions: list[Session] = []
        for link in self.links:
            if PurePosixPath(link.file).name != link.file:  # a published file can name any path
                raise LoadFailure(f"the link '{link.id}': {link.file!r} is no file beside it")
            try:
                self._sessions.append(load(path.parent / link.file))
            except LoadFailure as error:
                raise LoadFailure(f"the link '{link.id}': {error}") from error

    @property
    def placement(self) -> Placement | None:
        """The placement of the nodes of all links; None if that of one is unknown."""
        placements = [session.placement for session in self._sessions]
        known = [each for each in placements if each is not None]
        if len(known) < len(placements):
            return None
        nodes: dict[str, Counter[str]] = {}
        shapes: Counter[str] = Counter()
        for each in known:
            shapes.update(each.shapes)
            for provider, counts in each.nodes.items():
                nodes.setdefault(provider, Counter()).update(counts)
        operators = [each.operators for each in known if each.operators is not None]
        copies = [each.copies for each in known if each.copies is not None]
        return known[0]._replace(
            nodes=nodes,
            statement="; ".join(filter(None, dict.fromkeys(each.statement for each in known))),
            operators=[*chain(*operators)] if len(operators) == len(known) else None,
            is_software=any(each.is_software for each in known),
            strict=any(each.strict for each in known),
            others=[name for each in known for name in each.others],
            shapes=shapes,
            copies=sum(copies) if len(copies) == len(known) else None,
        )

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        values: dict[str, OnnxValue] = dict(inputs)
        for index in range(len(self.links)):
            values |= self.run_link(index, values)
        missing = [name for name in self.sources if name not in values]
        if missing:
            raise RunFailure(f"no link gives the output '{missing[0]}'")
        return [values[name] for name in self.sources]

    def rewire(self, links: Sequence[LinkFile], sources: Sequence[str]) -> ChainSession:
        """Return the chain with other inputs of its links, and other values as its outputs."""
        other = copy(self)
        other.links, other.sources = tuple(links), list(sources)
        return other

    def run_link(self, index: int, values: Mapping[str, OnnxValue]) -> dict[str, OnnxValue]:
        """Run one link on the values so far, and return those that it gives.

        Raises:
            RunFailure: If its file fails on these values, with what each link gave.
        """
        link, session = self.links[index], self._sessions[index]
        inputs: dict[str, Array] = {}
        for name, source in link.inputs.items():
            value = values.get(source)
            if value is None or isinstance(value, list):
                raise RunFailure(f"the link '{link.id}' gets no tensor '{source}' as '{name}'")
            inputs[name] = value.copy()  # a runtime may write to its inputs
        try:
            outputs = session.run(inputs)
        except RunFailure as failure:
            texts = [
                f"'{name}' is {value.dtype} {list(value.shape)} from '{link.inputs[name]}'"
                for name, value in inputs.items()
            ]
            text = f"the link '{link.id}' fails: {failure}; {join_names(texts)}"
            raise RunFailure(text) from failure
        given = dict(zip(session.output_names, outputs, strict=True))
        if absent := [name for name in link.outputs if name not in given]:
            raise RunFailure(f"the file of the link '{link.id}' has no output '{absent[0]}'")
        return {value: given[name] for name, value in link.outputs.items()}
