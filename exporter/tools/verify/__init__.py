"""The command `verify`: proof of a file that exists already, in a folder of `publish` or anywhere.

Input: paths. Output: a `FolderVerdict` for each published folder and device. PyTorch's answers are
in the folder, so torch is not needed.
"""

from exporter.tools.verify.client import FolderVerdict, list_published_folders, verify_folders

__all__ = ["FolderVerdict", "list_published_folders", "verify_folders"]
