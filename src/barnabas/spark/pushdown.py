"""Filters that restrict what a source reads, if the option pushFilters is set.

PySpark 4.2.0 keeps the plan for a query's filters for all later uses of the DataFrame, whatever their filters are, and
so even for the other side of a join with itself. The option is therefore for a DataFrame that is used once.
"""

from __future__ import annotations

import sys
from typing import Final

WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def takes_filters() -> bool:
    """Whether Spark started this process to push filters down.

    PySpark rejects a reader with pushFilters if spark.sql.python.filterPushdown.enabled is off, and does not report the
    setting; but it starts this worker only if the setting is on.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return WORKER in sys.modules or (main is not None and main.name == WORKER)
