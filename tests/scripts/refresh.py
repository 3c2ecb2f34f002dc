"""Write transcripts anew from what the code does: ``python -m tests.scripts.refresh [NAME …]``.

Nothing else does so: whoever refreshes a story reads the difference, and means it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.scripts.log_stories import play_script


def main(names: list[str]) -> None:
    folder = Path(__file__).parent / "stories"
    for script in [folder / f"{name}.txt" for name in names] or sorted(folder.glob("*.txt")):
        script.write_text(play_script(script), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
