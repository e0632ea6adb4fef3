"""The settings of all tests hold here, too."""

import tests.conftest  # noqa: F401
