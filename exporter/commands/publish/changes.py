"""What is different for a user of a published file, compared with the folder that it replaces."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.commands.publish.published_folder import Publication, Replacement
from exporter.core.text import format_bytes
from exporter.manifest import ModelSpec
from exporter.manifest.syntax.releases import format_release
from exporter.report.pages.model_page import describe_contract

_KEYS = ("version", "license", "description", "owner")
#: The texts of a changed preprocessing or of labels would be too long.
_LONG = ("preprocess", "labels", "meaning")


def describe_replacement(
    old: tuple[Publication, ModelSpec], new: tuple[Publication, ModelSpec], numbers: tuple[str, ...]
) -> Replacement | None:
    """Return what a new folder replaces; what the old one replaced if nothing is different.

    `numbers`: The differences of the outputs of both files.
    """
    before, after = old[0], new[0]
    changes = (*_compare_contracts(old[1], new[1]), *_compare_files(before, after), *numbers)
    if not changes and before.sha256 == after.sha256:
        return before.replaces
    return Replacement(
        sha256=before.sha256, version=old[1].version, commit=before.commit, changes=changes
    )


def _compare_contracts(old: ModelSpec, new: ModelSpec) -> Iterator[str]:
    for key in _KEYS:
        yield from _compare(key, getattr(old, key), getattr(new, key))
    for key in sorted({**old.metadata, **new.metadata}):
        yield from _compare(f"metadata {key}", old.metadata.get(key), new.metadata.get(key))
    tables = [describe_contract(each) for each in (old, new)]
    for kind in ("inputs", "outputs"):
        items = [{each.name: each for each in getattr(spec, kind)} for spec in (old, new)]
        yield from _compare(kind, ", ".join(items[0]), ", ".join(items[1]))
        rows = [{str(row["name"]): row for row in table[kind]} for table in tables]
        for name in (name for name in items[0] if name in items[1]):
            for key in ("dtype", "shape"):
                yield from _compare(f"{key} of {name}", rows[0][name][key], rows[1][name][key])
            for key in _LONG:
                values = [getattr(each[name], key, None) for each in items]
                if values[0] != values[1]:
                    yield f"{key} of {name}"
    sizes = [{str(row["name"]): row["sizes"] for row in table["axes"]} for table in tables]
    for name in (name for name in sizes[0] if name in sizes[1]):
        yield from _compare(f"sizes of {name}", sizes[0][name], sizes[1][name])


def _compare_files(old: Publication, new: Publication) -> Iterator[str]:
    yield from _compare("commit", old.commit, new.commit)
    first, second = (_describe_needs(each) for each in (old, new))
    yield from _compare("needs", first, second)
    devices = [", ".join(each.cell.device for each in item.records) for item in (old, new)]
    yield from _compare("proved on", *devices)
    sizes = [
        sum(each.artifact.bytes for each in item.records[:1] if each.artifact)
        for item in (old, new)
    ]
    yield from _compare("size", *map(format_bytes, sizes))
    allowed = [{each.output: each for each in item.allowed} for item in (old, new)]
    for name in (name for name in allowed[0] if name in allowed[1]):
        pair = [f"atol {each[name].atol:.3g}, rtol {each[name].rtol:.3g}" for each in allowed]
        yield from _compare(f"allowed error of {name}", *pair)


def _describe_needs(publication: Publication) -> str:
    release, artifact = publication.release, publication.records[0].artifact
    needed = "ONNX Runtime " + (format_release(release) if release else "of the future")
    return f"{needed}, IR version {artifact.ir_version}" if artifact else needed


def _compare(name: str, old: object, new: object) -> Iterator[str]:
    if old != new:
        yield f"{name}: {old or 'none'} -> {new or 'none'}"
