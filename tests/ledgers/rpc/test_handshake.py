"""The beginning of a connection, both ends against each other: versions, features, secrets."""

from __future__ import annotations

from collections.abc import Generator

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.limits import MAX_AUTH_STEPS, MAX_HELLO_BYTES, MIN_SECRET_BYTES
from fencelog.ledgers.rpc.authentication import (
    NONCE_BYTES,
    Authenticator,
    Credentials,
    SharedSecret,
)
from fencelog.ledgers.rpc.handshake import ClientHandshake, error_of
from fencelog.ledgers.rpc.wire import (
    Flag,
    Frame,
    FrameReader,
    Op,
    decode_hello,
    encode_error,
    encode_hello,
    encode_reply,
    encode_request,
)

SECRET = b"correct horse battery staple"
NAMES = st.sets(st.sampled_from(["batching", "checksums", "compression", "tracing"]))


def shared(secret: bytes = SECRET) -> SharedSecret:
    return SharedSecret(secret, host=SystemHost())


def frame(data: bytes) -> Frame:
    (only,) = FrameReader().feed(data)
    return only


def talk(client: ClientHandshake, bookie: ServerHandshake) -> list[bytes]:
    """Let both ends speak until the client is satisfied; gives all that was on the wire."""
    wire = [client.hello()]
    while wire[-1]:
        wire.append(bookie.answer(frame(wire[-1])))
        wire.append(client.answer(frame(wire[-1])))
    assert client.is_done
    assert bookie.is_accepted
    assert not bookie.is_refused
    return wire[:-1]


def refusal(client: ClientHandshake, bookie: ServerHandshake) -> FencelogError:
    with pytest.raises(FencelogError) as caught:
        talk(client, bookie)
    assert not client.is_done
    return caught.value


# -- versions and features -----------------------------------------------------------------------


def test_a_client_learns_whom_it_talks_to() -> None:
    client = ClientHandshake("b1")
    assert len(talk(client, ServerHandshake("b1", "7"))) == 2
    assert client.incarnation == "7"
    assert sorted(client.features) == [
        *("add_many", "admin", "contexts", "fence", "list_entries", "places", "read_ranges"),
        "write_lacs",
    ]


@given(NAMES, NAMES, NAMES, NAMES)
def test_features_are_those_of_both_unless_one_is_required_and_lacking(
    offered: set[str], required: set[str], known: set[str], insists: set[str]
) -> None:
    client = ClientHandshake("b1", features=offered, required=required)
    bookie = ServerHandshake("b1", "7", features=known, required=insists)
    lacking = (required - known - insists) or (insists - offered - required)
    if lacking:
        error = refusal(client, bookie)
        assert error.code is ErrorCode.UNSUPPORTED_VERSION
        assert all(name in error.detail for name in lacking)
        assert bookie.is_refused
    else:
        talk(client, bookie)
        assert client.features == bookie.features == (offered | required) & (known | insists)


@pytest.mark.parametrize("versions", [[2, 3], [], None, 1, "1", [[1]]])
def test_another_version_is_refused_and_named(versions: object) -> None:
    bookie = ServerHandshake("b1", "7")
    reply = frame(bookie.answer(frame(encode_request(Op.HELLO, 0, hello(versions=versions)))))
    assert reply.status == ErrorCode.UNSUPPORTED_VERSION.wire
    assert "version 1" in reply.body.decode()
    assert bookie.is_refused
    assert bookie.answer(frame(encode_request(Op.HELLO, 0, hello(versions=[1])))) == b""
    assert not bookie.is_accepted


@pytest.mark.parametrize("field", ["features", "required"])
@pytest.mark.parametrize("value", [1, "name", [1], {"a": 1}, [["a"]], None])
def test_names_that_are_none_are_a_protocol_error(field: str, value: object) -> None:
    with pytest.raises(ProtocolError, match=field):
        ServerHandshake("b1", "7").answer(
            frame(encode_request(Op.HELLO, 0, hello(**{field: value})))
        )


def hello(**fields: object) -> bytes:
    return encode_hello({"versions": [1], **fields})


