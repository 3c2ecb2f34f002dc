"""Wrong heads of posts that are known from before: bodies, ends and ids that are another's."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

HEADS = "fencelog.api.server.request_reader"
KNOWN = "fencelog.api.produce.known_heads"

_REQUESTS = "HTTP.md, requests"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "known-head-is-never-sampled",
        "LOGS.md: traces",
        "Requests with a known head have no spans.",
        (
            Edit(
                "fencelog.api.server.http_protocol",
                "HttpProtocol.connection_made",
                " if self._app.request_spans is None else None",
                "",
            ),
        ),
    ),
    Mutant(
        "blank-lines-are-a-head",
        _REQUESTS,
        "Blank lines before a post are remembered as its head: whatever follows such lines is "
        "appended, if it has the same length.",
        (
            Edit(
                KNOWN,
                "KnownHeads.learn",
                " or not _has_only(head, url, headers)",
                "",
            ),
            Edit(HEADS, "RequestReader._take_known", ' or not data.startswith(b"POST ")', ""),
        ),
    ),
    Mutant(
        "known-head-with-any-body",
        _REQUESTS,
        "A post whose head is known has all that came with it as its body, also the next request.",
        (Edit(HEADS, "RequestReader._take_known", "len(data) - end != known.body_bytes", "False"),),
    ),
    Mutant(
        "known-head-after-the-last-request",
        _REQUESTS,
        "A post that follows Connection: close is appended if its head is known.",
        (
            Edit(
                HEADS,
                "RequestReader.on_headers_complete",
                "            self._heads = None  # What follows is no request.\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "known-head-with-an-id",
        _REQUESTS,
        "A post that repeats the head of another, with its id, is answered without one.",
        (Edit(HEADS, "RequestReader.on_headers_complete", " and not has_id", ""),),
    ),
)
