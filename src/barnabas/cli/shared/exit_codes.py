"""Exit codes of the commands, for scripts; 2 is click's code for wrong arguments."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
# EX_SOFTWARE of sysexits.h: a bug in Barnabas.
FAULT: Final = 70
# EX_TEMPFAIL of sysexits.h: a pipeline failed for a reason that may be gone when it is started again.
TRY_AGAIN: Final = 75
# A shell's code for a program that Ctrl-C has ended.
INTERRUPTED: Final = 130
