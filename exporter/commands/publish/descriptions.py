"""The texts of a published folder: the card, the contract, the settings of runners, the hashes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from exporter.commands.publish.card_code import write_cpp, write_sample_code, write_session
from exporter.commands.publish.published_folder import (
    CARD,
    CONTRACT,
    EXAMPLE,
    GENAI_CONFIG,
    GENERATOR,
    MARKER,
    RUNNER,
    SUMS,
    Publication,
    has_generator,
    list_files,
    list_missing_in_genai,
)
from exporter.core.files import hash_file, write_text
from exporter.core.text import format_requirement
from exporter.manifest import Device, ModelSpec
from exporter.records.record import PREPROCESS
from exporter.report.pages.model_page import describe_contract
from exporter.report.pages.templates import render, render_script
from exporter.report.rows.matrix import format_runtime

_CPU_PROVIDER = "CPUExecutionProvider"


def write_descriptions(
    publication: Publication,
    spec: ModelSpec,
    devices: Sequence[Device],
    templates: Path,
    folder: Path,
) -> None:
    """Write the descriptions of the files, and then the hashes of all files.

    `spec`: The contract at this opset; `devices`: those of the records.

    Raises:
        ExporterError: MANIFEST if the project's template `card.md` is invalid.
    """
    pairs = zip(devices, publication.records, strict=True)
    session = _choose_session(devices)
    missing_in_genai = list_missing_in_genai(spec)
    card = render(
        "card.md",
        templates,
        **dict(publication),
        release=publication.release,
        spec=spec,
        contract=describe_contract(spec),
        devices=devices,
        runtimes=tuple(format_runtime(*pair, publication.tools) for pair in pairs),
        session_code=write_session(session),
        session_settings=session.session_settings if session else {},
        session_device=session.name if session else "",
        sample_code="" if spec.chain else write_sample_code(publication, spec, session),
        cpp_code="" if spec.chain else write_cpp(publication, spec, session),
        proofs=find_preprocess_proofs(publication),
        install=format_requirement("verify", is_shared=True),
        has_example=(folder / EXAMPLE).exists(),
        has_generator=has_generator(spec),
        missing_in_genai=missing_in_genai,
    )
    atol = max((item.atol for item in publication.allowed), default=0.0)
    rtol = max((item.rtol for item in publication.allowed), default=0.0)
    write_text(folder / MARKER, publication.to_json())
    write_text(folder / CONTRACT, spec.to_json())
    write_text(folder / CARD, card)
    names = (GENERATOR, GENAI_CONFIG) if has_generator(spec) else ()
    for name in names[: 1 if missing_in_genai else 2]:
        write_text(folder / name, render(name, templates, spec=spec))
    if publication.links:
        code = write_session(session, "path")
        values = {**dict(publication), "spec": spec, "session_code": code}
        write_text(folder / RUNNER, render_script(RUNNER, **values))
    write_text(folder / "data.json", json.dumps({"rtol": rtol, "atol": atol}) + "\n")
    config = f"per_sample_tolerance:{atol}\nrelative_per_sample_tolerance:{rtol}\n"
    write_text(folder / "config.txt", config)
    lines = (f"{hash_file(folder / name)}  {name}\n" for name in sorted(list_files(folder)))
    write_text(folder / SUMS, "".join(lines))


def find_preprocess_proofs(publication: Publication) -> dict[str, str]:
    """Return for each input with `preprocess` how the records prove it."""
    metrics = {
        key: str(value)
        for record in publication.records
        for check in record.checks
        for key, value in check.metrics.items()
    }
    return {
        name: metrics.get(f"{PREPROCESS}{name}", "declared, not proved: no caller has samples")
        for name in publication.preprocess
    }


def _choose_session(devices: Sequence[Device]) -> Device | None:
    """Return the device of ONNX Runtime whose settings the card uses, one of the CPU first."""
    proved = [device for device in devices if device.runtime == "onnxruntime"]
    return min(proved, key=lambda device: {*device.providers} != {_CPU_PROVIDER}, default=None)
