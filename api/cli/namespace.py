"""``fencelog namespace``: settings that topics inherit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.cli.settings import SetOption, ask, parse_settings, show_json
from fencelog.api.console import SERVER, ServerOption, YesOption, ask_first

if TYPE_CHECKING:
    from fencelog.api.client import FencelogClient

NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE")]


def add_to(app: typer.Typer) -> None:
    namespace = typer.Typer(rich_markup_mode=None, help="Settings that topics share.")
    for command in (show, delete):
        namespace.command()(command)
    namespace.command("list")(list_namespaces)
    namespace.command("set")(set_namespace)
    app.add_typer(namespace, name="namespace")


def list_namespaces(server: ServerOption = SERVER) -> None:
    """List namespaces, one a line."""
    for namespace in ask(server, lambda client: client.namespaces()):
        typer.echo(namespace["namespace"])


def show(namespace: NamespaceArgument, server: ServerOption = SERVER) -> None:
    """Show what a namespace sets, and what its topics inherit, as JSON."""
    show_json(ask(server, lambda client: client.namespace(namespace)))


def set_namespace(
    namespace: NamespaceArgument, settings: SetOption = None, server: ServerOption = SERVER
) -> None:
    """Change settings of a namespace, which is made if it is not there."""
    changes = parse_settings(settings)

    async def change(client: FencelogClient) -> dict[str, Any]:
        from fencelog.ledgers.errors import ErrorCode, FencelogError

        try:
            return await client.update_namespace(namespace, changes)
        except FencelogError as error:
            if error.code is not ErrorCode.NAMESPACE_NOT_FOUND:
                raise
        return await client.create_namespace(namespace, changes)

    show_json(ask(server, change)["settings"])


def delete(
    namespace: NamespaceArgument, yes: YesOption = False, server: ServerOption = SERVER
) -> None:
    """Remove a namespace that has no topics."""
    ask_first(f"Namespace {namespace} and its settings will be gone.", yes)
    ask(server, lambda client: client.delete_namespace(namespace))
    typer.echo(f"namespace {namespace} is deleted")
