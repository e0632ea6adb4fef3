"""The options of the manifest cover all arguments of torch.onnx.export."""

from __future__ import annotations

import inspect

import torch

from exporter.manifest.rules.sources import EXPORTER_OPTIONS
from exporter.manifest.schema.entry import REMOVED_OPTIONS, OptionsTable
from exporter.worker.export.convert import _DYNAMO_OPTIONS, _TORCHSCRIPT_OPTIONS

ARGUMENTS = frozenset(inspect.signature(torch.onnx.export).parameters)
#: Arguments of torch.onnx.export that the writer of the artifact implements.
_BY_THE_ARTIFACT = {"external_data", "export_params", "keep_initializers_as_inputs"}


def test_every_argument_of_torch_is_an_option_or_a_known_key() -> None:
    known = {
        *OptionsTable.model_fields,
        *OptionsTable.misplaced_keys,
        *OptionsTable.unsupported_keys,
    }
    assert ARGUMENTS - known == set()


def test_every_option_is_an_argument_of_torch() -> None:
    assert set(OptionsTable.model_fields) - ARGUMENTS == set()


def test_removed_options_are_no_arguments() -> None:
    assert ARGUMENTS.isdisjoint(REMOVED_OPTIONS)


def test_every_option_reaches_an_exporter() -> None:
    passed = {*_DYNAMO_OPTIONS, *_TORCHSCRIPT_OPTIONS, *_BY_THE_ARTIFACT}
    assert set(OptionsTable.model_fields) == passed
    assert set().union(*EXPORTER_OPTIONS.values()) == passed
    assert EXPORTER_OPTIONS["dynamo"] >= set(_DYNAMO_OPTIONS)
    assert EXPORTER_OPTIONS["torchscript"] >= set(_TORCHSCRIPT_OPTIONS)
