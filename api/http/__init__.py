"""HTTP below the endpoints: requests, bodies, JSON, problems, events, metrics.

Imports of its package: nothing.
"""