def bookie_hello(**fields: object) -> bytes:
    body = {"version": 1, "bookie_id": "b1", "incarnation": "7", "features": [], **fields}
    return encode_reply(Op.HELLO, 0, encode_hello(body))


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (bookie_hello(bookie_id="b2"), ErrorCode.BOOKIE_UNAVAILABLE, "expected bookie b1.*b2"),
        (bookie_hello(version=2), ErrorCode.UNSUPPORTED_VERSION, "version 2"),
        (bookie_hello(incarnation=None), ErrorCode.BAD_FRAME, "not offered"),
        (bookie_hello(features=["x"]), ErrorCode.BAD_FRAME, "not offered"),
        (bookie_hello(features=[]), ErrorCode.UNSUPPORTED_VERSION, "lacks checksums"),
        (bookie_hello(features=3), ErrorCode.BAD_FRAME, "features"),
        (encode_reply(Op.HELLO, 1, b""), ErrorCode.BAD_FRAME, "unexpected"),
        (encode_reply(Op.ADD, 0), ErrorCode.BAD_FRAME, "unexpected"),
        (encode_reply(Op.AUTH, 0, b"x"), ErrorCode.BAD_FRAME, "unexpected"),
        (encode_request(Op.HELLO, 0, hello()), ErrorCode.BAD_FRAME, "unexpected"),
        (encode_reply(Op.HELLO, 0, b"\xc1"), ErrorCode.BAD_FRAME, "msgpack"),
        (encode_error(Op.HELLO, 0, ErrorCode.DRAINING, "bye"), ErrorCode.DRAINING, "b1: bye"),
    ],
)
def test_a_client_believes_only_a_fitting_answer(answer: bytes, code: ErrorCode, text: str) -> None:
    client = ClientHandshake("b1", required={"checksums"})
    client.hello()
    with pytest.raises(FencelogError, match=text) as caught:
        client.answer(frame(answer))
    assert caught.value.code is code
    assert not client.is_done


def test_nothing_more_is_a_handshake_once_it_is_done() -> None:
    client, bookie = ClientHandshake("b1"), ServerHandshake("b1", "7")
    wire = talk(client, bookie)
    with pytest.raises(ProtocolError):
        client.answer(frame(wire[1]))
    for again in (wire[0], encode_request(Op.AUTH, 1, b"x"), encode_request(Op.ADD, 1, b"x")):
        with pytest.raises(ProtocolError):
            bookie.answer(frame(again))


# -- a shared secret -----------------------------------------------------------------------------


def test_both_ends_prove_that_they_know_the_secret() -> None:
    client, bookie = ClientHandshake("b1", shared()), ServerHandshake("b1", "7", shared())
    wire = talk(client, bookie)
    assert [frame(data).op & 0x7F for data in wire] == [Op.HELLO] * 2 + [Op.AUTH] * 4
    assert [bool(frame(data).flags & Flag.ACCEPTED) for data in wire] == [False] * 5 + [True]
    assert SECRET not in b"".join(wire)
    assert client.incarnation == "7"


@pytest.mark.parametrize(
    ("client", "bookie", "text"),
    [
        (None, shared(), "asks for authentication by hmac-sha256, the client offers none"),
        (shared(), None, "does not prove itself by hmac-sha256"),
        (shared(), shared(b"x" * MIN_SECRET_BYTES), "the client does not know the secret"),
    ],
)
def test_who_does_not_know_the_secret_is_refused(
    client: SharedSecret | None, bookie: SharedSecret | None, text: str
) -> None:
    error = refusal(ClientHandshake("b1", client), ServerHandshake("b1", "7", bookie))
    assert error.code is ErrorCode.UNAUTHORIZED
    assert text in error.detail


