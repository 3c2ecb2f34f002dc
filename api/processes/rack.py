"""The rack of a bookie, where it is not known before the bookie runs on some machine."""

from __future__ import annotations

from pathlib import Path

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.rpc.bookie_port import DEFAULT_RACK


def rack_of(rack: str, node: str, mapping: str) -> str:
    """Return the rack that is named; where none is (it is empty), that of the node in the mapping,
    which has lines of a node and its rack; DEFAULT_RACK if it names none either.

    Raises FencelogError(BAD_REQUEST): a line of the mapping is not two words, or names a node
    again.
    """
    racks: dict[str, str] = {}
    for number, line in enumerate(mapping.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] in racks:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"line {number} of the racks is no new node and its rack"
            )
        racks[words[0]] = words[1]
    return rack or racks.get(node, DEFAULT_RACK)


def read_rack_file(path: Path | None) -> str:
    """Return the mapping in a file; one that does not exist is empty. Raises
    FencelogError(BAD_REQUEST)."""
    if path is None:
        return ""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"cannot read the racks in {path}: {error}"
        ) from error
