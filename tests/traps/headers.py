"""Traps: headers and signatures that were changed after the export.

Output: `HEADERS`.
"""

from __future__ import annotations

from tests.traps import edits
from tests.traps import tampering as tamper
from tests.traps.sound import CHOSEN, RESHAPED, TWO, file_trap
from tests.traps.trap import (
    DYNAMO,
    Trap,
    parity,
    structure,
)

HEADERS = (
    file_trap(
        "opset kept at 18",
        "a file of opset 18 in the place of 13",
        edits.stamp(18),
        structure("opset", "the file has opset 18, expected 13"),
    ),
    file_trap(
        "opset stamped down",
        "the file declares 13 instead of 18",
        edits.stamp(13),
        structure("opset", "the file has opset 13, expected 18"),
        DYNAMO,
    ),
    Trap(
        name="IR version above the cap",
        story="an older runtime refuses only the header",
        spec=TWO.model_copy(update={"ir_version": 8}),
        tamper=edits.ir_version(9),
        verdict=structure("opset", "the file has IR version 9, the manifest allows up to 8"),
    ),
    Trap(
        name="IR version that does not exist",
        story="no checker knows it",
        spec=TWO,
        tamper=edits.ir_version(99),
        verdict=structure("wellformed", "ir_version"),
    ),
    Trap(
        name="function of another opset",
        story="the model's own import is right",
        spec=RESHAPED,
        tamper=tamper.edited(edits.function_of_another_opset),
        verdict=structure("opset", "the function own::Act has opset 12, expected 13"),
    ),
    Trap(
        name="not a file of ONNX",
        story="text",
        spec=TWO,
        tamper=lambda path: path.write_text("not a model") and None,
        verdict=structure("opset", "is not an ONNX file"),
    ),
    Trap(
        name="empty file",
        story="nothing was written",
        spec=TWO,
        tamper=lambda path: path.write_bytes(b"") and None,
        verdict=structure("opset", "imports no opset"),
    ),
    Trap(
        name="no file",
        story="it is gone",
        spec=TWO,
        tamper=lambda path: path.unlink(),
        verdict=structure("opset", "cannot be read"),
    ),
    Trap(
        name="file cut short",
        story="half of it was written",
        spec=TWO,
        tamper=lambda path: path.write_bytes(path.read_bytes()[:300]) and None,
        verdict=structure("opset", "is not an ONNX file"),
    ),
    Trap(
        name="inputs swapped",
        story="each name takes the other's value; the signature is the same",
        spec=TWO,
        tamper=tamper.swap_names("left", "right"),
        verdict=parity("parity", "output 'a': error"),
    ),
    Trap(
        name="outputs swapped",
        story="each name gives the other's value; the signature is the same",
        spec=TWO,
        tamper=tamper.swap_names("a", "b"),
        verdict=parity("parity", "output 'a': error"),
    ),
    Trap(
        name="outputs in another order",
        story="each has its own name, at another place",
        spec=TWO,
        tamper=tamper.edited(edits.outputs_reordered),
        verdict=structure("signature", "outputs have another order"),
    ),
    Trap(
        name="two outputs of one name",
        story="the second cannot be had",
        spec=TWO,
        tamper=tamper.edited(edits.same_output_twice),
        verdict=structure("signature", "2 outputs have the name 'a'"),
    ),
    Trap(
        name="output missing",
        story="one of two",
        spec=TWO,
        tamper=tamper.edited(edits.output_missing),
        verdict=structure("signature", "outputs differ: the file has 1 (a), declared 2 (a, b)"),
    ),
    Trap(
        name="one output more",
        story="an input is listed among them",
        spec=TWO,
        tamper=tamper.edited(edits.output_more),
        verdict=structure("signature", "outputs differ: the file has 3 (a, b, left)"),
    ),
    Trap(
        name="input renamed",
        story="in the whole file",
        spec=TWO,
        tamper=tamper.edited(edits.input_renamed),
        verdict=structure("signature", "inputs differ: the file has 2 (l, right)"),
    ),
    Trap(
        name="input with a default value",
        story="the file runs without it",
        spec=TWO,
        tamper=tamper.edited(edits.input_stored),
        verdict=structure("signature", "input 'right' has a default value"),
    ),
    Trap(
        name="input that is not read",
        story="it is still listed",
        spec=TWO,
        tamper=tamper.edited(edits.input_unused),
        verdict=structure("signature", "the graph ignores input 'right'"),
    ),
    Trap(
        name="axis fixed",
        story="`batch` of an output is 3",
        spec=TWO,
        tamper=tamper.edited(edits.axis_fixed),
        verdict=structure("signature", "axis 'batch' of output 'a' is fixed at 3"),
    ),
    Trap(
        name="axis freed",
        story="4 columns are any number of columns",
        spec=TWO,
        tamper=tamper.edited(edits.axis_freed),
        verdict=structure("signature", "dimension 1 of input 'left' is dynamic ('width')"),
    ),
    Trap(
        name="axis names lost",
        story="`batch` has no name",
        spec=TWO,
        tamper=tamper.edited(edits.axis_names_lost),
        verdict=structure("signature", "axis 'batch' of input 'left' has no name"),
    ),
    Trap(
        name="axis renamed",
        story="`batch` is called `rows`",
        spec=TWO,
        tamper=tamper.edited(edits.axis_renamed),
        verdict=structure("signature", "axis 'batch' of output 'a' has the name 'rows'"),
    ),
    Trap(
        name="shape lost",
        story="an output of any rank",
        spec=TWO,
        tamper=tamper.edited(edits.shape_lost),
        verdict=structure("wellformed", "Field 'shape' of 'type' is required"),
    ),
    Trap(
        name="label of another dtype",
        story="int32 for int64",
        spec=CHOSEN,
        tamper=tamper.edited(edits.dtype_of),
        verdict=structure("signature", "output 'best' is int32, declared int64"),
    ),
    file_trap(
        "wrong shape inside the graph",
        "an annotation that inference contradicts",
        tamper.edited(edits.hidden_shape_lie),
        structure("wellformed", ""),
    ),
)
