"""Wrong parts that all metadata stores share: the instance id, and what is said of a change whose
answer was lost."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

INSTANCE = "fencelog.ledgers.metastore.instance"
NAMESPACES = "fencelog.broker.registry.namespaces"
TOPICS = "fencelog.broker.registry.topics"
UNTIL_KNOWN = "fencelog.ledgers.metastore.until_known"
UPDATE = "fencelog.ledgers.ledger_metadata.update"

_DOUBT = "PROTOCOL.md, the metadata store: unknown is not no"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "instance-of-a-server-that-lags",
        "the instance id: not older than the call",
        "The instance id is read without having caught up.",
        (
            Edit(
                INSTANCE,
                "read_instance",
                "session_id = await catch_up(store)",
                "session_id = store.session_id",
            ),
        ),
    ),
    Mutant(
        "instance-by-another-session",
        "the instance id: not older than the call",
        "The instance id that another session has read is believed.",
        (
            Edit(
                INSTANCE,
                "read_instance",
                '        raise\n    check_session(store, session_id, "read the instance id")\n',
                "        raise\n",
            ),
        ),
    ),
    Mutant(
        "emptied-by-another-session",
        "the instance id: not older than the call",
        "Another session is believed that there is no instance id.",
        (
            Edit(
                INSTANCE,
                "read_instance",
                "    except FencelogError as error:\n"
                '        check_session(store, session_id, "read the instance id")\n',
                "    except FencelogError as error:\n",
            ),
        ),
    ),
    Mutant(
        "caught-up-by-a-session-that-ended",
        "the instance id: not older than the call",
        "The session after the one that has caught up counts as the one that has.",
        (Edit(INSTANCE, "catch_up", "return session_id", "return store.session_id"),),
    ),
    Mutant(
        "caught-up-by-a-lost-answer",
        "the instance id: not older than the call",
        "A write whose answer is lost counts as having caught up.",
        (
            Edit(
                INSTANCE,
                "catch_up",
                "if error.code in (ErrorCode.METADATA_CONFLICT, ErrorCode.METADATA_NOT_FOUND):",
                "if error.code is not ErrorCode.METADATA_UNAVAILABLE:",
            ),
        ),
    ),
    Mutant(
        "caught-up-once-or-never",
        "the instance id: not older than the call",
        "A lost answer is not followed by another attempt to catch up.",
        (Edit(INSTANCE, "catch_up", "attempt == _ATTEMPTS", "attempt == 1"),),
    ),
    Mutant(
        "instance-created-perhaps",
        "the instance id: created once",
        "An instance id of unknown outcome that cannot be found counts as created.",
        (
            Edit(
                INSTANCE,
                "create_instance",
                "            raise\n        return found, found == instance",
                "            return instance, True\n        return found, found == instance",
            ),
        ),
    ),
    Mutant(
        "instance-created-by-another",
        "the instance id: created once",
        "Whoever finds an instance id has created it.",
        (
            Edit(
                INSTANCE, "create_instance", "return found, found == instance", "return found, True"
            ),
        ),
    ),
    Mutant(
        "instance-of-any-length",
        "the instance id: created once",
        "Whatever hexadecimal digits are there are an instance id.",
        (Edit(INSTANCE, "read_instance", "== 16", ">= 0"),),
    ),
)

DOUBTS: tuple[Mutant, ...] = (
    Mutant(
        "doubt-forgotten-by-a-step",
        _DOUBT,
        "What refuses a later attempt of a step for another reason than the node is its outcome.",
        (
            Edit(
                UNTIL_KNOWN,
                "until_known",
                "unknown is None or error.may_have_effect or error.code in FOUND_OTHERWISE",
                "unknown is None or error.code is not ErrorCode.METADATA_UNAVAILABLE",
            ),
        ),
    ),
    Mutant(
        "doubt-about-what-was-found",
        _DOUBT,
        "A step that has found another client's node counts as one of unknown outcome.",
        (
            Edit(
                UNTIL_KNOWN,
                "until_known",
                " or error.code in FOUND_OTHERWISE:",
                ":",
            ),
        ),
    ),
    Mutant(
        "refused-update-was-never-made",
        _DOUBT,
        "A change of a ledger's metadata was not made, as the store refuses its second attempt.",
        (
            Edit(
                UPDATE,
                "update_metadata",
                "                if unknown is None or error.code is ErrorCode.LEDGER_NOT_FOUND:",
                "                if error.code not in NOT_ASKED or unknown is None:",
            ),
        ),
    ),
    Mutant(
        "own-update-not-looked-for",
        _DOUBT,
        "A change whose second attempt is refused is of unknown outcome, though it is there.",
        (
            Edit(
                UPDATE,
                "update_metadata",
                " and transform(base) is not None:",
                ":",
            ),
        ),
    ),
    Mutant(
        "unread-update-was-never-made",
        _DOUBT,
        "A change whose answer was lost was not made, as its ledger's metadata are damaged now.",
        (
            Edit(
                UPDATE,
                "_read_back",
                "                raise unknown from error",
                "                raise",
            ),
        ),
    ),
    Mutant(
        "instance-refused-perhaps",
        "the instance id: created once",
        "An instance id of unknown outcome is not there, as the store cannot be reached.",
        (
            Edit(
                INSTANCE,
                "create_instance",
                "            raise error from unread",
                "            raise",
            ),
        ),
    ),
    Mutant(
        "cookie-refused-perhaps",
        _DOUBT,
        "A cookie was not registered, as the second attempt is refused.",
        (
            Edit(
                "fencelog.bookie.identity.cookie_registry",
                "CookieRegistry.register",
                "                    raise unknown from refusal",
                "                    raise",
            ),
        ),
    ),
    Mutant(
        "namespace-refused-perhaps",
        _DOUBT,
        "A namespace was not created, as the store cannot be reached after a lost answer.",
        (
            Edit(
                NAMESPACES,
                "Namespaces.create",
                "                raise error from unread",
                "                raise",
            ),
        ),
    ),
    Mutant(
        "namespace-of-a-server-that-lags",
        _DOUBT,
        "After a lost answer, the namespace that had the name before counts as the present one.",
        (
            Edit(
                NAMESPACES,
                "Namespaces.create",
                "(self._get if is_known else self._get_latest)",
                "self._get",
            ),
        ),
    ),
    Mutant(
        "topic-of-a-server-that-lags",
        _DOUBT,
        "After a lost answer, the topic that had the name before counts as the present one.",
        (
            Edit(
                TOPICS,
                "TopicRegistry.create",
                "(self.get if is_known else self._get_latest)",
                "self.get",
            ),
        ),
    ),
    Mutant(
        "topic-not-deleted-perhaps",
        _DOUBT,
        "A topic was not deleted, as the store cannot be reached after a lost answer.",
        (
            Edit(
                TOPICS,
                "TopicRegistry.delete",
                "                    raise error from unread",
                "                    raise",
            ),
        ),
    ),
)
"""A later attempt, or the look at what came of the first, is refused."""
