"""Write the metadata of packages that no test installs."""

from __future__ import annotations

from pathlib import Path


def write_distribution(site: Path, name: str, version: str = "1.0", **files: str) -> Path:
    """Write `METADATA` and other files of a package, and return their folder."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    for file, text in {"METADATA": metadata, **files}.items():
        (info / file).write_text(text, encoding="utf-8")
    return info
