"""The embedded Spark: one JVM, started by the first work that needs it and ended when there is none.

The only importer of pyspark. It knows how to spread tasks, not what they do: functions come in as values, by name.
"""
