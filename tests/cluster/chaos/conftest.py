"""Scale and tables of campaigns."""

from tests.crash.conftest import pytest_terminal_summary, scale, show

__all__ = ["pytest_terminal_summary", "scale", "show"]
