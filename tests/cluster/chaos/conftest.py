"""Scale and tables of campaigns."""

from tests.crash.conftest import scale, show

__all__ = ["scale", "show"]
