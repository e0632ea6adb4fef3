"""All uses of private functions of torch and onnxscript, also the speed-ups of an export.

The rest of the package uses public interfaces only (`tests/architecture/test_private_torch.py`).
Each group of private functions has a name, and is used only if

- the installed minor version of its package was tested (`guards.py`), and
- the environment variable `EXPORTER_TORCH_PRIVATE` does not switch it off. `none` switches off all
  groups; a list such as `decompositions,weights` leaves only these groups on.

| group | effect |
|---|---|
| `capture` | the patches of `torch.onnx.export` around a capture, such as loops for LSTM and GRU |
| `decompositions` | one decomposition serves all opsets with the same translations |
| `operators` | operators of traced graphs are counted, all missing operators are listed |
| `weights` | weights of a TorchScript export bypass protobuf, which saves memory |
| `registry` | translations are read once per process |
| `type_promotion` | only changed nodes run again when types are promoted |
| `node_metadata` | nodes carry the lines of the source and the namespace only |
| `composite_operators` | a decomposition lists the composite operators once |
| `rewrite_rules` | the optimizer skips rules that cannot match |

If a group is off, the public path of torch is used: slower, with the same files. Two groups are
more than a speed-up. Without `capture`, recurrent layers over a dynamic sequence are not exported
as loops, and values that depend on a size can have other names. Without `operators`, records
contain no counts and only the first missing operator.
"""

#: The metadata of a node of dynamo with the lines of the source.
STACK_TRACE_KEY = "pkg.torch.onnx.stack_trace"
