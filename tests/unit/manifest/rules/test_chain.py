"""The keys `chain` and `feeds`: the links, their values, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import Link, Manifest, load_project
from exporter.planning import Selection
from exporter.planning.plan import (
    Shard,
    add_chains,
    add_links,
    assign_models,
    make_plan,
    order_links_first,
)
from tests.unit.manifest.projects import make_project

LINKS = """
format = 1
[defaults]
opsets = [17, 18]
source = "torch.nn:ReLU"

[models.decoder]
inputs = [
    { name = "embedding", shape = [1, 8] },
    { name = "mask", shape = ["batch"], dtype = "int64", fill = { randint = [0, 9] } },
]
outputs = [{ name = "logits", shape = [1, 4] }, { name = "scores", shape = ["batch"] }]

[models.encoder]
inputs = [{ name = "image", shape = ["batch", 3] }]
outputs = [{ name = "low", shape = [1, 8] }, { name = "high", shape = ["batch", 8] }]
"""
WHOLE = """
[models.whole]
chain = ["encoder", "decoder"]
feeds = { "decoder.embedding" = "encoder.high", masks = "decoder.logits" }
inputs = [
    { name = "image", shape = ["batch", 3] },
    { name = "mask", shape = ["batch"], dtype = "int64", fill = { randint = [0, 9] } },
]
outputs = [{ name = "masks", shape = [1, 4] }, { name = "scores", shape = ["batch"] }]
"""


def load(root: Path, text: str = WHOLE, links: str = LINKS) -> Manifest:
    return load_project(make_project(root, {"manifests/net.toml": links + text}))


def test_each_input_of_a_link_has_a_value(tmp_path: Path) -> None:
    spec = load(tmp_path).find_model("whole")
    encoder = {"low": "encoder.low", "high": "encoder.high"}
    given = {"embedding": "encoder.high", "mask": "mask"}
    assert spec.chain == (
        Link(id="encoder", inputs={"image": "image"}, outputs=encoder),
        Link(id="decoder", inputs=given, outputs={"logits": "masks", "scores": "scores"}),
    )


LAYERS = """
format = 1
[defaults]
opsets = 18
source = "torch.nn:ReLU"

[models.encoder]
inputs = [{ name = "x", shape = [1, 3] }]
outputs = [{ name = "present.{layer}", shape = [1, 3], repeat = { layer = 2 } }]

[models.decoder]
inputs = [{ name = "past.{layer}", shape = [1, 3], repeat = { layer = 2 } }]
outputs = [{ name = "y", shape = [1, 3] }]

