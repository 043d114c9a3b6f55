"""`wfctl deployment …` and `wfctl deployments`: what to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import paging, parse, prompt, render, streams, values
from wfctl.cli.base import Common, StoredId, command, dry_run_option
from wfctl.cli.paging import part_options
from wfctl.cli.render import Column
from wfctl.cli.style import Paint
from wfctl.cli.text import count_of, escape

if TYPE_CHECKING:
    from wfctl.operations.store import Store
    from wfctl.operations.views import CheckView, DeploymentView

#: keys whose value is text even where it looks like a number
_TEXTS = frozenset({"description", "working_directory", "kill_grace", "umask", "executor", "retry_delay", "timeout"})
_deployment_id = click.argument("deployment_id", metavar="ID", type=StoredId("deployment"), help="The id of the deployment.")


def _steps(view: DeploymentView) -> list[dict[str, Any]]:
    definition = view.definition or {}
    return list(definition.get("steps") or ([definition] if definition.get("command") else []))


def _commands(view: DeploymentView) -> str:
    steps = _steps(view)
    if len(steps) > 1:
        return f"{len(steps)} steps: {', '.join(str(step.get('name')) for step in steps)}"
    return " ; ".join(values.command(step.get("command") or ()) for step in steps)


COLUMNS = [
    Column(key="id", title="ID", raw=lambda it: it.id, keep=True),
    Column(key="revision", title="REVISION", raw=lambda it: it.revision, right=True),
    Column(key="state", title="STATE", raw=lambda it: it.state, status=True),
    Column(key="schedules", title="SCHEDULES", raw=lambda it: len(it.schedules), right=True),
    Column(key="command", title="COMMAND", raw=_commands, free=True),
    Column(key="description", title="DESCRIPTION", raw=lambda it: (it.definition or {}).get("description"), free=True),
    Column(key="digest", title="DIGEST", raw=lambda it: it.digest, extra=True),
    Column(key="diagnostic", title="DIAGNOSTIC", raw=lambda it: (it.diagnostic or {}).get("message"), extra=True),
]


@command()
@click.option("--include-deleted", is_flag=True, help="Deleted ones too.")
@part_options
def deployments(common: Common, include_deleted: bool, limit: int | None, cursor: str | None) -> None:
    """List the deployments."""
    from wfctl.operations.listing_deployments import list_deployments

    with common.listing() as context:
        page = list_deployments(context, include_deleted=include_deleted, limit=limit, cursor=cursor)
    render.page(common, COLUMNS, page.items, schema=page.list_schema, name=lambda it: it.id, next_cursor=page.next_cursor)
    words = ["--include-deleted"] if include_deleted else []
    paging.say_next(common, page.next_cursor, limit, paging.line(common, "deployments", *words))


@command()
@_deployment_id
def show(common: Common, deployment_id: str) -> None:
    """Show a deployment and who uses it."""
    with common.open() as store:
        view = store.get_deployment(deployment_id=deployment_id)
    render.item(common, view, details=lambda paint: details(view, paint), name=view.id, columns=COLUMNS)


def details(view: DeploymentView, paint: Paint) -> str:
    """Return a deployment for people."""
    lines = [headline(view, paint)]
    if view.diagnostic:
        lines.append(f"  {paint(escape(view.diagnostic.get('message') or view.diagnostic), 'red')}")
    definition = view.definition or {}
    for index, step in enumerate(_steps(view), 1):
        name = f"{index} {escape(step['name'])}" if step.get("name") else "command"
        lines.append(f"  {name}: {escape(values.command(step.get('command') or ()))}")
        lines.append(f"    {_step_line(step, paint)}")
    facts = [
        ("description", escape(definition.get("description") or "")),
        ("directory", escape(definition.get("working_directory") or "the run's own")),
        ("environment", escape(" ".join(f"{key}={text}" for key, text in (definition.get("environment") or {}).items()))),
        ("environment files", escape(" ".join(definition.get("environment_files") or ()))),
        ("files", escape("  ".join(f"{key} {str(text)[:19]}" for key, text in (definition.get("files") or {}).items()))),
        ("input schema", escape(values.json_cell(definition.get("input_schema")))),
        ("kill grace", escape(definition.get("kill_grace") or "")),
        ("umask", escape(definition.get("umask") or "")),
        ("runs on", escape(_runs_on(definition))),
        ("used by", escape(", ".join(view.schedules)) or "no schedule"),
    ]
    return "\n".join([*lines, render.pairs(facts, paint, indent=2)])


def _runs_on(definition: Mapping[str, Any]) -> str:
    """Where its runs are, where that is not this machine, and what they ask for there."""
    if definition.get("executor") in (None, "local"):
        return ""
    needs = definition.get("slurm") or {}
    asked = [f"{key}={' '.join(value) if isinstance(value, list) else value}" for key, value in needs.items() if value]
    return " ".join([str(definition["executor"]), *asked])


def headline(view: DeploymentView, paint: Paint) -> str:
    """Return a deployment in one line, for people."""
    parts = [f"deployment {paint(escape(view.id), 'bold')} revision {view.revision}"]
    if view.digest:
        parts.append(f"sha256 {view.digest.removeprefix('sha256:')[:12]}")
    parts.append(paint.status(view.state))
    return f" {paint.dot} ".join(parts)


def _step_line(step: dict[str, Any], paint: Paint) -> str:
    timeout = step.get("timeout") or "none"
    retries = step.get("retries") or 0
    parts = [
        count_of(retries, "retry", "retries") + (f" after {escape(step.get('retry_delay'))}" if retries else ""),
        "no timeout" if timeout == "none" else f"timeout {escape(timeout)}",
    ]
    return f" {paint.dot} ".join(parts)


# Changing ---------------------------------------------------------------------------------------------------------------


@command()
@click.argument("deployment_id", metavar="ID", help="The id: lower-case letters, digits, '.', '_' and '-'.")
@click.argument(
    "arguments", metavar="-- COMMAND [ARG]...", nargs=-1, help="The command, as arguments; no shell unless you name one."
)
@click.option("-f", "file", metavar="FILE|-", type=click.Path(), help="Read the definition from a TOML file, or from stdin.")
@click.option("--cwd", metavar="DIR", type=click.Path(), help="The working directory (default: the run's own).")
@click.option("--env", "environment", metavar="NAME=TEXT", multiple=True, help="Set a variable; may be repeated.")
@click.option(
    "--env-file",
    "environment_files",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    help="Read variables from this file at every launch; may be repeated.",
)
@click.option("--input-schema", metavar="FILE", type=click.Path(), help="A JSON Schema that every input must satisfy.")
@click.option(
    "--file",
    "files",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    help="Pin this file by its content; runs find it in $WFCTL_FILES. May be repeated.",
)
@click.option("--timeout", metavar="DURATION", help="End an execution after this time, such as 10m.")
@click.option("--retries", metavar="N", type=int, help="How often a failed execution is started again.")
@click.option("--retry-delay", metavar="DURATION", help="How long before the first retry; it doubles each time.")
@click.option("--kill-grace", metavar="DURATION", help="How long after TERM before KILL.")
@click.option("--umask", metavar="MODE", help="Three octal digits, such as 022.")
@click.option("--description", metavar="TEXT", help="What it is for.")
@dry_run_option
def add(
    common: Common,
    deployment_id: str,
    arguments: Sequence[str],
    file: str | None,
    files: Sequence[str],
    dry_run: bool,
    **options: Any,
) -> None:
    """Add a deployment: a command, or a pipeline of commands.

    wfctl deployment add report --timeout 10m -- python3 /srv/report.py --all

    A pipeline is a TOML file with [[steps]], given with -f.
    """
    if file is not None and arguments:
        raise click.UsageError("give either a command after -- or a file with -f, not both")
    if file is None and not arguments:
        raise click.UsageError("say what to run: write the command after --, or a file with -f")
    fields = parse.definition_file(file, "deployment", f"deployment {deployment_id}") if file is not None else {}
    if arguments:
        fields["command"] = list(arguments)
    fields |= _options(options)
    with common.open() as store:
        if files:
            fields["files"] = pinned(store, files, fields.get("files"), dry_run=dry_run)
        view = store.create_deployment(deployment_id=deployment_id, dry_run=dry_run, **fields)
    _changed(common, view, dry_run)


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """The options of `add` as fields of a definition; those not given are left out."""
    given = {key: options[key] for key in ("timeout", "retries", "retry_delay", "kill_grace", "umask", "description")}
    given["working_directory"] = parse.absolute(options["cwd"]) if options["cwd"] is not None else None
    given["environment"] = parse.environment(options["environment"]) or None
    given["environment_files"] = [parse.absolute(name) for name in options["environment_files"]] or None
    schema = options["input_schema"]
    given["input_schema"] = parse.json_document(f"@{schema}", "--input-schema") if schema is not None else None
    return {key: found for key, found in given.items() if found is not None}


def pinned(store: Store, files: Sequence[str], held: Mapping[str, str] | None, *, dry_run: bool) -> dict[str, str]:
    """Keep the contents of files in the store, and return them by name with their digests, beside those held (contract 3.8).

    A dry run only reads them.
    """
    from pathlib import Path

    found = dict(held or {})
    for name in files:
        if dry_run:
            size = len(parse.read_file(name))
            streams.talk(f"would pin {escape(Path(name).name)} ({values.size(size)})")
        else:
            found[Path(name).name] = store.pin_file(name)
    return found


def _changed(common: Common, view: DeploymentView, dry_run: bool) -> None:
    def said(paint: Paint) -> str:
        return f"{headline(view, paint)} {paint.dot} {escape(_commands(view))}"

    render.item(common, view, details=said, name=view.id, columns=COLUMNS)
    if dry_run and not common.quiet:
        streams.talk("dry run: nothing was changed")


@command(name="set")
@_deployment_id
@click.argument(
    "assignments", metavar="[KEY=VALUE]...", nargs=-1, help="Fields, dotted below tables: environment.LANG=C.UTF-8."
)
@click.option("--unset", metavar="KEY", multiple=True, help="Clear this field; may be repeated.")
@click.option(
    "--file", "files", metavar="FILE", type=click.Path(), multiple=True, help="Pin this file by its content; may be repeated."
)
@click.option(
    "--expected-revision", metavar="N", type=int, help="Refuse if another revision is current (default: the one read now)."
)
@dry_run_option
def set_fields(
    common: Common, deployment_id: str, assignments: Sequence[str], unset: Sequence[str], files: Sequence[str],
    expected_revision: int | None, dry_run: bool,
) -> None:  # fmt: skip
    """Change fields of a deployment.

    wfctl deployment set report timeout=20m environment.LANG=C.UTF-8 command='["python3","/srv/report.py"]'

    A VALUE is JSON when it parses as JSON, else text. Steps are named by their name: steps.extract.timeout=5m.
    """
    if not (assignments or unset or files):
        raise click.UsageError("say what to change: KEY=VALUE, --unset KEY or --file FILE")
    with common.open() as store:
        current = store.get_deployment(deployment_id=deployment_id)
        changes = parse.Changes(current.definition or {}, _TEXTS)
        for assignment in assignments:
            changes.assign(*parse.split_pair(assignment))
        for key in unset:
            changes.remove(key)
        if files:
            held = changes.fields.get("files") or (current.definition or {}).get("files") or {}
            changes.fields["files"] = pinned(store, files, held, dry_run=dry_run)
        view = store.update_deployment(
            deployment_id=deployment_id,
            expected_revision=(current.revision or 0) if expected_revision is None else expected_revision,
            unset=changes.unset,
            dry_run=dry_run,
            **changes.fields,
        )
    _changed(common, view, dry_run)


@command()
@_deployment_id
@click.option("--input", "given", metavar="NAME=VALUE", multiple=True, help="Check with this input; may be repeated.")
@click.option("--input-json", "document", metavar="TEXT|@FILE|@-", help="Check with this input, as JSON.")
def check(common: Common, deployment_id: str, given: Sequence[str], document: str | None) -> int:
    """Check what a run would need, without a run.

    One line for each: program, directory, input, environment and pinned files. Exit status 1 where one is missing.
    """
    bound = parse.bound_input(given, document)
    with common.open() as store:
        checks = list(store.check_deployment(deployment_id=deployment_id, input=bound))
    if common.is_human:
        from wfctl.cli.style import paint_for

        paint = paint_for(common)
        rows = [[paint.mark(it.ok), escape(it.name), escape(it.detail or "")] for it in checks]
        for row in rows:
            width = max(len(other[1]) for other in rows)
            streams.answer(f"{row[0]} {row[1].ljust(width)}  {row[2]}".rstrip())
    else:
        write_checks(common, checks)
    return 0 if all(it.ok for it in checks) else 1


def write_checks(common: Common, checks: Sequence[CheckView]) -> None:
    """Write what a run needs, a row for each thing, for programs."""
    columns = [
        Column(key="ok", title="", raw=lambda it: it.ok, show=lambda it: "ok" if it.ok else "NO", keep=True),
        Column(key="name", title="CHECK", raw=lambda it: it.name, keep=True),
        Column(key="detail", title="DETAIL", raw=lambda it: it.detail, free=True),
    ]
    render.page(common, columns, checks, schema="wfctl/checks.v1", name=lambda it: it.name)


@command()
@_deployment_id
@dry_run_option
def delete(common: Common, deployment_id: str, dry_run: bool) -> int:
    """Delete a deployment that no schedule uses.

    Its id is retired; runs and their history stay.
    """
    with common.open() as store:
        if not dry_run and not prompt.confirm(common, f"Delete deployment {deployment_id}? Its id cannot be used again."):
            return 1
        view = store.delete_deployment(deployment_id=deployment_id, dry_run=dry_run)
    render.item(
        common,
        view,
        details=lambda _: f"deleted deployment {escape(view.id)}; its id is retired",
        name=view.id,
        columns=COLUMNS,
    )
    if dry_run and not common.quiet:
        streams.talk("dry run: nothing was changed")
    return 0
