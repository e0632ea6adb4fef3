"""The module of each node, from the metadata of dynamo or the node names of TorchScript."""

from __future__ import annotations

from onnx import helper

from exporter.tools.graph_view.child.module_scopes import format_scopes


def make_model(*nodes: tuple[str, str, str]) -> str:
    """Return the scopes of nodes with an operator, a name and a namespace."""
    protos = []
    for operator, name, namespace in nodes:
        node = helper.make_node(operator, ["x"], ["x"], name=name)
        if namespace:
            node.metadata_props.add(key="namespace", value=namespace)
        protos.append(node)
    return format_scopes(helper.make_model(helper.make_graph(protos, "g", [], [])))


def test_a_file_of_dynamo_has_the_classes_of_its_modules() -> None:
    features = ": net.Net/features: torch.nn.Sequential/features.0: torch.nn.modules.conv.Conv2d"
    assert make_model(
        ("Conv", "node_conv2d", f"{features}/conv2d: aten.conv2d.default"),
        ("Add", "node_add_1", f"{features}/add: aten.add.Tensor"),
        ("ReduceMean", "node_mean", ": net.Net/mean: aten.mean.dim"),
    ).splitlines() == [
        "Net/Sequential[features]/Conv2d[features.0]: Conv, Add",
        "Net: ReduceMean",
    ]


def test_a_file_of_torchscript_has_the_names_of_its_modules() -> None:
    assert make_model(
        ("Conv", "/features/features.0/Conv", ""),
        ("Relu", "/features/features.1/Relu", ""),
        ("ReduceMean", "/ReduceMean", ""),
        ("Gemm", "", ""),
    ).splitlines() == [
        "features/features.0: Conv",
        "features/features.1: Relu",
        "no module: ReduceMean, Gemm",
    ]


def test_names_of_a_file_cannot_create_lines() -> None:
    assert make_model(("Relu", "/a\nb/Relu", "")).count("\n") == 1
