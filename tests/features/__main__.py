"""Write `docs/torch-onnx.md`; with words, test only the rows with one of them in their name."""

import sys
import tempfile
from pathlib import Path

from tests.features.row_differences import differences
from tests.features.table import FEATURES, write

words = sys.argv[1:]
if not words:
    write()
for feature in FEATURES:
    if any(word in feature.name for word in words):
        with tempfile.TemporaryDirectory() as folder:
            problems = differences(feature, Path(folder))
        sys.stdout.write(
            "\n  ".join([f"{feature.name}: {'wrong' if problems else 'right'}", *problems])
        )
        sys.stdout.write("\n")
