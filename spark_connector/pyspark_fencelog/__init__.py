"""The package by which Spark finds the data source ``fencelog`` by itself.

Spark imports every top-level package named ``pyspark_*`` and registers its ``DefaultSource``. One
such package that fails to import hides the sources of all others, so this one contains nothing
else. Imports of its package: ``source``.
"""

from fencelog.spark_connector.source import FencelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
