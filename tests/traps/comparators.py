"""Traps: comparators in place of a tolerance."""

from __future__ import annotations

from exporter.manifest import Axis, Comparator
from exporter.records.record import Stage
from tests.traps.trap import (
    SOUND,
    Trap,
    Verdict,
    contract,
    declare_input,
    declare_output,
    inconclusive,
    parity,
    refused,
)

_FILE = "comparators.py"


def _compared(
    name: str,
    story: str,
    compare: dict[str, object],
    verdict: Verdict = SOUND,
    net: str = "Noisy",
    **init: object,
) -> Trap:
    output = declare_output("y", "batch", 10)
    output = output.model_copy(update={"compare": Comparator.model_validate(compare)})
    spec = contract(f"{_FILE}:{net}", outputs=(output,), init=init)
    return Trap(name, story, spec, verdict)


def _detected(name: str, story: str, fault: str, verdict: Verdict = SOUND) -> Trap:
    boxes = declare_output("boxes", "batch", 4)
    compare = Comparator(rows="unordered", along=("scores", "labels"))
    spec = contract(
        f"{_FILE}:Detections",
        inputs=(declare_input(),),
        outputs=(
            boxes.model_copy(update={"compare": compare}),
            declare_output("scores", "batch"),
            declare_output("labels", "batch", dtype="int64"),
        ),
        axes=(Axis(name="batch", example=7, min=3),),
        init={"fault": fault},
    )
    return Trap(name, story, spec, verdict)


def _function(name: str) -> dict[str, object]:
    return {"call": f"tests/traps/models/{_FILE}:{name}"}


def _measured(
    name: str,
    story: str,
    function: str,
    verdict: Verdict = SOUND,
    promise: dict[str, float] | None = None,
    **init: object,
) -> Trap:
    """Return a trap whose outputs keep their order, so that only the metric can be wrong."""
    output = declare_output("y", "batch", 10)
    output = output.model_copy(update={"compare": Comparator(top_k=3)})
    metric = {"call": f"tests/traps/models/{_FILE}:{function}", **(promise or {"drop": 0.05})}
    spec = contract(f"{_FILE}:Noisy", outputs=(output,), init=init, metric=metric)
    return Trap(name, story, spec, verdict)


_COSINE, _SQNR, _TOP = {"cosine": 0.999}, {"sqnr": 40.0}, {"top_k": 3}
_BLIND = "the comparator of output 'y' accepts"

COMPARATORS = (
    _compared("cosine: noise of 0.1 %", "as after quantization", _COSINE, share=1e-3),
    _compared(
        "cosine: noise of 30 %",
        "the directions differ",
        _COSINE,
        parity("parity", "at least 0.999 is promised"),
        share=0.3,
    ),
    _compared(
        "cosine: another scale",
        "the direction is right and the length is not",
        _COSINE,
        parity("parity", "the length is"),
        scale=2.0,
    ),
    _compared(
        "cosine: one wrong row",
        "the cosine of the whole output hides it at a large batch",
        {"cosine": 0.6},
        parity("parity", "in row 0 of the first axis"),
        net="WrongRow",
    ),
    _compared(
        "cosine: outputs with one direction",
        "a large bias, so any inputs give nearly the same direction",
        {"cosine": 0.9},
        inconclusive("power", f"{_BLIND} PyTorch's values for other inputs"),
        bias=50.0,
    ),
    _compared("SQNR: noise of 0.1 %", "as after quantization", _SQNR, share=1e-3),
    _compared(
        "SQNR: noise of 10 %",
        "as after a quantization with few bits",
        _SQNR,
        parity("parity", "at least 40 dB are promised"),
        share=0.1,
    ),
    _compared(
        "SQNR: one wrong row",
        "the noise of one row",
        _SQNR,
        parity("parity", "in row 0 of the first axis"),
        net="WrongRow",
    ),
    _compared(
        "SQNR: a promise without content",
        "other inputs give outputs within it",
        {"sqnr": 10.0},
        inconclusive("power", f"{_BLIND} PyTorch's values for other inputs"),
        bias=50.0,
    ),
    _compared("top 3: another scale", "the positions are right", _TOP, scale=3.0),
    _compared(
        "top 3: two classes exchanged",
        "the largest values are at other positions",
        _TOP,
        parity("parity", "the positions of the 3 largest values differ"),
        net="Swapped",
    ),
    _compared(
        "top 10 of 10",
        "every position is selected",
        {"top_k": 10},
        inconclusive("power", f"{_BLIND} the opposite values"),
    ),
    _detected("rows in reverse", "boxes, scores and labels together", "reversed"),
    _detected(
        "rows of the boxes only",
        "the scores belong to other boxes",
        "only boxes",
        parity("parity", "output '"),
    ),
    _detected(
        "one row twice",
        "another row is missing, and each row has a partner",
        "one row twice",
        parity("parity", "output 'boxes': error"),
    ),
    _detected(
        "a row less", "the counts differ", "fewer", parity("parity", "output 'boxes': shape")
    ),
    _detected(
        "rows that moved", "each box has an error", "moved", parity("parity", "output 'boxes'")
    ),
    _compared("a function: noise of 1 %", "within its bound", _function("relative"), share=0.01),
    _compared(
        "a function: noise of 30 %",
        "above its bound",
        _function("relative"),
        parity("parity", "the bound is 0.05"),
        share=0.3,
    ),
    _compared(
        "a function that accepts everything",
        "it cannot fail",
        _function("blind"),
        inconclusive("power", f"{_BLIND} zeros"),
    ),
    _compared(
        "a function that raises",
        "it returns no error",
        _function("failing"),
        parity("parity", "raises ZeroDivisionError: no norm"),
    ),
)

METRICS = (
    _measured("metric: the same", "PyTorch and the file have the same figure", "usual_size"),
    _measured(
        "metric: a drop",
        "the file's figure is half of PyTorch's",
        "usual_size",
        parity("metric", "usual_size drops by"),
        scale=0.5,
    ),
    _measured(
        "metric: too low",
        "below the promise, in PyTorch too",
        "usual_size",
        parity("metric", "at least 100 is promised (PyTorch: "),
        {"least": 100.0},
    ),
    _measured(
        "metric: a constant",
        "zeros in place of the outputs have the same figure",
        "constant",
        inconclusive("metric", "a file that returns zeros has the metric 0.9, which passes, too"),
    ),
    _measured(
        "metric: NaN", "the function returns no number", "not_a_number",
        refused(Stage.SOURCE, "not_a_number returns 'nan', expected a finite number"),
    ),
    _measured(
        "metric: text", "the function returns text", "words",
        refused(Stage.SOURCE, "words returns 'good', expected a finite number"),
    ),
    _measured(
        "metric: another input", "the function calls the model with a wrong name", "wrong_input",
        refused(Stage.SOURCE, "TypeError: the model needs the inputs x"),
    ),
)  # fmt: skip
