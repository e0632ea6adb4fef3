"""The copy of a finished file, the `artifact` of an entry, into the folder of the job."""

from __future__ import annotations

import shutil
from pathlib import Path

from exporter.checks.files.external_data import (
    find_external_data_problems,
    list_external_files,
    rename_external_files,
)
from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.core.files import hash_file
from exporter.jobs.job_folder import JobFolder, format_weights_name
from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.worker.process.failure import Failure, format_message


def copy_artifact(spec: ModelSpec, opset: int, root: Path, folder: JobFolder) -> tuple[str, ...]:
    """Copy the file of one opset with its external data, and return a note about its origin.

    Raises:
        Failure: At stage `convert`, if the file or its external data cannot be read.
    """
    name = spec.find_artifact(opset)
    source, target = root / name, folder.model(opset)
    try:
        model = read_model(source)
        if problems := tuple(find_external_data_problems(model, source.parent)):
            raise UnreadableModel(f"{source.name}: {'; '.join(problems)}")
    except UnreadableModel as error:
        message = format_message(f"artifact: {error}; correct the path or create the file again")
        raise Failure(Stage.CONVERT, message) from None
    if names := list_external_files(model):
        new_names = {}
        for each in names:
            new_names[each] = format_weights_name(hash_file(source.parent / each))
            shutil.copyfile(source.parent / each, folder.path / new_names[each])
        rename_external_files(model, new_names)
        target.write_bytes(model.SerializeToString(deterministic=True))
    else:
        shutil.copyfile(source, target)
    producer = f"{model.producer_name} {model.producer_version}".strip()
    return (f"the file is {name}, {f'written by {producer}' if producer else 'of unknown origin'}",)
