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
        (Edit(HEADS, "RequestReader._take_known", "body_bytes != known.body_bytes", "False"),),
    ),
    Mutant(
        "known-form-of-the-last-request",
        _REQUESTS,
        "A post that ends its connection by Proxy-Connection is taken as one that does not.",
        (Edit(KNOWN, "KnownHeads._form_of", "name == _OF_CONNECTION or ", ""),),
    ),
    Mutant(
        "known-form-of-any-framing",
        _REQUESTS,
        "A post to another host, which is to be refused, is taken if its form is known.",
        (Edit(KNOWN, "KnownHeads._form_of", "kind = re.escape(value)", "pass"),),
    ),
    Mutant(
        "known-form-with-any-bytes",
        _REQUESTS,
        "Bytes that no header may have get into a message.",
        (Edit(KNOWN, "KnownHeads._form_of", "else _VALUE", 'else rb"[^\\r]*+"'),),
    ),
    Mutant(
        "known-form-with-a-large-body",
        _REQUESTS,
        "Large bodies are not counted with all others that arrive, if their form is known.",
        (
            Edit(
                HEADS,
                "RequestReader._take_known",
                " or body_bytes > MAX_DIRECT_BODY_BYTES",
                "",
            ),
        ),
    ),
    Mutant(
        "known-head-after-a-refusal",
        _REQUESTS,
        "A post that follows a request that was refused is appended if its head is known.",
        (
            Edit(
                HEADS,
                "RequestReader._take_known",
                "self._has_ended or ",
                "",
            ),
        ),
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
