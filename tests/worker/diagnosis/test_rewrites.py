"""Rewrites of lines: each is named only after its file passed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from exporter.manifest import Input
from exporter.records.record import PROVED, Record
from exporter.worker import job_output
from exporter.worker.diagnosis.rewrites import REWRITES
from tests.traps.prove import export, run_in_fork
from tests.worker.contracts import ROOT, declare, make_contract, make_fill

NETS = Path(__file__).with_name("rewritten_nets.py")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model at one opset, and parts of its advice."""

    net: str
    opset: int
    signature: str
    code: str
    line: str
    fills: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, dict[str, int]] = field(default_factory=dict)
    loss: bool = False


def draw(low: int, high: int | str) -> Any:
    end = {"axis": high} if isinstance(high, str) else {"high": high}
    return make_fill("randint", low=low, **end)


MASK = {"mask": make_fill("bernoulli", probability=0.5)}
CASES = (
    Case(
        net="Averages",
        opset=18,
        signature="x [e=5, 3], target int64 [e], like [n=4] -> y [n, 3]",
        fills={"target": draw(0, "n")},
        code="count = torch.zeros_like(out).scatter_add(dim, index, torch.ones_like(x))",
        line="out.scatter_reduce",
    ),
    Case(
        net="Packs",
        opset=14,
        signature="x [batch, 7, 4], length int64 [batch] -> y [batch, longest, 6]",
        fills={"length": draw(1, 8)},
        code="total_length=x.shape[1])`, 'y' with shape = ['batch', 7, 6]",
        line="pad_packed_sequence(out",
        loss=True,
    ),
    Case(
        net="Repeats",
        opset=18,
        signature="x [batch, t=5, 4], frames int64 [batch, t] -> y [batch, longest, 4]",
        fills={"frames": draw(1, 4)},
        code="frames.cumsum(1)",
        line="rows = [torch.repeat_interleave(row, n",
    ),
    Case(
        net="Pools",
        opset=18,
        signature="x [batch, seq=9] -> y [batch, low]",
        axes={"seq": {"min": 4}},
        code="y = x[..., : n * k].unflatten(-1, (n, k)).amax(-1)",
        line="functional.max_pool1d(x.unsqueeze",
    ),
    Case(
        net="Sorts",
        opset=18,
        signature="x [batch, n=5] -> y int64 [batch, n]",
        code="torch.sort(x, dim=dim)",
        line="torch.sort(x, dim=1, stable=True)",
    ),
    Case(
        net="Rolls",
        opset=17,
        signature="x [batch, n=5] -> y [batch, n]",
        code="(torch.arange(n) - shift) % n",
        line="torch.roll",
    ),
    Case(
        net="Turns",
        opset=17,
        signature="x [batch, n=5] -> y int64 [batch, n]",
        code="torch.sort(x, dim=dim)` and `n = x.shape[1]",
        line="torch.sort(torch.roll(",
    ),
    Case(
        net="Attends",
        opset=23,
        signature="q [batch, 2, n=5, 4], mask bool [batch, n] -> y [batch, 2, n, 4]",
        fills=MASK,
        code="masked_fill(empty, 0.0)",
        line="attn_mask=mask[:, None, None, :]",
    ),
    Case(
        net="quantize_aware",
        opset=14,
        signature="x [batch, 3, 6, 6] -> y [batch, 4, 4, 4]",
        code="clamp(self.quant_min, self.quant_max)",
        line="",
    ),
    Case(
        net="Channels",
        opset=18,
        signature="x [batch, 6] -> y [batch, 4]",
        code="torch.fake_quantize_per_channel_affine(w, scale, zero.int(), axis, -128, 127)",
        line="torch.quantize_per_channel",
    ),
    Case(
        net="Inverse",
        opset=18,
        signature="real [batch, 9, n=5], imag [batch, 9, n] -> y [batch, length]",
        axes={"n": {"min": 2}},
        code="torch.fft.irfft(z.transpose(1, 2), n) * window",
        line="torch.istft",
    ),
    Case(
        net="Phases",
        opset=18,
        signature="m [batch, n=5], p [batch, n] -> y [batch, n, 2]",
        code="torch.polar(torch.ones_like(x), x)",
        line="torch.exp(1j * phase)",
    ),
    Case(
        net="Roots",
        opset=17,
        signature="x [batch, 3, n=9] -> y [batch, 3, half]",
        axes={"n": {"min": 2}},
        code="x.clamp(min=0).sqrt()",
        line="torch.sqrt(x)",
        loss=True,
    ),
)


def diagnose(case: Case, folder: Path) -> Record:
    values = declare(case.signature)
    inputs: Any = values["inputs"]
    axes: Any = values["axes"]
    fill = {name: {"fill": each} for name, each in case.fills.items()}
    changed: tuple[Input, ...] = tuple(
        each.model_copy(update=fill.get(each.name, {})) for each in inputs
    )
    spec = make_contract(
        case.net,
        source=f"diagnosis/rewritten_nets.py:{case.net}",
        opsets=(case.opset,),
        inputs=changed,
        outputs=values["outputs"],
        timeout=600.0,
        axes=tuple(each.model_copy(update=case.axes.get(each.name, {})) for each in axes),
    )
    # Loaded machines count more CPU time for the same work, and the advice is what is tested.
    with patch.object(job_output, "_MAX_SECONDS", 300.0):
        (record,) = export(spec, folder / "job", root=ROOT, diagnose=True)
    return record


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.net)
def test_a_rewrite_whose_file_passes_is_named_with_its_line(case: Case, tmp_path: Path) -> None:
    record = run_in_fork(lambda: diagnose(case, tmp_path))
    assert record.status.is_red
    (advice,) = record.advice
    assert case.code in advice
    assert PROVED in advice
    assert ("PyTorch's outputs change" in advice) is case.loss
    if case.line:
        assert case.line in record.message, record.message


@pytest.mark.filterwarnings("ignore")
def test_a_rewrite_with_other_values_is_no_advice(tmp_path: Path) -> None:
    signature = "x [batch, t=5, 4], frames int64 [batch, t] -> y []"
    fills = {"frames": draw(1, 4)}
    case = Case(net="Sums", opset=14, signature=signature, fills=fills, code="", line="")
    record = run_in_fork(lambda: diagnose(case, tmp_path))
    assert record.status.is_red
    assert "cumsum" not in str(record.advice)


def test_each_rewrite_has_lines_that_python_reads() -> None:
    for rewrite in REWRITES:
        compile(rewrite.code, rewrite.replaced, "exec")
