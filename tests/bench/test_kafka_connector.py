"""What of ``make bench-kafka`` needs no Kafka, whose jars no test fetches."""

from __future__ import annotations

from pathlib import Path

from tests.bench.kafka_connector import read_topics, server_properties


def test_a_broker_listens_on_the_loopback_address_alone(tmp_path: Path) -> None:
    lines = server_properties(tmp_path, 4001, 4002).splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    assert len(settings) == len(lines)
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:4001,CONTROLLER://127.0.0.1:4002"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:4001"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:4002"
    assert settings["log.dirs"] == str(tmp_path / "kafka")


def test_topics_of_both_sizes_of_values_are_read() -> None:
    assert [topic.value_bytes for topic in read_topics()] == [100, 1000]