[models.whole]
chain = ["encoder", "decoder"]
feeds = { "decoder.past.{layer}" = "encoder.present.{layer}" }
inputs = [{ name = "x", shape = [1, 3] }]
outputs = [{ name = "y", shape = [1, 3] }]
"""


def test_a_feed_with_a_placeholder_is_one_for_each_layer(tmp_path: Path) -> None:
    spec = load(tmp_path, "", LAYERS).find_model("whole")
    assert spec.chain[1].inputs == {f"past.{n}": f"encoder.present.{n}" for n in range(2)}


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("decoder.past", "decoder.pst", "'decoder' has no input 'pst.{layer}'"),
        ("encoder.present", "encoder.presnt", "'encoder' has no output 'presnt.0'; did you mean"),
        ('"encoder.present.{layer}"', '"encoder.present.0"', ""),
        ('"encoder.present.{layer}"', '"encoder.present.{n}"', "no output 'present.{n}'; did you"),
    ],
)
def test_a_feed_of_layers_that_does_not_fit_is_a_problem_with_its_line(
    tmp_path: Path, before: str, after: str, problem: str
) -> None:
    text = LAYERS.replace(before, after)
    if not problem:
        assert load(tmp_path, "", text).find_model("whole").chain
        return
    with pytest.raises(ExporterError) as caught:
        load(tmp_path, "", text)
    problems = [e for e in caught.value.problems if problem in e.message.replace('"', "'")]
    assert problems, caught.value.problems
    line = 1 + text[: text.index("feeds =")].count("\n")
    assert {each.location.line for each in problems if each.location} == {line}


#: A text of the entry, another one in its place, and the problem.
PROBLEMS = [
    ('"encoder", "decoder"]', '"encoder", "decodr"]', "no model has the ID 'decodr'; did you mean"),
    ('"encoder", "decoder"]', '"encoder", "whole"]', "is this entry itself"),
    ('"encoder", "decoder"]', '"encoder", "encoder"]', "'encoder' is a link already"),
    ('"encoder", "decoder"]', '"encoder"]', "needs at least two links"),
    ('["encoder", "decoder"]', "[]", "is for a chain of entries; add `chain`"),
    ("chain =", "opsets = [17, 19]\nchain =", "'encoder' has no file of opset 19"),
    ("chain =", 'devices = ["cpu", "openvino"]\nchain =', "'decoder' is not proved on openvino"),
    ("chain =", 'exporter = "dynamo"\nchain =', "does not apply to a chain"),
    ("chain =", "options = { optimize = false }\nchain =", "does not apply to a chain"),
    ("chain =", 'metadata = { a = "b" }\nchain =', "does not apply to a chain"),
    ("decoder.embedding", "decoder.embeding", "'decoder' has no input 'embeding'; did you mean"),
    ("decoder.embedding", "decodr.embedding", "no input of a link and no output of this entry"),
    ("encoder.high", "encoder.hih", "'encoder' has no output 'hih'; did you mean 'high'?"),
    ("encoder.high", "embedding", "'embedding' is no output of a link and no input of this entry"),
    ("encoder.high", "decoder.logits", "'decoder' gets an output of itself"),
    ("encoder.high", "mask", "'mask' is int64, and 'embedding' is float32"),
    ("encoder.high", "image", "'image' [batch, 3] does not fit 'embedding' [1, 8]"),
    ('"decoder.embedding" = "encoder.high", ', "", "nothing feeds the input 'embedding'"),
    ('"decoder.embedding" = "encoder.high", ', "", "`feeds = { 'decoder.embedding' = 'encoder."),
    (', masks = "decoder.logits"', "", "'decoder' has no output 'masks', but logits, scores"),
    ("decoder.logits", "image", "'image' is an input of this entry"),
    ("decoder.logits", "decoder.scores", "'scores' [batch] does not fit 'masks' [1, 4]"),
    ('"scores", shape = ["batch"]', '"scores", shape = ["batch", 1]', "does not fit 'scores'"),
    (
        '    { name = "image"',
        '    { name = "other", shape = [1] },\n    { name = "image"',
        "no link gets the input 'other'",
    ),
    ('"encoder.high"', '"mask2"', "no input of this entry"),
]


@pytest.mark.parametrize(("before", "after", "problem"), PROBLEMS)
def test_what_does_not_fit_is_a_problem_with_its_line(
    tmp_path: Path, before: str, after: str, problem: str
) -> None:
    assert before in WHOLE
    with pytest.raises(ExporterError) as caught:
        load(tmp_path, WHOLE.replace(before, after))
    texts = [str(each).replace('"', "'") for each in caught.value.problems]
    found = next(text for text in texts if problem in text)
    assert found.startswith("manifests/net.toml:")


#: A decoder with another input.
OPTIONAL = """[models.decoder]
exporter = "torchscript"
capture = "script"
outputs = [{ name = "logits", shape = [1, 4] }, { name = "scores", shape = ["batch"] }]
inputs = [
    { name = "embedding", shape = [1, 8] },
    { name = "word", shape = [1], optional = true, at = "kwargs.word" },
]
[models.unused]"""
#: A text of the links, another one in its place, and the problem of the chain.
LINK_PROBLEMS = [
    ("[models.decoder]", "[models.decoder]\noptions = { export_params = false }", "its weights"),
    (
        "[models.decoder]",
        "[models.decoder]\noverrides = [{ opset = 18, options = { export_params = false } }]",
        "its weights",
    ),
    ("[models.decoder]", OPTIONAL, "the optional input word"),
    ("[models.encoder]", "[models.encoder]\nopsets = 17", "'encoder' has no file of opset 18"),
    ("[models.encoder]", '[models.encoder]\nmode = "other"', "'encoder' is invalid"),
    ("[models.encoder]", '[models.encoder]\nchain = ["decoder", "whole"]', "a chain itself"),
]


@pytest.mark.parametrize(("before", "after", "problem"), LINK_PROBLEMS)
def test_an_entry_that_cannot_be_a_link_is_a_problem(
    tmp_path: Path, before: str, after: str, problem: str
) -> None:
    assert before in LINKS
    with pytest.raises(ExporterError) as caught:
        load(tmp_path, WHOLE, LINKS.replace(before, after))
    assert any(problem in str(each).replace('"', "'") for each in caught.value.problems)


def test_a_chain_has_no_inherited_key_of_an_export_or_of_one_file(tmp_path: Path) -> None:
    settings = """
