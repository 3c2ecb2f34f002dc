"""The field's words: retired names stay away, a class name stands for one thing, docstrings open
with a verb or a noun."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

from tests.support.house import Source

RETIRED = {
    "AppendGate": "ConditionalAppends",
    "AppendRoom": "PendingBytesLimit",
    "AppendTerms": "AppendPreconditions",
    "Burial": "DeadLetterForwarder",
    "ByteTurns": "FairByteSemaphore",
    "Chain": "LedgerList",
    "ChainDoubt": "OwnershipCheck",
    "ChainLost": "LedgerListLost",
    "ChainNode": "LedgerListStore",
    "CompactionKeeper": "CompactionScheduler",
    "FormerCount": "PreviousCount",
    "Greeting": "ServerHandshake",
    "HandOver": "PartitionTransfer",
    "HoldRequest": "LeaseRequest",
    "Holds": "ExclusiveLease",
    "Kept": "RecentAppend",
    "KnownTopics": "TopicCache",
    "Lack": "MissingReason",
    "Lane": "IoThread",
    "LedgerEndings": "LedgerCloser",
    "LoopTurns": "LoopYielder",
    "MAX_REPLAY_RUNS": "MAX_REPLAY_RANGES",
    "NO_TERMS": "NO_CONDITIONS",
    "OWNER_GONE_MS": "OWNER_LOST_MS",
    "Overlaps": "RecoveryAddDedup",
    "OwnerGone": "OwnerLost",
    "Patience": "Deadline",
    "Piece": "CopyRange",
    "PosixLane": "PosixIoThread",
    "ProducerLane": "ExactlyOnceStream",
    "ProducerRun": "SequenceRange",
    "ProducersTold": "ProducerSnapshot",
    "Question": "BookieReadRequest",
    "RUN_KEY": "RANGE_KEY",
    "RUN_NOBODY": "RANGE_NO_PRODUCER",
    "RUN_SEQUENCE": "RANGE_SEQUENCE",
    "RetentionKeeper": "RetentionScheduler",
    "Room": "AllowedWrites",
    "Runs": "SequenceRanges",
    "Standing": "LimboStatus",
    "SubscriptionUpkeep": "CursorReconciler",
    "TailBell": "TailNotifier",
    "Terms": "AppendConditions",
    "Turns": "RoundRobin",
    "Wish": "StartRequest",
    "_Untold": "_Unpersisted",
    "_is_hopeless": "_max_deliveries_exceeded",
    "_let_rest": "_abandon",
    "_lose_patience": "_on_append_timeout",
    "_news": "_wakeup",
    "_tell_lac": "_send_explicit_lac",
    "insist": "retry_until_done",
    "is_gated": "checks_every_append",
    "lac_told": "on_lac_reply",
    "may_pass": "is_transient",
    "patience_s": "timeout_s",
    "previous_run_entry": "previous_range_entry",
    "push_again": "retrack",
    "read_runs": "read_ranges",
    "repair_patience_s": "append_timeout_s",
    "retry_harmless": "retry_idempotent",
    "retry_refusals": "retry_not_applied",
    "said_by": "prefix_bookie",
    "settle_below": "ensure_persisted",
}
"""Names as they were, and what the field says."""

RETIRED_PARTS = {
    "burial": "forwarder",
    "buries": "forwards",
    "bury": "forward",
    "burying": "dead_letters",
    "chain": "ledger_list",
    "chains": "ledger_lists",
    "endings": "closer",
    "figures": "metrics, stats",
    "former": "previous",
    "greet": "handshake",
    "greeted": "handshake_done",
    "greeting": "handshake",
    "hopeless": "max_deliveries_exceeded",
    "keeper": "scheduler",
    "lane": "io_thread",
    "lanes": "io_threads",
    "patience": "timeout, deadline",
    "room": "capacity, space",
    "terms": "conditions",
    "untold": "unpersisted",
    "upkeep": "reconciler",
    "wish": "request",
}
"""Words between the underscores of a Python name."""

RETIRED_IN = (("broker/*", "runs", "ranges, since runs are of entries"),)
"""(path, part of a name, what the field says): words that mean another thing elsewhere."""

ALLOWED = (
    ("*", "itertools.chain", "the standard library's name"),
    ("api/bench/main.py", "figures", "a field of the JSON that `fencelog bench --json` prints"),
    ("ledgers/metastore/zookeeper_tls.py", "chain", "a certificate and its issuers, by ssl's name"),
    ("tests/support/network/certificates.py", "chain", "the same"),
    ("tests/sim/ledgers/*", "chain", "a fault of the plan: restart after restart"),
    ("tests/sim/plan/*", "endings", "how a simulated writer ends"),
    ("tests/sim/healing/*", "endings", "how a simulated writer ends"),
    ("tests/sim/oracle/lawful_ends.py", "untold", "messages whose end no snapshot has named"),
    ("tests/sim/admin/edge.py", "untold", "keys of messages that may have been removed"),
)
"""(path, word, why): the same word for another thing."""


NO_OPENING = re.compile(
    r"""\s*(
    also|and|anybody|anything|as|at|before|behind|but|by|down|even|everybody|everything|for|from|he
    |here|how|if|in|it|nobody|not|nothing|of|on|only|or|raises|so|somebody|something|such|that|then
    |there|these|they|this|those|to|told|until|up|what|whatever|when|where|whether|which|who|whoever
    |whom|whose|why|with|without
    )(?![\w-])""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words with which no docstring begins: it opens with a verb, or with the noun that it is about."""


def is_allowed(path: str, word: str, text: str) -> bool:
    if word == "chain" and re.search(r"^from itertools import .*\bchain\b", text, re.MULTILINE):
        return True
    return any(fnmatch(path, glob) and word == allowed for glob, allowed, _ in ALLOWED)


STRING_OR_COMMENT = re.compile(
    r"""(\"{3}|'{3})(?:\\.|[^\\])*?\1|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\#[^\n]*""", re.DOTALL
)


