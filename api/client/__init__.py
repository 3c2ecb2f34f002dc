"""The Python client: topics, producers, readers and consumers over HTTP.

Imports of its package: nothing.
"""

from fencelog.api.client.client import (
    BATCH_TYPE,
    DEFAULT_SERVER,
    Appended,
    FencelogClient,
    Page,
    RawPage,
    ReadPage,
    topic_path,
)

__all__ = [
    "BATCH_TYPE",
    "DEFAULT_SERVER",
    "Appended",
    "FencelogClient",
    "Page",
    "RawPage",
    "ReadPage",
    "topic_path",
]
