"""Wrong parts that all metadata stores share: the instance id."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

INSTANCE = "fencelog.ledgers.metastore.instance"

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