def test_two_secrets_are_known_while_one_replaces_the_other() -> None:
    """Whichever one the client proves, the bookie proves the same. A client proves its own alone,
    and believes no other."""
    new = b"another staple for the horse"
    changing = SharedSecret(SECRET, host=SystemHost(), accepted=[new])
    for client in (shared(), shared(new), changing):
        talk(ClientHandshake("b1", client), ServerHandshake("b1", "7", changing))
    error = refusal(ClientHandshake("b1", changing), ServerHandshake("b1", "7", shared(new)))
    assert "the client does not know the secret" in error.detail
    prove, verify = changing.prove("b1"), shared(new).verify("b1", b"n" * NONCE_BYTES)
    next(prove)
    prove.send(next(verify))
    with pytest.raises(FencelogError, match="the bookie does not know the secret"):
        prove.send(b"p" * NONCE_BYTES)
    with pytest.raises(FencelogError, match="at least"):
        SharedSecret(SECRET, host=SystemHost(), accepted=[b"short"])


def conversation(client: SharedSecret, bookie: SharedSecret, heard: str, meant: str) -> list[bytes]:
    """The bare messages between a client that means one bookie and a bookie of another name."""
    prove = client.prove(meant)
    first = next(prove)
    verify = bookie.verify(heard, first)
    nonce = next(verify)
    proof = prove.send(nonce)
    try:
        verify.send(proof)
    except StopIteration as end:
        with pytest.raises(StopIteration):
            prove.send(end.value)
        return [first, nonce, proof, end.value]
    raise AssertionError("a third answer")


def test_a_proof_is_for_one_bookie() -> None:
    """Else somebody in between could pass a client's proof on to another bookie."""
    assert len(conversation(shared(), shared(), "b1", "b1")) == 4
    with pytest.raises(FencelogError, match="does not know the secret") as caught:
        conversation(shared(), shared(), "b2", "b1")
    assert caught.value.code is ErrorCode.UNAUTHORIZED


def test_a_proof_is_for_one_connection_and_one_direction() -> None:
    first, nonce, proof, answer = conversation(shared(), shared(), "b1", "b1")
    assert len({first, nonce, proof, answer}) == 4
    for replayed in (proof, answer, b"", proof[:-1], proof + b"x"):
        verify = shared().verify("b1", first)
        next(verify)
        with pytest.raises(FencelogError) as caught:
            verify.send(replayed)
        assert caught.value.code is ErrorCode.UNAUTHORIZED
    prove = shared().prove("b1")
    reflected = prove.send(next(prove))  # a false bookie that sends the client's own words back
    with pytest.raises(FencelogError, match="the bookie does not know"):
        prove.send(reflected)
    prove = shared().prove("b1")
    next(prove)
    prove.send(nonce)  # a false bookie that repeats what a true one has said
    with pytest.raises(FencelogError, match="the bookie does not know"):
        prove.send(answer)


@pytest.mark.parametrize("size", [0, NONCE_BYTES - 1, NONCE_BYTES + 1])
def test_nonces_have_one_size(size: int) -> None:
    with pytest.raises(FencelogError, match=f"{size} bytes"):
        next(shared().verify("b1", b"n" * size))
    prove = shared().prove("b1")
    next(prove)
    with pytest.raises(FencelogError, match=f"{size} bytes"):
        prove.send(b"n" * size)


def test_a_short_secret_is_none() -> None:
    with pytest.raises(FencelogError, match="at least") as caught:
        shared(b"x" * (MIN_SECRET_BYTES - 1))
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_being_let_in_is_no_proof_of_the_bookie() -> None:
    """A false bookie accepts anybody; a client with a secret wants to see that it knows it."""
    client = ClientHandshake("b1", shared())
    client.hello()
    client.answer(frame(bookie_hello(auth="hmac-sha256")))
    lie = encode_reply(Op.AUTH, 1, b"n" * NONCE_BYTES, Flag.ACCEPTED)
    with pytest.raises(FencelogError, match="did not prove itself") as caught:
        client.answer(frame(lie))
    assert caught.value.code is ErrorCode.UNAUTHORIZED
    assert not client.is_done


# -- any method ----------------------------------------------------------------------------------


class Patient:
    """Both ends of a method of so many messages that proves nothing."""

    method = "patience"

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def prove(self, bookie_id: str) -> Generator[bytes, bytes, None]:
        for step in range(self.steps):
            answer = yield b"%d" % step
            assert answer == b"%d ok" % step

    def verify(self, bookie_id: str, first: bytes) -> Generator[bytes, bytes, bytes]:
        message = first
        for step in range(self.steps - 1):
            assert message == b"%d" % step
            message = yield message + b" ok"
        return message + b" ok"