metadata = { team = "vision" }
exporter = "torchscript"
options = { do_constant_folding = false }
passes = ["passes.py:quantize"]
overrides = [{ opset = 17, options = { verbose = true }, ir_version = 9 }]
"""
    base = WHOLE.replace("models.whole", "models.base").partition("chain =")
    keys = base[2].partition("inputs =")
    text = f'{base[0]}{settings}inputs ={keys[2]}\n[models.whole]\nextends = "base"\n'
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/passes.py").write_text("def quantize(source, target): ...\n")
    spec = load(tmp_path, f"{text}chain ={keys[0]}").find_model("whole")
    cell = spec.resolve_cell(17)
    assert (spec.metadata, spec.passes, spec.parent, spec.exporter) == ({}, (), "", "auto")
    assert (cell.options, cell.ir_version) == ({}, 9)


def test_values_of_two_links_have_different_names(tmp_path: Path) -> None:
    other = WHOLE.replace('"decoder"]', '"decoder", "decoder.x"]')
    link = """
[models."decoder.x"]
inputs = [{ name = "mask", shape = ["batch"], dtype = "int64", fill = { randint = [0, 9] } }]
outputs = [{ name = "y", shape = ["batch"] }]
"""
    outputs = '{ name = "logits", shape = [1, 4] }, '
    same = LINKS.replace(outputs, outputs + '{ name = "x.y", shape = [1] }, ')
    feeds = '{ scores = "decoder.scores", '
    with pytest.raises(ExporterError, match=r'"decoder\.x\.y" is an output of a link, too'):
        load(tmp_path, other.replace("feeds = { ", f"feeds = {feeds}"), same + link)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = WHOLE.replace("encoder.high", "encoder.hih").replace("decoder.logits", "decoder.x")
    text += "\n[models.whole.options]\noptimize = true\n"
    with pytest.raises(ExporterError) as caught:
        load(tmp_path, text)
    assert len(caught.value.problems) == 3


def test_a_selected_chain_selects_its_links(tmp_path: Path) -> None:
    manifest = load(tmp_path)
    plan = make_plan(manifest, Selection(patterns=("whole/17",)))
    names = [str(planned.cell) for planned in add_links(plan).selected]
    assert names == ["decoder/17/cpu", "encoder/17/cpu", "whole/17/cpu"]
    plan = make_plan(manifest, Selection(patterns=("encoder/18",)))
    assert [str(each.cell) for each in add_chains(plan).selected] == [
        "encoder/18/cpu",
        "whole/18/cpu",
    ]


def test_a_chain_follows_its_links_and_is_in_their_shard(tmp_path: Path) -> None:
    alone = '\n[models.alone]\nextends = "encoder"\n'
    plan = make_plan(load(tmp_path, WHOLE + alone))
    assert [each.cell.model for each in order_links_first(plan.cells)][-2:] == ["whole"] * 2
    shards = [set(assign_models(plan, Shard(index=i, count=2))) for i in (1, 2)]
    assert sorted(shards, key=len) == [{"alone"}, {"decoder", "encoder", "whole"}]


def test_the_skip_of_a_link_skips_the_chain(tmp_path: Path) -> None:
    skip = '[models.encoder]\nskip = [{ opset = 18, reason = "slow" }]'
    manifest = load(tmp_path, WHOLE, LINKS.replace("[models.encoder]", skip))
    skipped = {str(each.cell): each.skip for each in make_plan(manifest).cells if each.skip}
    reason = "its link encoder does not run: slow"
    assert skipped == {"encoder/18/cpu": "slow", "whole/18/cpu": reason}
