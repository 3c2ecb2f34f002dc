"""The tools for the data of a bookie that does not run: verify, inspect, rebuild, format.

Imports of its package: ``config``, ``disk``, ``format``, ``identity``, ``journal``, ``storage``.
"""
