"""The command `verify`: proof of an existing file, in a folder of `publish` or anywhere."""

from exporter.tools.verify.client import (
    FolderVerdict,
    PublishedFile,
    VerifyOptions,
    list_published_folders,
    read_opset,
    verify_folders,
)
from exporter.tools.verify.protocol import DeviceVerdict

__all__ = [
    "DeviceVerdict",
    "FolderVerdict",
    "PublishedFile",
    "VerifyOptions",
    "list_published_folders",
    "read_opset",
    "verify_folders",
]
