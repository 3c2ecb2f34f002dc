"""Commands that run things: standalone, bookie, broker, zookeeper, cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencelog.api.cli import bookie as cli_bookie
from fencelog.api.cli.healing import bookie_removal
from fencelog.api.console import (
    EXIT_ERROR,
    AcceptedSecretOption,
    BookiesOption,
    ChildOption,
    DataOption,
    JournalDirsOption,
    LedgerDirsOption,
    MetadataOption,
    SecretOption,
    SessionOption,
    absolute,
    complain,
    print_table,
)
from fencelog.api.processes.logs.options import with_log_options
from fencelog.api.processes.traces.options import with_trace_options
from fencelog.ledgers.errors import FencelogError

if TYPE_CHECKING:
    from fencelog.api.processes.lifecycle import Running

HttpOption = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
]

TickOption = Annotated[
    int, typer.Option(min=50, max=10_000, help="ZooKeeper's unit of time, for ends of sessions.")
]

InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Let others than this machine reach it: nobody is asked.")
]

AllowHostOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Another name of this server; .NAME: all below it. Again."),
]

AllowOriginOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ORIGIN", help="Web pages that may use it: https://NAME, *. Again."),
]


BookieDataOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where everything is stored.")
]

BookieAddressOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Address for clients, if another.")
]

BookieIdOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Its name; by default kept in DIR.")
]

RackOption = Annotated[
    str, typer.Option(metavar="NAME", help="Copies are spread over racks. Empty: not known here.")
]

RackFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Lines NODE RACK, for --node where --rack is empty."),
]

NodeOption = Annotated[str, typer.Option(metavar="NAME", help="The machine that this is.")]

HealthOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where HTTP tells its health and metrics.")
]

ReadOnlyAtOption = Annotated[
    float, typer.Option(min=0.1, max=1, help="No new entries when so much of a disk is used.")
]


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


EventsOption = Annotated[
    Switch, typer.Option(help="off: the timeline has no events of these brokers.")
]


def add_to(app: typer.Typer) -> None:
    app.command()(with_log_options(zookeeper))
    for command in (standalone, broker, cluster):
        app.command()(with_log_options(with_trace_options(command)))
    # Without a command of its own, ``fencelog bookie`` runs one.
    bookies = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
    bookies.callback()(with_log_options(with_trace_options(bookie)))
    cli_bookie.add_to(bookies)
    bookie_removal.add_to(bookies)
    app.add_typer(bookies, name="bookie")


def standalone(
    http: HttpOption = "127.0.0.1:8080",
    data: DataOption = Path("data"),
    bookies: BookiesOption = 3,
    insecure: InsecureOption = False,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    events: EventsOption = Switch.ON,
    child: ChildOption = False,
) -> None:
    """Run the whole service in one process."""
    from fencelog.api.processes.browser_access import BrowserAccess
    from fencelog.api.processes.standalone import StandaloneConfig
    from fencelog.api.processes.standalone import standalone as service

    browsers = BrowserAccess(insecure, tuple(allow_host or ()), tuple(allow_origin or ()))
    config = StandaloneConfig(data, http, bookies, browsers, events is Switch.ON)
    run_process(service(config), _print_addresses_standalone, child=child)


JournalSyncOption = Annotated[
    Switch,
    typer.Option(help="off: a power loss takes acknowledged entries of this bookie."),
]

JournalWriteOption = Annotated[
    Switch, typer.Option(help="off: so does any crash; half the bytes are written.")
]


RepairCookieOption = Annotated[
    bool, typer.Option("--repair-cookie", help="Make lost directories anew without being asked.")
]

LocalReadsOption = Annotated[
    Switch, typer.Option(help="off: no client of this machine reads the files of entries itself.")
]


def bookie(
    context: typer.Context,
    metadata: MetadataOption = "",
    data: BookieDataOption = None,
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
    listen: HttpOption = "127.0.0.1:3181",
    advertise: BookieAddressOption = None,
    id: BookieIdOption = None,
    rack: RackOption = "default",
    rack_file: RackFileOption = None,
    node: NodeOption = "",
    journal_sync: JournalSyncOption = Switch.ON,
    journal_write: JournalWriteOption = Switch.ON,
    local_reads: LocalReadsOption = Switch.ON,
    read_only_at: ReadOnlyAtOption = 0.95,
    repair_cookie: RepairCookieOption = False,
    autorecovery: Annotated[
        bool, typer.Option("--autorecovery", help="Run self-healing in this process, too.")
    ] = False,
    secret_file: SecretOption = None,
    accept_secret_file: AcceptedSecretOption = None,
    health: HealthOption = None,
    insecure: InsecureOption = False,
    child: ChildOption = False,
) -> None:
    """Run a storage node, or look at one that does not run."""
    if context.invoked_subcommand is not None:
        return
    if not metadata or data is None:
        raise typer.BadParameter("a bookie that is to run needs --metadata and --data")
    from fencelog.api.processes.bookie_main import BookieProcessConfig, bookie_process
    from fencelog.bookie.config import BookieConfig

    storage = BookieConfig(
        data.absolute(),
        absolute(journal_dir),
        absolute(ledger_dir),
        bookie_id=id,
        read_only_at=read_only_at,
        writable_at=read_only_at - 0.05,
        journal_sync=journal_sync is Switch.ON,
        journal_write=journal_write is Switch.ON,
        repair_cookie=repair_cookie,
        local_reads=local_reads is Switch.ON,
    )
    config = BookieProcessConfig(
        metadata,
        storage,
        listen,
        advertise,
        _rack(rack, node, rack_file),
        secret_file,
        insecure,
        autorecovery,
        health,
        accept_secret_file,
    )
    run_process(bookie_process(config), print_addresses, child=child)


def _rack(rack: str, node: str, file: Path | None) -> str:
    from fencelog.api.processes.rack import rack_of, read_rack_file

    try:
        return rack_of(rack, node, read_rack_file(file))
    except FencelogError as error:
        complain(error.detail)
        raise typer.Exit(EXIT_ERROR) from None


def broker(
    metadata: MetadataOption,
    http: HttpOption = "127.0.0.1:8080",
    advertise: Annotated[
        str | None, typer.Option(metavar="URL", help="URL for other brokers, if another.")
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name; by default a random one.")
    ] = None,
    copies: Annotated[
        int, typer.Option(min=1, max=32, help="Of each message, where a topic does not say.")
    ] = 3,
    secret_file: SecretOption = None,
    accept_secret_file: AcceptedSecretOption = None,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="At the end, for handing partitions to other brokers.")
    ] = 45.0,
    linger_seconds: Annotated[
        float, typer.Option(min=0, help="At the end, until no proxy sends requests any more.")
    ] = 0.0,
    insecure: InsecureOption = False,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    events: EventsOption = Switch.ON,
    child: ChildOption = False,
) -> None:
    """Run a broker: topics over HTTP."""
    from fencelog.api.processes.broker_main import BrokerProcessConfig, broker_process
    from fencelog.api.processes.browser_access import BrowserAccess

    config = BrokerProcessConfig(
        metadata,
        http,
        advertise,
        id,
        copies,
        secret_file,
        drain_seconds,
        BrowserAccess(insecure, tuple(allow_host or ()), tuple(allow_origin or ())),
        linger_seconds,
        accept_secret_file,
        events is Switch.ON,
    )
    run_process(broker_process(config), print_addresses, child=child)


def zookeeper(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = 2181,
    data: DataOption = Path("data/zookeeper"),
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    tick_ms: TickOption = 500,
    child: ChildOption = False,
) -> None:
    """Run a ZooKeeper for development: one server, no replicas."""
    from fencelog.api.local_cluster.zookeeper_main import zookeeper_process

    service = zookeeper_process(data, host=host, port=port, tick_ms=tick_ms)
    run_process(service, print_addresses, child=child)


def cluster(
    bookies: BookiesOption = 3,
    brokers: Annotated[int, typer.Option(min=1, max=32, help="Brokers.")] = 2,
    data: DataOption = Path("data/cluster"),
    http_port: Annotated[
        int, typer.Option(min=0, max=65_000, help="Of the first broker; 0 takes free ones.")
    ] = 8080,
    session_ms: SessionOption = 6000,
    tick_ms: TickOption = 500,
    secret_file: SecretOption = None,
    events: EventsOption = Switch.ON,
    child: ChildOption = False,
) -> None:
    """Run a local cluster of processes.

    A development ZooKeeper, bookies, brokers and self-healing, on loopback."""
    from fencelog.api.local_cluster.cluster import ClusterConfig, cluster_service

    config = ClusterConfig(
        data,
        bookies,
        brokers,
        http_port,
        secret_file,
        session_ms,
        tick_ms,
        autorecovery=(),
        record_events=events is Switch.ON,
    )
    run_process(cluster_service(config), _print_addresses_cluster, child=child)


def run_process(
    service: AbstractAsyncContextManager[Running],
    print_addresses: Callable[[Running], None],
    *,
    child: bool,
) -> None:
    """Run a service until it is told to stop. Raises FencelogError."""
    from fencelog.api.processes.lifecycle import run_on_uvloop, run_service

    run_on_uvloop(run_service(service, print_addresses=print_addresses, child=child))


def print_addresses(running: Running) -> None:
    words = [f"{name} {value}" for name, value in running.announcement.items()]
    typer.echo(f"fencelog is ready: {', '.join(words)}")


def _print_addresses_standalone(running: Running) -> None:
    url, data = running.announcement["http"], running.announcement["data"]
    typer.echo(
        f"""fencelog is ready at {url}

  Make a topic   curl -X PUT {url}/v1/topics/default/hello
  Append         curl {url}/v1/topics/default/hello/messages --data-binary 'Hello, log!'
  Read           curl '{url}/v1/topics/default/hello/partitions/0/messages?from=earliest'
  Or             .venv/bin/fencelog read hello --server {url}

  All requests   {url}/docs
  Data           {data}

Ctrl-C ends it; everything that was acknowledged stays."""
    )


def _print_addresses_cluster(running: Running) -> None:
    from rich.table import Table

    table = Table("process", "pid", "address", box=None, pad_edge=False)
    for process in running.announcement["processes"]:
        address = process.get("http") or process.get("address", "")
        table.add_row(process["name"], str(process["pid"]), address)
    print_table(table)
    typer.echo(
        f"\nmetadata: {running.announcement['metadata']}\n"
        f"docs: {running.announcement['http']}/docs\n"
        "Ctrl-C ends all of them."
    )
