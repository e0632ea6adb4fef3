"""Traps: graphs and weights that were changed after the export."""

from __future__ import annotations

import numpy as np

from exporter.records.record import Stage, Status
from tests.traps import edits
from tests.traps import tampering as tamper
from tests.traps.sound import (
    CHOSEN,
    LOOPED,
    MASKED,
    OFF,
    RESHAPED,
    ROOTED,
    WORDS,
    file_trap,
    picture,
)
from tests.traps.trap import DYNAMO, SOUND, TORCHSCRIPT, Trap, Verdict, parity, structure

GRAPHS = (
    file_trap("untouched", "the file as it was written", tamper.edited(lambda _: None), SOUND),
    file_trap(
        "untouched under dynamo",
        "the file as it was written",
        tamper.edited(lambda _: None),
        SOUND,
        DYNAMO,
    ),
    file_trap(
        "slope", "LeakyRelu's alpha 0.1 is 0.11", tamper.attribute("LeakyRelu", "alpha", 0.11)
    ),
    file_trap(
        "softmax axis", "over another axis of the same size", tamper.attribute("Softmax", "axis", 1)
    ),
    file_trap(
        "padding", "the picture moves by one", tamper.attribute("Conv", "pads", [2, 1, 0, 1])
    ),
    file_trap("Clip's upper bound", "0.6 is 0.61", tamper.constant(0.6, 0.61)),
    file_trap("Clip's lower bound", "-0.6 is -0.61", tamper.constant(-0.6, -0.61)),
    file_trap("Clip left out", "no bounds at all", tamper.skip("Clip")),
    file_trap("activation left out", "LeakyRelu is gone", tamper.skip("LeakyRelu")),
    file_trap(
        "activation of another kind", "Relu for LeakyRelu", tamper.replace("LeakyRelu", "Relu")
    ),
    file_trap(
        "mean for maximum",
        "average pooling for maximum pooling",
        tamper.edited(
            lambda model: setattr(tamper.node(model, "MaxPool"), "op_type", "AveragePool")
        ),
        structure("wellformed", "Unrecognized attribute"),
    ),
    file_trap("epsilon", "1e-05 is 1e-04", tamper.constant(1e-5, 1e-4)),
    file_trap(
        "epsilon as an attribute",
        "LayerNormalization's 1e-05 is 1e-06",
        tamper.attribute("LayerNormalization", "epsilon", 1e-6),
        OFF,
        DYNAMO,
    ),
    file_trap(
        "there and back wrongly",
        "Transpose back and forth, with height and width exchanged on the way",
        tamper.edited(edits.transposed_back),
    ),
    file_trap(
        "through float16", "a result goes through float16", tamper.edited(edits.through_half)
    ),
    file_trap("random numbers", "the file differs from itself", tamper.edited(edits.noise)),
    file_trap(
        "unknown operator",
        "of a domain that the manifest does not name",
        tamper.edited(edits.unknown_operator),
        structure("opset", "the file uses the domain 'unknown' (Unknown)"),
    ),
    Trap(
        "unknown operator of a domain that is named",
        "no runtime here has the operator, which the entry declares",
        picture(TORCHSCRIPT, options={"custom_opsets": {"unknown": 1}}),
        Verdict(
            status=Status.UNAVAILABLE,
            stage=Stage.LOAD,
            message="cpu has no kernel for unknown::Unknown",
        ),
        tamper=tamper.edited(edits.unknown_operator),
    ),
    Trap(
        "batch baked into a Reshape",
        "the signature still declares `batch`",
        RESHAPED,
        parity("axes", "batch=7"),
        tamper=edits.reshape_to(3),
    ),
    Trap(
        "batch of any size in a Reshape",
        "-1 has the same meaning",
        RESHAPED,
        tamper=edits.reshape_to(-1),
    ),
    Trap(
        "Transpose left out of a square",
        "two by two stays two by two",
        RESHAPED,
        OFF,
        tamper=tamper.skip("Transpose"),
    ),
    Trap(
        "loop of three turns",
        "the count is a number in the graph; the input is still read inside",
        LOOPED,
        parity("values", "other n: output 'y': error"),
        tamper=edits.loop_of(3),
    ),
    Trap(
        "NaN on one side",
        "the file takes the root of the magnitude",
        ROOTED,
        parity("parity", "output 'y': NaN or Inf differ"),
        tamper=tamper.edited(edits.root_of_magnitude),
    ),
    Trap(
        "Inf on one side",
        "the file divides by zero once more",
        RESHAPED,
        parity("parity", "output 'y': NaN or Inf differ in 3 of 12 elements"),
        tamper=tamper.after("y", "Div", np.array([1, 1, 1, 0], np.float32)),
    ),
    Trap(
        "labels off by one",
        "integers must be equal",
        CHOSEN,
        parity("parity", "output 'best': 3 of 3 elements differ"),
        tamper=tamper.after("best", "Add", np.array(1, np.int64)),
    ),
    Trap(
        "sorted the other way",
        "largest first",
        CHOSEN,
        parity("parity", "output 'sorted': error"),
        tamper=tamper.attribute("TopK", "largest", 1),
    ),
    Trap(
        "truth turned round",
        "Less for Greater",
        CHOSEN,
        parity("parity", "output 'positive': 12 of 12 elements differ"),
        tamper=tamper.replace("Greater", "Less"),
    ),
)

WEIGHTS = (
    file_trap(
        "weight off by 1e-3",
        "every element of one weight",
        tamper.weight("second.weight", lambda array: array + np.float32(1e-3)),
    ),
    file_trap(
        "one element of one weight",
        "by 1e-3",
        tamper.weight("first.weight", tamper.one_element(1e-3)),
    ),
    file_trap(
        "one bias of the head", "by 1e-5", tamper.weight("head.bias", tamper.one_element(1e-5))
    ),
    file_trap(
        "weights rounded to float16",
        "stored in half of the bits",
        tamper.weight("head.weight", lambda a: a.astype(np.float16).astype(np.float32)),
    ),
    file_trap(
        "two initializers swapped",
        "two biases of one shape",
        tamper.swap_weights("first.bias", "second.bias"),
    ),
    file_trap(
        "sign of one weight",
        "of one element",
        tamper.weight("second.weight", tamper.one_element(-0.06633818)),
    ),
    Trap(
        "row of an embedding that inputs reach",
        "an input may select any row; the inputs select these",
        WORDS,
        OFF,
        tamper=tamper.weight("words.weight", lambda array: array * np.float32(1.001)),
    ),
    Trap(
        "row of an embedding that no input reaches",
        "an input may select any row; the inputs select others and the last one",
        WORDS,
        parity("tables", "parts of the table 'words.weight' are not PyTorch's"),
        tamper=tamper.weight("words.weight", tamper.add_to_row(-2, 1.0)),
    ),
    Trap(
        "bound that no input reaches",
        "a Clip at 1000 that PyTorch does not have: inputs are normal noise, and larger "
        "only under `thorough`",
        RESHAPED.model_copy(update={"thorough": True}),
        parity("values", "1000 x x: output 'y': error"),
        tamper=tamper.after("y", "Clip", np.array(-1e3, np.float32), np.array(1e3, np.float32)),
    ),
    Trap(
        "weight of logits under a mask of -1e9",
        "relative to a billion, an error of 1 is small, but the logits are wrong",
        MASKED,
        OFF,
        tamper=tamper.weight("linear.bias", lambda array: array + np.float32(1.0)),
    ),
)
