"""The stubs of popmq_verify, for tests, bench and demo."""

from popmq_verify.load.stubs import OPTIONS as OPTIONS
from popmq_verify.load.stubs import Stubs as Stubs
