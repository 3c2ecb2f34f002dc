"""The Spark data source ``fencelog``: topics as tables (see SPARK.md).

``pip install 'fencelog[spark]'`` is enough: Spark finds the source through the package
``pyspark_fencelog``. Nothing heavy is imported before a query needs it.
"""
