"""What torch's exporter leaves besides the graph: reports and programs that options ask for.

In: the folder that it wrote to. Out: the same files under names that do not change from run to run,
and a note that says where they are.
"""

from __future__ import annotations

from pathlib import Path

#: What each kind of file is, by its suffix; torch's own names hold the time.
_NAMES = {".md": "report", ".pt2": "program"}


def rename_exporter_reports(folder: Path, job: Path) -> list[str]:
    """Renames what was written and says where it lies.

    Args:
        folder: Where the exporter was told to write; it may not exist.
        job: The folder of the job, to which the note is relative.
    """
    if not folder.is_dir():
        return []
    kept = []
    for path in sorted(item for item in folder.iterdir() if item.is_file()):
        stem = _NAMES.get(path.suffix, path.stem)
        name, number = f"{stem}{path.suffix}", 1
        while name in kept:
            number += 1
            name = f"{stem}-{number}{path.suffix}"
        path.replace(folder / name)
        kept.append(name)
    if not kept:
        return []
    return [f"the exporter also wrote {', '.join(kept)}, in {folder.relative_to(job).as_posix()}"]
