"""The folders and files of the zoo."""

from importlib.metadata import version
from pathlib import Path

PROJECT = Path(__file__).parent / "project"
MANIFESTS = PROJECT / "manifests"
BUILD = PROJECT / "build"
#: Those of other releases of torch are in other files.
VERDICTS = BUILD / f"verdicts-{version('torch').partition('+')[0]}.jsonl"
PAGE = Path(__file__).parents[2] / "reports/ZOO.md"
