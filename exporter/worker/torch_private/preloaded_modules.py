"""The private modules of torch that an export imports.

The fork server imports them once for all workers.
"""

PRIVATE_MODULES = (
    "torch.export._trace",
    "torch._dynamo",
    # Imported during a capture or a decomposition.
    "torch._inductor.compiler_bisector",
    "torch._inductor.sizevars",
    "torch.onnx._internal.exporter._core",
    "torch.onnx._internal.exporter._torchlib.ops",
    "torch.onnx._internal.torchscript_exporter.utils",
)
