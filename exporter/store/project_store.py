"""Open the store that the environment or the project selects."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.git import find_git_folder
from exporter.manifest import Project
from exporter.manifest.resolved.keys import (
    NO_STORE,
    REMOTE_SCHEMES,
    STORE_AGE,
    check_store,
    is_remote,
    split_url,
)
from exporter.pipeline.build_folder import BuildFolder
from exporter.store import Store, StoreLimits
from exporter.store.remote_store import RemoteStore
from exporter.store.store_entry import SigningKey
from exporter.store.store_files import open_files

#: The store's folder, its URL or `off`; it overrides the project's setting.
STORE_VARIABLE = "EXPORTER_STORE"
#: `1`, `yes` or `true` if the store must not be changed.
READ_ONLY_VARIABLE = "EXPORTER_STORE_READONLY"
#: The key that signs the entries of a remote store.
KEY_VARIABLE = "EXPORTER_STORE_KEY"
#: The name of the default store in the folder of git, which all worktrees share.
GIT_STORE = "exporter-store"
#: Characters of a key: 128 bits in hexadecimal digits.
_MIN_KEY_LENGTH = 32
_CREATE_KEY = "openssl rand -hex 32"
_YES, _NO = ("1", "yes", "true"), ("", "0", "no", "false")


def open_store(project: Project, environment: Mapping[str, str]) -> Store | None:
    """Return the store of the environment or of the project.

    Returns:
        The store, or None if it is switched off.

    Raises:
        ExporterError: MANIFEST if an environment variable has an invalid value.
    """
    build_path = BuildFolder.from_project(project).path
    setting = environment.get(STORE_VARIABLE) or project.store
    if setting == NO_STORE:
        return None
    limits = StoreLimits(size=project.store_size, age=STORE_AGE)
    flag = environment.get(READ_ONLY_VARIABLE, "")
    if flag.lower() not in (*_YES, *_NO):
        message = f"{READ_ONLY_VARIABLE}: expected 1 or 0, got '{flag}'"
        raise ExporterError(ExitCode.MANIFEST, message)
    is_read_only = flag.lower() in _YES
    default_folder = build_path / ".store"  # the id of a model cannot begin with a dot
    if is_remote(setting):
        remote = _open_remote(project, setting, environment, is_read_only=is_read_only)
        return Store(default_folder, limits, remote=remote)
    git = find_git_folder(Path(project.root))
    if git and os.access(git, os.W_OK):
        default_folder = git / GIT_STORE
    try:
        folder = Path(project.root) / Path(setting).expanduser() if setting else default_folder
    except RuntimeError:
        message = f"{setting}: the user has no home directory; write the full path"
        raise ExporterError(ExitCode.MANIFEST, message) from None
    return Store(folder, limits, is_read_only=is_read_only)


def _open_remote(
    project: Project, url: str, environment: Mapping[str, str], *, is_read_only: bool
) -> RemoteStore:
    """Return the remote store. No package is imported and no request is sent.

    Raises:
        ExporterError: MANIFEST if the URL or the key is invalid, ENVIRONMENT if a package is
            missing.
    """
    if environment.get(STORE_VARIABLE):
        label = f"{STORE_VARIABLE}: {url}"
        try:
            url = check_store(url)
        except ValueError as error:
            raise ExporterError(ExitCode.MANIFEST, f"{STORE_VARIABLE}: {error}") from None
    else:
        label = f"{project.locate('store')}: {url}"
    scheme, _ = split_url(url)
    missing = [name for name in REMOTE_SCHEMES[scheme] if importlib.util.find_spec(name) is None]
    if missing:
        message = (
            f"{label}: the package {missing[-1]} is not installed; run `pip install "
            f"{' '.join(missing)}`, or set {STORE_VARIABLE}={NO_STORE}"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    is_mirror = scheme in ("http", "https")
    return RemoteStore(
        label,
        open_files(url),
        _read_key(environment),
        is_read_only=is_read_only or is_mirror,
    )


def _read_key(environment: Mapping[str, str]) -> SigningKey | None:
    """Return the key that signs entries, or None if all writers are trusted.

    Raises:
        ExporterError: MANIFEST if the key is too short.
    """
    secret = environment.get(KEY_VARIABLE, "").strip()
    if not secret:
        return None
    if len(secret) < _MIN_KEY_LENGTH:
        message = (
            f"{KEY_VARIABLE}: the key has {len(secret)} characters, expected at least "
            f"{_MIN_KEY_LENGTH}; create one with `{_CREATE_KEY}`"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    return SigningKey(secret.encode())
