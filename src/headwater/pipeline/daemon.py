"""The process that Spark forks its Python workers from, with what they need already loaded.

`spark.python.daemon.module` names this module. A worker is then ready at once: numba, pyarrow and the
compiled kernels, two seconds of imports, are shared by all of them.
"""

from __future__ import annotations

import gc

import pyarrow.json  # noqa: F401
from pyspark.daemon import manager

from headwater.pipeline.source import datasource, reading, warming  # noqa: F401

if __name__ == "__main__":
    warming.warm()
    # A worker collects garbage after each task: what is loaded here is none, and stays shared.
    gc.freeze()
    manager()
