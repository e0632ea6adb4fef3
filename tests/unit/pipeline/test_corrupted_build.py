"""A corrupted build folder: no wrong result is reused, and no run fails.

The session `faults` is the long form, which sets `FAULTS=long`.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.checks.protocol import hash_sample
from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs import Job, JobFolder, Reference, Sample, write_json
from exporter.manifest import Manifest
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.engine import ExitKind, JobResult
from exporter.records.record import Status, read_run
from exporter.store import Store, StoreLimits
from tests.faults.corruption import cut, flip, folder, link, missing
from tests.unit.pipeline.builders import (
    BuildLog,
    FakeEngine,
    Worker,
    die_at,
    export,
    finish_with,
    manifest,
    record,
    write,
)

IS_LONG = os.environ.get("FAULTS") == "long"
CONTENT = "the only right file " * 4


def worker(of: Job) -> JobResult:
    write_json(JobFolder(Path(of.folder)).job, of)
    return finish_with("same", CONTENT)(of)


def rebuild(of: Manifest, work: Worker = worker) -> BuildLog:
    _, log = export(of, FakeEngine(work))
    return log


def assert_complete(of: Manifest) -> None:
    """Check that the results are those of a run from nothing."""
    build = BuildFolder.from_project(of.project)
    results = {str(r.cell): r.status.value for r in read_run(build.results).records}
    assert results == {f"tiny/{opset}/cpu": "pass" for opset in (17, 18, 19)}
    for opset in (17, 18, 19):
        assert build.model_folder("tiny").model(opset).read_text() == CONTENT
    assert len(build.model_folder("tiny").read_records()) == 3


FILES = (
    "tiny/records/18.cpu.json",
    "tiny/18.onnx",
    "tiny/reference.json",
    "tiny/job.json",
    "stamps.json",
    "results.json",
)


def pipe(path: Path, _: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def sparse(path: Path, _: random.Random) -> None:
    os.truncate(path, 40 << 30)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", [cut, flip, folder, link, missing, pipe, sparse])
@pytest.mark.parametrize("name", FILES)
def test_the_next_run_has_the_results_of_a_run_from_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    how: Callable[[Path, random.Random], None],
) -> None:
    of = manifest(tmp_path)
    monkeypatch.setattr(
        "exporter.cache.artifact_integrity._CLOCK_RESOLUTION", 0
    )  # stamps are stored at once
    rebuild(of)
    rebuild(of)
    draw = random.Random(5)
    for _ in range(8 if how in (cut, flip) else 1):
        path = tmp_path / "build" / name
        assert path.exists()
        how(path, draw)
        if how is folder and name != "tiny/job.json":  # only then no cell runs again
            with pytest.raises(ExporterError, match=rf"{name}.*: was not written by an export"):
                rebuild(of)
            shutil.rmtree(path)
        rebuild(of)
        assert_complete(of)


def read_reference(of: Job) -> Reference:
    return Reference.read(JobFolder(Path(of.folder)).reference.read_bytes())


def worker_with_sample(of: Job) -> JobResult:
    """Prove all cells with one sample of two files."""
    result = worker(of)
    job_folder = JobFolder(Path(of.folder))
    path = job_folder.sample(0)
    path.mkdir()
    for name in ("input_0.pb", "output_0.pb"):
        (path / name).write_text(f"values of {name}")
    digest = hash_sample(path)
    sample = Sample(index=0, name="declared", kind="declared", axes={}, sha256=digest)
    reference = read_reference(of).model_copy(update={"samples": (sample,)})
    write_json(job_folder.reference, reference)
    return result


def remove_folder(sample: Path) -> None:
    shutil.rmtree(sample)


def change_file(sample: Path) -> None:
    path = sample / "output_0.pb"
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def remove_file(sample: Path) -> None:
    (sample / "output_0.pb").unlink()


def add_file(sample: Path) -> None:
    (sample / "output_1.pb").write_text("more")


def replace_file(sample: Path) -> None:
    (sample / "output_0.pb").unlink()
    os.mkfifo(sample / "output_0.pb")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("has_store", [False, True], ids=["without a store", "with a store"])
@pytest.mark.parametrize("spoil", [remove_folder, change_file, remove_file, add_file, replace_file])
def test_a_damaged_sample_is_written_again(
    tmp_path: Path, spoil: Callable[[Path], None], *, has_store: bool
) -> None:
    of = manifest(tmp_path)
    limits = StoreLimits(size=1 << 30, age=3600.0)
    store = Store(tmp_path / "store", limits) if has_store else None
    sample = tmp_path / "build/tiny/test_data_set_0"

    def run() -> BuildLog:
        _, log = export(of, FakeEngine(worker_with_sample), store=store)
        return log

    run()
    assert run().reasons == {}
    before = hash_sample(sample)
    spoil(sample)
    if spoil is add_file:
        with pytest.raises(ExporterError, match=r"output_1\.pb: was not written by an export"):
            run()
        assert (sample / "output_1.pb").read_text() == "more"
        return
    log = run()
    problem = "tiny/test_data_set_0 is not the written sample"
    texts = [*log.reasons.values(), *log.hits.values()]
    assert len(texts) == 3
    assert all(text.startswith(problem) for text in texts)
    assert hash_sample(sample) == before
    assert run().reasons == {}
    assert_complete(of)


CHANGED = {"tiny/18/cpu": "its record was changed or damaged"}


def flipped(content: bytes, step: int) -> Iterator[bytes]:
    """Yield copies with one flipped bit, one for each `step` bytes."""
    for position in range(0, len(content), step):
        data = bytearray(content)
        data[position] ^= 1 << position % 8
        yield bytes(data)


def test_an_edited_record_is_rebuilt(tmp_path: Path) -> None:
    of = manifest(tmp_path)

    def fail_transiently(job: Job) -> JobResult:
        ended = worker(job)
        for cell in job.cells():
            write(job, record(job, cell, Status.FAIL, CONTENT))
        return ended

    rebuild(of, fail_transiently)
    path = tmp_path / "build/tiny/records/18.cpu.json"
    assert '"status": "fail"' in path.read_text()
    path.write_text(path.read_text().replace('"status": "fail"', '"status": "pass"'))
    assert rebuild(of, fail_transiently).reasons == CHANGED
    assert {r.status for r in read_run(tmp_path / "build/results.json").records} == {Status.FAIL}


def test_the_record_of_another_cell_is_rebuilt(tmp_path: Path) -> None:
    of = manifest(tmp_path)
    rebuild(of)
    records = tmp_path / "build/tiny/records"
    shutil.copy(records / "17.cpu.json", records / "18.cpu.json")
    assert rebuild(of).reasons == CHANGED
    assert_complete(of)
    assert rebuild(of).reasons == {}


@pytest.mark.parametrize("name", ["tiny", "tiny/records"])
def test_a_file_with_the_path_of_a_folder_is_not_replaced(tmp_path: Path, name: str) -> None:
    of = manifest(tmp_path)
    rebuild(of)
    path = tmp_path / "build" / name
    if path.exists():
        shutil.rmtree(path)
    path.write_text("no folder")
    with pytest.raises(ExporterError, match=f"{name}: was not written by an export") as caught:
        rebuild(of)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert path.read_text() == "no folder"
    path.unlink()
    rebuild(of)
    assert_complete(of)


@pytest.mark.parametrize(
    ("ended", "code", "status"),
    [
        (ExitKind.SIGNAL, 11, "crash"),
        (ExitKind.SIGNAL, 9, "killed"),
        (ExitKind.TIMEOUT, 0, "timeout"),
    ],
)
def test_a_transient_result_is_retried_with_its_status_as_the_reason(
    tmp_path: Path, ended: ExitKind, code: int, status: str
) -> None:
    of = manifest(tmp_path)
    engine = FakeEngine(die_at(19, ended, code), finish_with("same"))
    export(of, engine)
    _, log = export(of, engine)
    assert log.reasons == {"tiny/19/cpu": f"its previous result was {status}"}
    assert log.statuses() == {"tiny/19/cpu": "pass"}


@pytest.mark.parametrize("is_final", [True, False])
def test_a_missing_provider_is_final(tmp_path: Path, is_final: bool) -> None:
    of = manifest(tmp_path)

    def lack_provider(job: Job) -> JobResult:
        result = worker(job)
        update = {"status": Status.UNAVAILABLE, "is_final": is_final}
        for cell in job.cells():
            write(job, record(job, cell, content=CONTENT).model_copy(update=update))
        return result

    reasons = [rebuild(of, lack_provider).reasons.get("tiny/18/cpu", "") for _ in range(2)]
    again = "" if is_final else "its previous result was unavailable"
    assert reasons == ["it has not been exported yet", again]


def test_an_absent_device_is_asked_again_when_the_machine_has_its_files(tmp_path: Path) -> None:
    of, file = manifest(tmp_path), tmp_path / "dev"

    def lack_device(job: Job) -> JobResult:
        result = worker(job)
        update = {"status": Status.UNAVAILABLE, "absent": (str(file),)}
        for cell in job.cells():
            write(job, record(job, cell, content=CONTENT).model_copy(update=update))
        return result

    def find_reason() -> str:
        return rebuild(of, lack_device).reasons.get("tiny/18/cpu", "")

    assert [find_reason(), find_reason()] == ["it has not been exported yet", ""]
    file.touch()
    assert find_reason() == "its previous result was unavailable"


def test_results_with_a_flipped_bit_are_refused(tmp_path: Path) -> None:
    of = manifest(tmp_path)
    rebuild(of)
    path = tmp_path / "build/results.json"
    content = path.read_bytes()
    for data in flipped(content, 7 if IS_LONG else 97):
        path.write_bytes(data)
        with pytest.raises(
            ExporterError, match=r"is not a results file.*run `exporter export` to write it again"
        ):
            read_run(path)
    rebuild(of)
    assert path.read_bytes() == content
