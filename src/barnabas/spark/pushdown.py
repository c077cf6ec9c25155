"""Filters that decide what is read, where the option pushFilters asks for it.

PySpark 4.2.0 keeps what is planned for a query's filters for all later uses of the frame, whatever their filters are,
and so even for the other side of a join with itself. Hence the option, for a frame that is used once.
"""

from __future__ import annotations

import sys
from typing import Final

WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def takes_filters() -> bool:
    """Whether this process was started to push filters down.

    PySpark refuses a reader with pushFilters where spark.sql.python.filterPushdown.enabled is off, and does not tell
    whether it is; but only where it is on it starts this worker.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return WORKER in sys.modules or (main is not None and main.name == WORKER)
