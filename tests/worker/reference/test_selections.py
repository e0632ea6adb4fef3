"""The values from which operators select indices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from exporter.worker.reference.review import SelectionRecorder

#: Each value is there five times.
X = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]]).repeat(1, 5)


def record(model: Callable[[torch.Tensor], torch.Tensor]) -> tuple[SelectionRecorder, torch.Tensor]:
    recorder = SelectionRecorder()
    with torch.no_grad(), recorder.watch():
        output = model(X).detach().to("cpu", copy=True)
    return recorder, output


@pytest.mark.parametrize(
    ("model", "is_first_promised"),
    [
        (lambda x: x.topk(3, dim=1).indices, False),
        (lambda x: x.topk(3, dim=1, largest=False).indices.t()[1:].to(torch.int32), False),
        (lambda x: x.sort(dim=0, descending=True).indices, False),
        (lambda x: torch.sort(x, dim=1, stable=True).indices, True),
        (lambda x: x.argsort(dim=1).reshape(-1), False),
        (lambda x: x.argmax(dim=1), True),
        (lambda x: x.argmin(), True),
        (lambda x: x.max(dim=1, keepdim=True).indices.squeeze(1), True),
        (lambda x: x.min(dim=0).indices, True),
        (lambda x: x[0, 0].argmax(), True),
        (lambda x: torch.jit.script(torch.nn.Identity())(x.argmax(dim=1)), True),
    ],
)
def test_the_selected_values_are_found(
    model: Callable[[torch.Tensor], torch.Tensor], is_first_promised: bool
) -> None:
    recorder, output = record(model)
    choice = recorder.find(output)
    assert choice is not None
    number, selection = choice
    assert number == 0
    assert selection.rows.shape == output.shape
    assert selection.is_first_promised is is_first_promised
    # The same operator on the values gives the values at the indices.
    with torch.no_grad():
        expected = selection.keys[selection.rows, model(X).long()]
    assert torch.equal(selection.keys[selection.rows, output.long()], expected)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x.argmax(dim=1) + 1,
        lambda x: x.argmax(dim=1).add_(1),
        lambda x: x.topk(3).values,
        lambda x: x.nonzero(),
        lambda x: torch.cat([x.argmax(dim=1), x.argmin(dim=1)]),
    ],
)
def test_other_outputs_have_no_selection(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    recorder, output = record(model)
    assert recorder.find(output) is None


@pytest.mark.parametrize("is_largest", [True, False])
def test_the_lower_index_comes_first(is_largest: bool) -> None:
    _, output = record(lambda x: x.topk(5, dim=1, largest=is_largest).indices)
    first = [1, 2, 5, 6, 9] if is_largest else [3, 7, 11, 15, 19]
    assert output.tolist() == [first, [0, 1, 2, 3, 4]]
    _, order = record(lambda x: x.sort(dim=1, descending=is_largest).indices)
    assert order[:, :5].tolist() == [first, [0, 1, 2, 3, 4]]


def test_each_operator_has_a_number() -> None:
    recorder = SelectionRecorder()
    with torch.no_grad(), recorder.watch():
        one, two = X.argmax(dim=1), (-X).argmax(dim=1)
    choices = [recorder.find(one), recorder.find(two)]
    assert [choice[0] for choice in choices if choice] == [0, 1]
    assert len(recorder.keys) == 2
