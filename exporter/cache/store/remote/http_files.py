"""Read the files of a remote store from a web server.

Python can read HTTP without another package, so a mirror needs no installation. The support of
fsspec requires aiohttp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    UnknownHandler,
)

from exporter.cache.store.remote.remote_files import CHUNK, RemoteFile

#: Seconds after which a blocked read ends.
_SOCKET_TIMEOUT = 60.0
_ENTRY_NAME = re.compile(rb"\b[0-9a-f]{32}\.json\b")
#: The opener of urllib without `file:` and `ftp:`, to which a server could redirect.
_HANDLERS = (
    ProxyHandler,
    UnknownHandler,
    HTTPHandler,
    HTTPSHandler,
    HTTPRedirectHandler,
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
)


class HttpFiles:
    """The files below a URL. The server must list the content of folders.

    Args:
        url: The URL.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = OpenerDirector()
        for handler in _HANDLERS:
            self._opener.add_handler(handler())

    def require_root(self) -> None:
        """Raise an error if the server does not list the folder."""
        for _ in self.read_chunks("", CHUNK):
            break

    def list_folder(self, folder: str) -> list[RemoteFile]:
        """Return the entries in a folder; empty if it does not exist.

        Servers format listings in many ways. All of them contain the names of entries, which are
        long and regular.
        """
        try:
            page = b"".join(self.read_chunks(f"{folder}/", CHUNK))
        except FileNotFoundError:
            return []
        names = dict.fromkeys(_ENTRY_NAME.findall(page))
        return [RemoteFile(name=f"{folder}/{name.decode()}") for name in names]

    def read_chunks(self, name: str, size: int) -> Iterator[bytes]:
        """Yield at most `size` bytes from the start of a file."""
        try:
            with self._opener.open(f"{self._url}/{quote(name)}", timeout=_SOCKET_TIMEOUT) as reader:
                while size > 0 and (chunk := reader.read(min(size, CHUNK))):
                    size -= len(chunk)
                    yield chunk
        except HTTPError as error:
            error.close()
            if error.code in (404, 410):
                raise FileNotFoundError(f"HTTP status {error.code}") from None
            raise OSError(f"HTTP status {error.code}: {error.reason}") from None
