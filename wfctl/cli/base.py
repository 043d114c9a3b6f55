"""What every command shares: the common options, groups that load their commands late, and the open store.

Nothing heavy is imported here: `wfctl --help`, `--version` and completion pay for click alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from wfctl.operations.context import Context
    from wfctl.operations.store import Store

FORMATS = ("table", "plain", "json", "jsonl", "csv", "name")
Function = TypeVar("Function", bound=Callable[..., Any])


class Common:
    """The common options of one command line, and what follows from them."""

    def __init__(
        self,
        *,
        output: str | None = None,
        no_header: bool = False,
        color: str = "auto",
        ascii: bool = False,
        quiet: bool = False,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.store: str | None = None
        self.output = output
        self.no_header = no_header
        self.columns: str | None = None
        self.color = color
        self.ascii = ascii
        self.quiet = quiet
        self.verbose = 0
        self.yes = False
        self.no_input = False
        self.environ = environ

    @property
    def format(self) -> str:
        """The output format: the one asked for, else ids with -q, a table on a terminal, plain columns in a pipe."""
        return self.output or ("name" if self.quiet else "table" if sys.stdout.isatty() else "plain")

    @property
    def is_program(self) -> bool:
        """Whether a form for programs was asked for by name."""
        return self.output not in (None, "table", "plain")

    @property
    def is_human(self) -> bool:
        """Whether people read the answer, rather than programs."""
        return self.format in ("table", "plain")

    def root(self) -> Path:
        """Return the path of the store that is meant (contract 2.1). It need not exist."""
        from pathlib import Path

        return Path(self.place())

    def place(self) -> str:
        """Return what `root` does, as text."""
        from wfctl.store.layout import find_place

        return find_place(self.store, self.environ)

    def own_root(self) -> Path:
        """Return the path of the store, after root has become its owner for good (contract 2.7)."""
        from pathlib import Path

        return Path(self.own_place())

    def own_place(self) -> str:
        """Return what `own_root` does, as text."""
        from wfctl.store.place import assume_owner

        place = self.place()
        assume_owner(place)
        return place

    def open(self, *, may_log: bool = True) -> Store:
        """Open the store that is meant; a context manager. Raise NoStore, naming `wfctl init`, where there is none.

        `may_log`: False for what only asks how things are, so that not even what keeps records off stderr is loaded.
        """
        from wfctl.rpc.door import open_store

        place = self.own_place()
        if may_log or self.verbose:
            quieten_logs(self.verbose)
        return open_store(place)

    @contextlib.contextmanager
    def listing(self) -> Iterator[Context]:
        """Give the store that is meant to what lists it: without what asks the supervisor, changes something or may log.

        Raise NoStore, naming `wfctl init`, where there is none.
        """
        from wfctl.operations.opening import open_context

        place = self.own_place()
        if self.verbose:
            quieten_logs(self.verbose)
        context = open_context(place)
        try:
            yield context
        finally:
            context.ledger.close()

    def now(self) -> datetime:
        """Return the wall clock."""
        from wfctl.clock import SystemClock

        return SystemClock().now()


def quieten_logs(verbose: int) -> None:
    """Keep log records off stderr, where a command says itself what happened; `-v` shows them."""
    import logging

    logger = logging.getLogger("wfctl")
    if verbose:
        logging.basicConfig(level=logging.DEBUG if verbose > 1 else logging.INFO, format="%(name)s: %(message)s")
    elif not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


pass_common = click.make_pass_decorator(Common, ensure=True)


# Common options ---------------------------------------------------------------------------------------------------------


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep a common option where it was given; of several, the one nearest to the end of the line holds."""
    common = ctx.ensure_object(Common)
    if param.name is None or ctx.get_parameter_source(param.name) is not click.core.ParameterSource.COMMANDLINE:
        return
    setattr(common, param.name, value)
    if common.quiet and common.verbose:
        raise click.UsageError("-q and -v exclude each other; leave one out", ctx=ctx)


