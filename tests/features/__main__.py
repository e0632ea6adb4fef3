"""Writes `docs/torch-onnx.md`; with words, only proves the rows whose names hold one of them."""

import sys
import tempfile
from pathlib import Path

from tests.features.holding import differences
from tests.features.table import FEATURES, write

words = sys.argv[1:]
if not words:
    write()
for feature in FEATURES:
    if any(word in feature.name for word in words):
        with tempfile.TemporaryDirectory() as folder:
            found = differences(feature, Path(folder))
        sys.stdout.write("\n  ".join([f"{feature.name}: {'wrong' if found else 'right'}", *found]))
        sys.stdout.write("\n")