def names_of(source: Source) -> set[str]:
    """Return every name in the code; what is within strings is none. ``tokenize`` says the same,
    and takes a hundred times as long."""
    return set(re.findall(r"\b[^\W\d]\w*", STRING_OR_COMMENT.sub(" ", source.text)))


def retired_in(source: Source) -> Iterator[str]:
    """Yield what a Python file says in words that were retired."""
    for name in sorted(names_of(source)):
        if source.path.startswith("tests/") and name.startswith("test_"):
            continue  # the names of tests are sentences
        for part in {name, *name.split("_")} & {*RETIRED, *RETIRED_PARTS}:
            if not is_allowed(source.path, part, source.text):
                instead = RETIRED.get(part) or RETIRED_PARTS[part]
                yield f"{source.path}: {name}: say {instead}"
        for glob, part, instead in RETIRED_IN:
            if fnmatch(source.path, glob) and part in name.split("_"):
                yield f"{source.path}: {name}: say {instead}"


def shown_in(path: str, text: str) -> Iterator[str]:
    """Yield what a document names by a retired name, in its code spans."""
    spans = " ".join(re.findall(r"`([^`\n]+)`", text))
    for name in sorted({*RETIRED} & set(re.findall(r"\w+", spans))):
        yield f"{path}: `{name}`: say {RETIRED[name]}"


def documented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings of a module, its classes, functions and attributes."""
    owners = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if not isinstance(node, owners):
            continue
        for before, one in pairwise([None, *node.body]):
            match one:
                case ast.Expr(ast.Constant(str(text))) if before is None or isinstance(
                    before, ast.Assign | ast.AnnAssign
                ):
                    yield one.lineno, text


def badly_opened(source: Source) -> Iterator[str]:
    """Yield a complaint for each docstring of a file that opens with a forbidden word."""
    for line, text in documented(source.tree):
        if found := NO_OPENING.match(text):
            yield f"{source.path}:{line}: open with a verb or a noun, not with {found[1]}"


def defined_twice(sources: list[Source]) -> dict[str, list[str]]:
    """Return public class names that more than one module defines."""
    places = defaultdict(list)
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(source.path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_retired_words_stay_away(all_sources: list[Source]) -> None:
    mine = "tests/house/test_words.py"
    found = [say for one in all_sources if one.path != mine for say in retired_in(one)]
    assert found == []


def test_documents_name_what_there_is(documents: list[Path], root: Path) -> None:
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in documents}
    texts.pop("CHANGELOG.md", None)  # it tells what was
    assert [say for path, text in texts.items() for say in shown_in(path, text)] == []


def test_a_class_name_stands_for_one_thing(package_sources: list[Source]) -> None:
    assert defined_twice(package_sources) == {}


def test_every_exception_is_needed(all_sources: list[Source]) -> None:
    """An exception whose word has gone goes too."""
    for glob, word, _ in ALLOWED[1:]:
        some = [one for one in all_sources if fnmatch(one.path, glob)]
        parts = {p.lower() for one in some for name in names_of(one) for p in name.split("_")}
        assert word in parts, (glob, word)


def test_docstrings_open_with_a_verb_or_a_noun(package_sources: list[Source]) -> None:
    assert [say for one in package_sources for say in badly_opened(one)] == []


def test_a_forbidden_opening_is_seen() -> None:
    text = '''"""What a module is for."""

LIMIT_S = 1
"""Of a request."""


class A:
    """Those that are."""

    def __init__(self) -> None:
        """``x``: a parameter."""
        self.b: int = 1
        """How many there are."""

    async def a(self) -> None:
        """Return when it is done."""
        print()
        "What is no docstring."


async def a() -> None:
    """Whether it is."""


def on() -> None:
    """On-disk records, and how they are read."""
'''
    assert set(badly_opened(Source.parse("a.py", text))) == {
        f"a.py:{line}: open with a verb or a noun, not with {word}"
        for line, word in ((1, "What"), (4, "Of"), (8, "Those"), (13, "How"), (22, "Whether"))
    }


def test_a_retired_word_is_seen() -> None:
    source = Source.parse("broker/a.py", "class ChainNode:\n    lane_of = 1\n")
    assert list(retired_in(source)) == [
        "broker/a.py: ChainNode: say LedgerListStore",
        "broker/a.py: lane_of: say io_thread",
    ]
    runs = "last_runs = 1\n"
    assert list(retired_in(Source.parse("broker/a.py", runs))) == [
        "broker/a.py: last_runs: say ranges, since runs are of entries"
    ]
    assert list(retired_in(Source.parse("ledgers/a.py", runs))) == []
    assert list(retired_in(Source.parse("broker/a.py", "from itertools import chain\n"))) == []
    assert list(shown_in("a.md", "the `Chain` of")) == ["a.md: `Chain`: say LedgerList"]


def test_a_name_that_is_taken_is_seen() -> None:
    two = [Source.parse(path, "class A: ...\nclass _B: ...\n") for path in ("x.py", "y.py")]
    assert defined_twice(two) == {"A": ["x.py", "y.py"]}
