"""The add pipeline under every interleaving of answers, failures and ensemble changes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.ledgers.quorum import write_set
from fencelog.ledgers.writer.core import (
    Acknowledged,
    ChangeEnsemble,
    Effect,
    Failed,
    Send,
    WriterCore,
)

BOOKIES = [f"b{n}" for n in range(1, 8)]
ERRORS = [
    None,
    None,
    FencelogError(ErrorCode.REQUEST_TIMEOUT, "no answer"),
    FencelogError(ErrorCode.READ_ONLY, "full"),
]


class Story:
    """One writer, its bookies, and what has to hold after every step."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.size = data.draw(st.integers(1, 4), label="E")
        self.write_quorum = data.draw(st.integers(1, self.size), label="Qw")
        self.ack_quorum = data.draw(st.integers(1, self.write_quorum), label="Qa")
        metadata = new_metadata(
            1,
            ensemble=tuple(BOOKIES[: self.size]),
            write_quorum=self.write_quorum,
            ack_quorum=self.ack_quorum,
            token="t",
        )
        delay = data.draw(st.booleans(), label="delay")
        self.core = WriterCore(metadata, lac=-1, length=0, delay_changes=delay)
        self.unanswered: list[Send] = []
        self.stored: dict[int, set[str]] = {}
        self.change: ChangeEnsemble | None = None
        self.acknowledged = -1
        self.over = False
        self.failures_left = data.draw(st.integers(0, 12), label="failures")

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            assert not self.over
            match effect:
                case Send(_, index, bookie_id):
                    assert self.core.ensemble[index] == bookie_id
                    self.unanswered.append(effect)
                case Acknowledged(lac, length):
                    assert self.change is None
                    assert lac > self.acknowledged
                    assert length == 10 * (lac + 1)
                    self.acknowledged = lac
                case ChangeEnsemble(failed, first_entry_id):
                    assert self.change is None
                    assert first_entry_id == self.acknowledged + 1
                    assert failed
                    assert all(self.core.ensemble[i] == b for i, b in failed.items())
                    self.change = effect
                case Failed():
                    self.over = True
        assert self.core.lac == self.acknowledged
        assert self.core.changing == (self.change is not None)
        self.check_copies()

    def check_copies(self) -> None:
        """Acknowledged: on Qa bookies of the write set that metadata names."""
        for entry_id in range(self.acknowledged + 1):
            members = self.core.metadata.fragment_of(entry_id).bookies
            indices = write_set(entry_id, ensemble_size=self.size, write_quorum=self.write_quorum)
            copies = self.stored.get(entry_id, set()) & {members[index] for index in indices}
            assert len(copies) >= self.ack_quorum, entry_id

    def push(self) -> None:
        is_striped = self.size != self.write_quorum
        count = 1 if is_striped else self.data.draw(st.integers(1, 3))
        length = 10 * (self.core.last_add_pushed + 1 + count)
        self.take(self.core.push(b"", count=count, length=length))

    def answer(self) -> None:
        """Any add that is unanswered, however old: its bookie may have been replaced long ago."""
        send = self.unanswered.pop(self.data.draw(st.integers(0, len(self.unanswered) - 1)))
        error = self.data.draw(st.sampled_from(ERRORS)) if self.failures_left else None
        self.failures_left -= error is not None
        run = send.run
        if error is None:
            for entry_id in range(run.first_entry_id, run.last_entry_id + 1):
                self.stored.setdefault(entry_id, set()).add(send.bookie_id)
        self.take(self.core.reply(run, send.member, send.bookie_id, error))

    def end_change(self) -> None:
        """Some failed members are replaced, by anybody else, previous members too; or none is."""
        change, self.change = self.change, None
        assert change is not None
        members = list(self.core.ensemble)
        for index in change.failed:
            spares = [bookie for bookie in BOOKIES if bookie not in members]
            if spares and self.data.draw(st.sampled_from([True, False])):
                members[index] = self.data.draw(st.sampled_from(spares))
        if tuple(members) == self.core.ensemble:
            effects = self.core.ensemble_unchanged()
        else:
            metadata = self.core.metadata.with_ensemble(change.first_entry_id, tuple(members))
            effects = self.core.ensemble_changed(metadata)
        self.take(effects)

    def step(self, *, pushing: bool) -> bool:
        """One thing that may happen next; False if nothing can."""
        choices = [
            *([self.push] if pushing else []),
            *([self.answer] if self.unanswered else []),
            *([self.end_change] if self.change is not None else []),
        ]
        if not choices or self.over:
            return False
        self.data.draw(st.sampled_from(choices))()
        return True


@given(st.data())
def test_acknowledged_means_qa_copies_and_nothing_waits_for_ever(data: st.DataObject) -> None:
    story = Story(data)
    for _ in range(data.draw(st.integers(1, 30))):
        story.step(pushing=True)
        if data.draw(st.integers(0, 9)) == 0:
            story.take([] if story.over else story.core.change_ensemble())
    while story.step(pushing=False):
        pass
    assert story.over == (story.core.finished is not None)
    assert story.over or story.acknowledged == story.core.last_add_pushed
    assert not story.core.has_pending
