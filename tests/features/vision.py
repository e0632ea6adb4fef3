"""Vision models: their inputs and outputs in the forms of torchvision."""

from __future__ import annotations

from tests.features.feature import Feature, Section

_VIDEO = """
inputs = [{ name = "clip", shape = ["batch", 3, "frames", "height", "width"] }]
axes.frames = { example = 5, max = 9 }
"""
_VIDEO_SIZES = """
outputs = [{ name = "logits", shape = ["batch", 5] }]
axes.height = { min = 8, example = 13, max = 20 }
axes.width = { min = 8, example = 17, max = 20 }
"""
_SEGMENTATION = """
inputs = [{ name = "image", shape = ["batch", 3, "height", "width"] }]
outputs = [
  { name = "out", shape = ["batch", 4, "height", "width"] },
  { name = "aux", shape = ["batch", 4, "height", "width"] },
]
"""
_SEGMENTATION_SIZES = """
axes.height = { min = 4, example = 13, max = 24 }
axes.width = { min = 4, example = 17, max = 24 }
"""
_DETECTION = """
inputs = [
  { name = "first", shape = [3, "height", 16], at = "args[0][0]" },
  { name = "second", shape = [3, 12, "width"], at = "args[0][1]" },
]
containers = [{ at = "args[0]", type = "list" }]
outputs = [
  { name = "boxes_0", shape = ["found_0", 4] },
  { name = "labels_0", shape = ["found_0"], dtype = "int64" },
  { name = "scores_0", shape = ["found_0"] },
  { name = "boxes_1", shape = ["found_1", 4] },
  { name = "labels_1", shape = ["found_1"], dtype = "int64" },
  { name = "scores_1", shape = ["found_1"] },
]
"""
_DETECTION_SIZES = """
axes.height = { min = 4, example = 17, max = 24 }
axes.width = { min = 4, example = 13, max = 24 }
"""

SECTION = Section(
    name="Vision models",
    rows=(
        Feature(
            name="video models",
            api="export(torchvision.models.video.r3d_18(), clip)",
            model="vision.py:Video",
            lines=_VIDEO,
            rest=_VIDEO_SIZES,
            facts={"the convolution has three dimensions": lambda p: "Conv" in p.operators(13)},
            note="Clips have five dimensions; frames and sizes are dynamic.",
        ),
        Feature(
            name="segmentation models",
            api="export(torchvision.models.segmentation.fcn_resnet50(aux_loss=True), image)",
            model="vision.py:Segmentation",
            lines=_SEGMENTATION,
            rest=_SEGMENTATION_SIZES,
            note="The dict `{out, aux}` is declared as two outputs, in its order.",
        ),
        Feature(
            name="detection models",
            api="export(torchvision.models.detection.fasterrcnn_resnet50_fpn(), ([image],))",
            model="vision.py:Detection",
            lines=_DETECTION,
            rest=_DETECTION_SIZES,
            note="A list of images of different sizes to a list of dicts. The values set the number"
            " of boxes, so it is an axis of the outputs only.",
        ),
    ),
)
