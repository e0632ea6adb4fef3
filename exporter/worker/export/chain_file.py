"""The file of a chain, in place of an export: the files of its links, and a graph of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from onnx import ModelProto, TypeProto, ValueInfoProto, helper

from exporter.checks.model_file import UnreadableModel, list_external_files, read_model
from exporter.core.files import hash_file
from exporter.core.text import DISTRIBUTION
from exporter.jobs import Job, JobFolder, LinkState, OpsetJob, format_link_name
from exporter.manifest import ModelSpec
from exporter.manifest.resolved.call import TensorSpec
from exporter.records.record import Stage, Status
from exporter.runtimes.chain import DOMAIN, LinkFile, make_nodes
from exporter.runtimes.graph_walk import normalize_domain
from exporter.worker.process.failure import Failure


def copy_links(job: Job, opset: OpsetJob) -> None:
    """Copy the proved files of the links of a chain into the job's folder.

    A file that is missing or other than the proved one is left out; `write_chain` reports it.
    """
    folder = Path(job.folder)
    for link in opset.links:
        source = JobFolder(Path(job.build) / link.model).model(opset.opset)
        target = folder / format_link_name(link.state)
        if link.problem or target.exists():
            continue
        with suppress(OSError, UnreadableModel):
            if hash_file(source) != link.state:
                continue
            for name in list_external_files(read_model(source)):
                if not (folder / name).exists():
                    shutil.copyfile(source.parent / name, folder / name)
            shutil.copyfile(source, target)


def split_by_links(opset: OpsetJob) -> Iterator[tuple[OpsetJob, Failure | None]]:
    """Yield the devices on which all links have the same green files, and why others fail."""
    groups: dict[tuple[str, ...], list[str]] = {}
    failures: dict[tuple[str, ...], Failure] = {}
    for device in opset.devices:
        links = [link for link in opset.links if link.device == device.name]
        key = tuple(link.state for link in links)
        broken = [link for link in links if link.problem]
        if broken:
            key = (*key, device.name)
            failures[key] = _report_links(broken)
        groups.setdefault(key, []).append(device.name)
    for key, names in groups.items():
        part = opset.model_copy(
            update={
                "devices": tuple(device for device in opset.devices if device.name in names),
                "links": tuple(link for link in opset.links if link.device in names),
            }
        )
        yield part, failures.get(key)


def _report_links(links: Sequence[LinkState]) -> Failure:
    first = links[0]
    is_unavailable = all(link.state == "unavailable" for link in links)
    return Failure(
        Stage.CONVERT,
        f"the link '{first.model}' is not green: {first.problem}",
        status=Status.UNAVAILABLE if is_unavailable else Status.FAIL,
    )


def write_chain(job: Job, opset: OpsetJob, spec: ModelSpec) -> None:
    """Write the graph of the links.

    Raises:
        Failure: At stage `convert`, if the file of a link is missing, or if it has other inputs or
            outputs than its entry.
    """
    job_folder = JobFolder(Path(job.folder))
    states = {link.model: link.state for link in opset.links}
    protos: dict[str, ModelProto] = {}
    links: list[LinkFile] = []
    for link in spec.chain:
        name = format_link_name(states.get(link.id, ""))
        path = job_folder.path / name
        if not path.is_file():
            message = f"the link '{link.id}': its proved file of opset {opset.opset} is not in the "
            message += "build folder of this machine; run `exporter export --engine local`"
            raise Failure(Stage.CONVERT, message, status=Status.UNAVAILABLE)
        protos[link.id] = read_model(path)
        links.append(LinkFile(id=link.id, file=name, inputs=link.inputs, outputs=link.outputs))
    graph = helper.make_graph(
        make_nodes(links),
        spec.id,
        [_describe_value("input", item, links, protos) for item in spec.inputs],
        [_describe_value("output", item, links, protos) for item in spec.outputs],
    )
    versions = {
        item.version
        for proto in protos.values()
        for item in proto.opset_import
        if not normalize_domain(item.domain)
    }
    imports = [helper.make_opsetid("", version) for version in sorted(versions)[-1:]]
    model = helper.make_model(
        graph,
        producer_name=DISTRIBUTION,
        opset_imports=[*imports, helper.make_opsetid(DOMAIN, 1)],
        ir_version=max(proto.ir_version for proto in protos.values()),
    )
    job_folder.model(opset.opset).write_bytes(model.SerializeToString(deterministic=True))


def _describe_value(
    kind: Literal["input", "output"],
    item: TensorSpec,
    links: Sequence[LinkFile],
    protos: Mapping[str, ModelProto],
) -> ValueInfoProto:
    """Return a value of the whole: of each axis, the size that a link fixes, else its name."""
    types = [
        value.type
        for link in links
        for value in getattr(protos[link.id].graph, kind)
        if getattr(link, f"{kind}s").get(value.name) == item.name
    ]
    return _join_types(item.name, item.file_shape, types, f"the {kind} '{item.name}'")


def _join_types(
    name: str, shape: Sequence[int | str], types: Sequence[TypeProto], subject: str
) -> ValueInfoProto:
    if not types:
        message = f"{subject}: no file of a link has it; export the links again"
        raise Failure(Stage.CONVERT, message)
    joined = TypeProto()
    joined.CopyFrom(types[0])
    kind = joined
    if kind.WhichOneof("value") == "sequence_type":
        kind = kind.sequence_type.elem_type
    dims = kind.tensor_type.shape.dim
    for index, dim in enumerate(dims):
        fixed = [
            each.tensor_type.shape.dim[index].dim_value
            for each in types
            if index < len(each.tensor_type.shape.dim)
            and each.tensor_type.shape.dim[index].HasField("dim_value")
        ]
        if fixed:
            dim.dim_value = fixed[0]
        elif not dim.HasField("dim_value") and index < len(shape):
            dim.dim_param = str(shape[index])
    return ValueInfoProto(name=name, type=joined)
