"""What commands exit with, for scripts; 2 is click's for wrong use."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
# EX_SOFTWARE of sysexits.h: a fault of ours.
FAULT: Final = 70
# What a shell tells of a program that Ctrl-C has ended.
INTERRUPTED: Final = 130
