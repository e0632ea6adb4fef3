"""Traps: headers and signatures that were changed after the export."""

from __future__ import annotations

from tests.traps import edits
from tests.traps import tampering as tamper
from tests.traps.sound import CHOSEN, RESHAPED, TWO, file_trap
from tests.traps.trap import DYNAMO, Trap, parity, structure

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
        "IR version above the cap",
        "an older runtime refuses only the header",
        TWO.model_copy(update={"ir_version": 8}),
        structure("opset", "the file has IR version 9, the manifest allows up to 8"),
        tamper=edits.ir_version(9),
    ),
    Trap(
        "IR version that does not exist",
        "no checker knows it",
        TWO,
        structure("wellformed", "ir_version"),
        tamper=edits.ir_version(99),
    ),
    Trap(
        "function of another opset",
        "the model's own import is right",
        RESHAPED,
        structure("opset", "the function own::Act has opset 12, expected 13"),
        tamper=tamper.edited(edits.function_of_another_opset),
    ),
    Trap(
        "not a file of ONNX",
        "text",
        TWO,
        structure("opset", "is not an ONNX file"),
        tamper=lambda path: path.write_text("not a model") and None,
    ),
    Trap(
        "empty file",
        "nothing was written",
        TWO,
        structure("opset", "imports no opset"),
        tamper=lambda path: path.write_bytes(b"") and None,
    ),
    Trap(
        "no file",
        "it is gone",
        TWO,
        structure("opset", "cannot be read"),
        tamper=lambda path: path.unlink(),
    ),
    Trap(
        "file cut short",
        "half of it was written",
        TWO,
        structure("opset", "is not an ONNX file"),
        tamper=lambda path: path.write_bytes(path.read_bytes()[:300]) and None,
    ),
    Trap(
        "inputs swapped",
        "each name takes the other's value; the signature is the same",
        TWO,
        parity("parity", "output 'a': error"),
        tamper=tamper.swap_names("left", "right"),
    ),
    Trap(
        "outputs swapped",
        "each name gives the other's value; the signature is the same",
        TWO,
        parity("parity", "output 'a': error"),
        tamper=tamper.swap_names("a", "b"),
    ),
    Trap(
        "outputs in another order",
        "each has its own name, at another place",
        TWO,
        structure("signature", "outputs have another order"),
        tamper=tamper.edited(edits.outputs_reordered),
    ),
    Trap(
        "two outputs of one name",
        "the second cannot be had",
        TWO,
        structure("signature", "2 outputs have the name 'a'"),
        tamper=tamper.edited(edits.same_output_twice),
    ),
    Trap(
        "output missing",
        "one of two",
        TWO,
        structure("signature", "outputs differ: the file has 1 (a), declared 2 (a, b)"),
        tamper=tamper.edited(edits.output_missing),
    ),
    Trap(
        "one output more",
        "an input is listed among them",
        TWO,
        structure("signature", "outputs differ: the file has 3 (a, b, left)"),
        tamper=tamper.edited(edits.output_more),
    ),
    Trap(
        "input renamed",
        "in the whole file",
        TWO,
        structure("signature", "inputs differ: the file has 2 (l, right)"),
        tamper=tamper.edited(edits.input_renamed),
    ),
    Trap(
        "input with a default value",
        "the file runs without it",
        TWO,
        structure("signature", "input 'right' has a default value"),
        tamper=tamper.edited(edits.input_stored),
    ),
    Trap(
        "input that is not read",
        "it is still listed",
        TWO,
        structure("signature", "the graph ignores input 'right'"),
        tamper=tamper.edited(edits.input_unused),
    ),
    Trap(
        "axis fixed",
        "`batch` of an output is 3",
        TWO,
        structure("signature", "axis 'batch' of output 'a' is fixed at 3"),
        tamper=tamper.edited(edits.axis_fixed),
    ),
    Trap(
        "axis freed",
        "4 columns are any number of columns",
        TWO,
        structure("signature", "dimension 1 of input 'left' is dynamic ('width')"),
        tamper=tamper.edited(edits.axis_freed),
    ),
    Trap(
        "axis names lost",
        "`batch` has no name",
        TWO,
        structure("signature", "axis 'batch' of input 'left' has no name"),
        tamper=tamper.edited(edits.axis_names_lost),
    ),
    Trap(
        "axis renamed",
        "`batch` is called `rows`",
        TWO,
        structure("signature", "axis 'batch' of output 'a' has the name 'rows'"),
        tamper=tamper.edited(edits.axis_renamed),
    ),
    Trap(
        "shape lost",
        "an output of any rank",
        TWO,
        structure("wellformed", "Field 'shape' of 'type' is required"),
        tamper=tamper.edited(edits.shape_lost),
    ),
    Trap(
        "label of another dtype",
        "int32 for int64",
        CHOSEN,
        structure("signature", "output 'best' is int32, declared int64"),
        tamper=tamper.edited(edits.dtype_of),
    ),
    file_trap(
        "wrong shape inside the graph",
        "an annotation that inference contradicts",
        tamper.edited(edits.hidden_shape_lie),
        structure("wellformed", ""),
    ),
)
