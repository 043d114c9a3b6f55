"""Importing a crontab: a deployment and a schedule for each line that can be kept (contract 11.8).

Nothing is changed unless every kept line is valid. Importing again adds only what is not there yet, so that an import that was
cut short is finished by repeating it.
"""

from __future__ import annotations

import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wfctl.core.crontab import Crontab, LeftOut, Line, id_for, read_crontab
from wfctl.core.definition import deployment_from_plain
from wfctl.core.model import Trigger
from wfctl.core.preview import warnings_of
from wfctl.core.trigger import check_fires, read_trigger, trigger_to_plain
from wfctl.errors import InvalidDefinition, Problem
from wfctl.operations.store import Store
from wfctl.operations.views import ImportedView, ImportView, LeftOutView
from wfctl.store.ledger import definitions

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose crontab it becomes: the user that the store's runs have."""

    name: str
    home: str


@dataclass(frozen=True, slots=True)
class _Kept:
    line: Line
    trigger: Trigger
    deployment: Plain
    warnings: tuple[Mapping[str, str], ...]


def import_crontab(
    store: Store, text: str, *, source: str, local_zone: str, user_column: bool = False, timezone: str | None = None,
    dry_run: bool = False,
) -> ImportView:  # fmt: skip
    """Given a crontab's text, add a deployment and a schedule a line, and return what became of each line.

    `timezone` is the zone of lines without CRON_TZ, `local_zone` the machine's, which cron reads them in; `source` names the
    file. Raise InvalidDefinition, with a problem a line, where a line that would be kept is not valid; nothing is changed then.
    """
    owner = _owner(store)
    crontab = read_crontab(text, user_column=user_column)
    kept, left_out = _checked(store, crontab, owner, source, timezone or local_zone)
    names = _Names(store)
    present = _present(store)
    rows: list[ImportedView] = []
    for each in kept:
        plain = trigger_to_plain(each.trigger)
        there = present.get((_key(each.deployment), _key(plain)))
        name = there or names.take(id_for(each.line.command))
        if there is None:
            present[(_key(each.deployment), _key(plain))] = name
            if not dry_run:
                _add(store, name, each, plain, source)
        rows.append(
            ImportedView(
                line=each.line.number,
                text=each.line.text,
                schedule_id=name,
                deployment_id=name,
                trigger=plain,
                command=each.line.command,
                is_new=there is None,
                warnings=each.warnings,
            )
        )
    return ImportView(
        source=source,
        lines=tuple(rows),
        left_out=tuple(LeftOutView(line=it.number, text=it.text, why=it.why, instead=it.instead) for it in left_out),
        is_dry_run=dry_run,
    )


def _owner(store: Store) -> _Owner:
    number = store.root.stat().st_uid
    try:
        entry = pwd.getpwuid(number)
    except KeyError:
        return _Owner(str(number), "/")
    return _Owner(entry.pw_name, entry.pw_dir)


# Checking ---------------------------------------------------------------------------------------------------------------


def _checked(store: Store, crontab: Crontab, owner: _Owner, source: str, zone: str) -> tuple[list[_Kept], list[LeftOut]]:
    kept, left_out = [], list(crontab.left_out)
    problems = [Problem("", message, number) for number, message in crontab.problems]
    for line in crontab.lines:
        if line.user is not None and line.user != owner.name:
            why = f"it runs as {line.user}, and everything in this store runs as {owner.name}"
            instead = f"import it into a store of {line.user}'s, or see `wfctl help other-users`"
            left_out.append(LeftOut(line.number, line.text, why, instead))
            continue
        found = _read(store, line, owner, zone)
        if isinstance(found, _Kept):
            kept.append(found)
        else:
            problems += found
    if problems:
        problems.sort(key=lambda problem: problem.line or 0)
        raise InvalidDefinition.of(f"{source}: nothing was imported", problems)
    return kept, sorted(left_out, key=lambda it: it.number)


def _read(store: Store, line: Line, owner: _Owner, zone: str) -> _Kept | list[Problem]:
    trigger, problems = read_trigger({"kind": "cron", "expression": line.expression, "timezone": line.timezone or zone})
    if trigger is None or problems:
        return [Problem(problem.path.removeprefix("trigger."), problem.message, line.number) for problem in problems]
    now = store.context.now()
    try:
        check_fires(trigger, now)
        plain = _deployment(line, owner)
        deployment_from_plain(plain)
    except InvalidDefinition as error:
        return [Problem(problem.path.removeprefix("trigger."), problem.message, line.number) for problem in error.problems]
    warnings = tuple({"code": each.code, "message": each.message} for each in warnings_of(trigger, now))
    return _Kept(line, trigger, plain, warnings)


def _deployment(line: Line, owner: _Owner) -> Plain:
    """A line as cron runs it: by a shell, in the home directory, with the variables above it."""
    home = line.environment.get("HOME", owner.home)
    plain: Plain = {"command": [line.shell, "-c", line.command]}
    if home.startswith("/"):
        plain["working_directory"] = home
    if line.environment:
        plain["environment"] = dict(line.environment)
    return plain


# What is there ----------------------------------------------------------------------------------------------------------


def _key(found: Any) -> str:
    if isinstance(found, Mapping):
        return repr(sorted((name, _key(item)) for name, item in found.items()))
    return repr(list(found) if isinstance(found, (list, tuple)) else found)


def _present(store: Store) -> dict[tuple[str, str], str]:
    """Return the schedules that run one command as cron would, by what they run and when."""
    commands = {
        view.id: _key(
            {
                name: view.definition[name]
                for name in ("command", "working_directory", "environment")
                if view.definition.get(name)
            }
        )
        for view in store.list_deployments().items
        if view.definition and view.definition.get("command")
    }
    return {
        (commands[view.definition["deployment"]], _key(view.definition["trigger"])): view.id
        for view in store.list_schedules().items
        if view.definition and view.definition["deployment"] in commands
    }


class _Names:
    """Ids that neither a schedule nor a deployment ever had (2.8)."""

    def __init__(self, store: Store) -> None:
        with store.context.ledger.reading() as connection:
            self._used = {row.id for kind in ("schedule", "deployment") for row in definitions.list_all(connection, kind)}

    def take(self, wanted: str) -> str:
        name = next(name for name in _numbered(wanted) if name not in self._used)
        self._used.add(name)
        return name


def _numbered(wanted: str) -> Iterator[str]:
    yield wanted
    number = 2
    while True:
        yield f"{wanted}-{number}"
        number += 1


def _add(store: Store, name: str, each: _Kept, trigger: Plain, source: str) -> None:
    origin = f"from {source}, line {each.line.number}"
    notes = f"{each.line.remark} ({origin})" if each.line.remark else origin
    store.create_deployment(deployment_id=name, description=origin, **each.deployment)
    store.create_schedule(schedule_id=name, deployment_id=name, trigger=trigger, notes=notes)