def _common_options() -> list[click.Option]:
    def option(*names: str, help: str, **settings: Any) -> click.Option:
        return click.Option(names, help=help, expose_value=False, callback=_note, is_eager=True, **settings)

    return [
        option("--store", metavar="DIR", type=DirectoryPath(), help="The store (else WFCTL_STORE, else the system's)."),
        option("-o", "--output", type=click.Choice(FORMATS), metavar="FORMAT",
               help="table, plain, json, jsonl, csv or name. Default: table on a terminal, plain in a pipe."),
        option("--no-header", is_flag=True, help="Leave out the header row of table, plain and csv."),
        option("--columns", metavar="A,B,...", help="Columns of table, plain and csv, in this order."),
        option("--color", type=click.Choice(("auto", "always", "never")), metavar="WHEN",
               help="auto, always or never. NO_COLOR and FORCE_COLOR are honoured."),
        option("--ascii", is_flag=True, help="Draw with ASCII alone."),
        option("-q", "--quiet", is_flag=True, help="Print only ids and errors."),
        option("-v", "--verbose", count=True, help="Say more on stderr."),
        option("-y", "--yes", is_flag=True, help="Answer yes to every question."),
        option("--no-input", is_flag=True, help="Never ask; fail where a question would be asked."),
    ]  # fmt: skip


class DirectoryPath(click.ParamType[str, str]):
    """A directory, for completion; whether it is there is for the operation to say."""

    name = "directory"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="dir")]


COMMON_OPTIONS = _common_options()
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    own: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None and not isinstance(param, click.Argument):
            (common if param in COMMON_OPTIONS else own).append(record)
    for title, records in (("Options", own), ("Common options", common)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class _HelpContext(click.Context):
    """A context that measures the terminal for its help itself: click takes a module for it that loads three compressors."""

    def make_formatter(self) -> click.HelpFormatter:
        width = self.terminal_width or max(min(_columns(), self.max_content_width or 80) - 2, 50)
        return self.formatter_class(width=width, max_width=self.max_content_width)


def _columns() -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns or 80
    except (OSError, ValueError):
        return 80


class Command(click.Command):
    """A command that also takes the common options, and lists them apart."""

    context_class = _HelpContext

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params = [*self.params, *COMMON_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)


# Groups that load late --------------------------------------------------------------------------------------------------


class Entry:
    """A command of a group: where it is, and the line that help shows without loading it."""

    __slots__ = ("help", "home", "section")

    def __init__(self, home: str, help: str, section: str = "Commands") -> None:
        """`home`: `module:attribute`, below wfctl.cli."""
        self.home, self.help, self.section = home, help, section


class Group(click.Group):
    """A group whose commands are imported when they are called; it takes the common options too."""

    context_class = _HelpContext

    def __init__(self, name: str, help: str, entries: Mapping[str, Entry], **settings: Any) -> None:
        super().__init__(name, help=help, context_settings=dict(SETTINGS), **settings)
        self.params = [*self.params, *COMMON_OPTIONS]
        self.entries = entries
        self.commands = _Late(entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.commands[cmd_name] if cmd_name in self.entries else None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.entries.items():
            sections.setdefault(entry.section, []).append((name, entry.help))
        width = max(len(name) for name in self.entries)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])
        _write_options(self, ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=entry.help) for name, entry in self.entries.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


class _Late(dict[str, click.Command]):
    """The commands of a group by name, imported on the first look."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        super().__init__(dict.fromkeys(entries, click.Command(None)))
        self._entries = entries
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            from importlib import import_module

            module, attribute = self._entries[name].home.split(":")
            self._loaded[name] = getattr(import_module(f"wfctl.cli.{module}"), attribute)
        return self._loaded[name]


# Arguments and options that several commands take -----------------------------------------------------------------------


class StoredId(click.ParamType[str, str]):
    """The id of a schedule, deployment or run, or of one of several kinds; completed from file names alone."""

    def __init__(self, *kinds: str) -> None:
        self.name = kinds[0]
        self._kinds = kinds

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        common = ctx.ensure_object(Common)
        try:
            named = common.store or common.environ.get("WFCTL_STORE")  # the usual cases, without loading what finds the others
            root = named or str(common.root())
            names = [name for kind in self._kinds for name in stored_names(root, kind)]
        except Exception:  # a completion that fails must not disturb the line being typed
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def stored_names(root: str, kind: str) -> list[str]:
    """Return the ids of a kind (schedule, deployment, run) that file names show, sorted; nothing is read or checked."""
    with os.scandir(f"{root}/{kind}s") as found:
        names = [entry.name for entry in found if not entry.name.startswith(".")]
    if kind == "run":
        return sorted((name for name in names if name.startswith("run-")), reverse=True)
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def dry_run_option(function: Function) -> Function:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Check and show everything, change nothing.")(function)


def command(**settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command whose first argument is the Common of its line."""

    def decorate(function: Callable[..., Any]) -> Command:
        return click.command(cls=Command, context_settings=dict(SETTINGS), **settings)(pass_common(function))

    return decorate
