"""The folders and files of the zoo."""

from pathlib import Path

PROJECT = Path(__file__).parent / "project"
MANIFESTS = PROJECT / "manifests"
BUILD = PROJECT / "build"
VERDICTS = BUILD / "verdicts.jsonl"
PAGE = Path(__file__).parents[2] / "reports/ZOO.md"