def ends(client: Credentials, bookie: Authenticator) -> tuple[ClientHandshake, ServerHandshake]:
    return ClientHandshake("b1", client), ServerHandshake("b1", "7", bookie)


@pytest.mark.parametrize("steps", range(1, MAX_AUTH_STEPS + 1))
def test_a_method_may_take_some_steps(steps: int) -> None:
    assert len(talk(*ends(Patient(steps), Patient(steps)))) == 2 + 2 * steps


def test_a_method_may_not_take_for_ever() -> None:
    client, bookie = ends(Patient(1000), Patient(1000))
    error = refusal(client, bookie)
    assert error.code is ErrorCode.UNAUTHORIZED
    assert str(MAX_AUTH_STEPS) in error.detail
    assert not bookie.is_refused
    answer = bookie.answer(frame(encode_request(Op.AUTH, 9, b"%d" % MAX_AUTH_STEPS)))
    assert frame(answer).status == ErrorCode.UNAUTHORIZED.wire  # to a client that does not count
    assert bookie.is_refused


def test_ends_that_do_not_agree_when_it_is_over_are_refused() -> None:
    error = refusal(*ends(Patient(1), Patient(2)))
    assert error.code is ErrorCode.UNAUTHORIZED
    assert "goes on asking" in error.detail
    error = refusal(*ends(Patient(2), Patient(1)))
    assert "did not prove itself" in error.detail
    error = refusal(*ends(shared(), Patient(2)))
    assert "by patience, the client offers hmac-sha256" in error.detail


# -- hostile bodies ------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)  # fmt: skip
KEYS = ("magic", "versions", "features", "required", "auth", "version", "bookie_id")
FIELDS = st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, VALUES))


@given(FIELDS, st.booleans())
def test_no_hello_does_anything_but_be_refused(fields: dict[str, object], keep: bool) -> None:
    body = msgpack.packb({**fields, **({"magic": "fencelog"} if keep else {})})
    bookie, client = ServerHandshake("b1", "7", shared()), ClientHandshake("b1", shared())
    try:
        reply = frame(bookie.answer(frame(encode_request(Op.HELLO, 0, body))))
        assert bookie.is_refused == (reply.status != 0)
    except ProtocolError:
        assert not bookie.is_refused
    assert not bookie.is_accepted
    client.hello()
    with pytest.raises(FencelogError):
        client.answer(frame(encode_reply(Op.HELLO, 0, body)))
    assert not client.is_done


@pytest.mark.parametrize(
    "bomb",
    [
        b"\xdf\xff\xff\xff\xff",  # a map of 4 billion entries
        b"\xdd\xff\xff\xff\xff",  # a list
        b"\xdb\xff\xff\xff\xff",  # a text
        b"\xc6\xff\xff\xff\xff",  # bytes
        b"\xc9\xff\xff\xff\xff\x01",  # an extension
        b"\x91" * (MAX_HELLO_BYTES - 8),  # nested lists
        b"\x81\xa1a" * 1300,  # nested maps
    ],
)
def test_msgpack_bombs_are_protocol_errors(bomb: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_hello(bomb)
    with pytest.raises(ProtocolError):
        ServerHandshake("b1", "7").answer(frame(encode_request(Op.HELLO, 0, bomb)))


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ("write cache is full", "bookie b1: write cache is full"),
        ("bookie b1 has no ledger 7", "bookie b1 has no ledger 7"),
        ("bookie b1: as it was", "bookie b1: as it was"),
        ("bookie b12 is another", "bookie b1: bookie b12 is another"),
    ],
)
def test_an_error_names_its_bookie_once(said: str, detail: str) -> None:
    reply = frame(encode_error(Op.READ, 1, ErrorCode.OVERLOADED, said))
    error = error_of(reply, "b1")
    assert error is not None
    assert (error.code, error.detail) == (ErrorCode.OVERLOADED, detail)
