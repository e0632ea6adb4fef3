"""The command `verify`: proof of an existing file, in a folder of `publish` or anywhere."""

from exporter.tools.verify.client import (
    DeviceVerdict,
    FolderVerdict,
    PublishedFile,
    VerifyOptions,
    VerifyReport,
    describe_machine,
    hash_settings,
    list_published_folders,
    read_opset,
    verify_folders,
)

__all__ = [
    "DeviceVerdict",
    "FolderVerdict",
    "PublishedFile",
    "VerifyOptions",
    "VerifyReport",
    "describe_machine",
    "hash_settings",
    "list_published_folders",
    "read_opset",
    "verify_folders",
]
