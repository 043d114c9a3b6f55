"""`wfctl schedule edit` and `wfctl deployment edit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from wfctl.cli import difference, editing, preview, render, streams
from wfctl.cli.base import Common, StoredId, command, dry_run_option
from wfctl.cli.editing import EditLoop, Given, Subject
from wfctl.errors import RevisionConflict

if TYPE_CHECKING:
    from wfctl.operations.mending import BrokenFile
    from wfctl.operations.store import Store

SCHEDULE_HELP = {
    "deployment": "the deployment to run",
    "notes": "free text, such as who to ask",
    "overlap": "skip | queue | parallel: when an instant finds the last run unfinished",
    "max_active_runs": "with parallel: how many at once",
    "misfire": "skip | latest: when an instant was missed",
    "lateness": "how late still counts as on time, such as 60s",
    "max_run": "auto | none | a duration: when a run is ended",
    "max_steps": "how many executions a run may have",
    "notify": '{ command = ["..."], after = 3 }: told when the health of this schedule changes',
    "[trigger]": "kind = cron: expression, timezone | interval: every | oneshot: at, with an offset",
    "[input]": "name = value, handed to every run",
}
DEPLOYMENT_HELP = {
    "description": "what it is for",
    "command": "the program and its arguments; or [[steps]], each with name and command",
    "retries": "how often a failed execution is started again; also for each step",
    "retry_delay": "how long before the first retry; it doubles; also for each step",
    "timeout": "when an execution is ended, such as 10m; also for each step",
    "working_directory": "an absolute path; the run's own directory where it is absent",
    "environment": '{ LANG = "C.UTF-8" }',
    "environment_files": "files of NAME=TEXT lines, read at every launch",
    "kill_grace": "how long after TERM before KILL",
    "umask": "three octal digits, such as 022",
    "executor": "local, this machine; or slurm, the cluster of [executors.slurm] in the settings",
    "[slurm]": "partition, account, cpus, memory, time_limit, nodes, options: what its runs ask of the cluster",
    "[files]": '"name" = "sha256:...": pinned with `wfctl deployment set ID --file FILE`',
    "[input_schema]": "a JSON Schema that every input must satisfy",
}
_editor = click.option("--editor", metavar="COMMAND", help="The editor (else WFCTL_EDITOR, VISUAL, EDITOR).")
_no_preview = click.option("--no-preview", is_flag=True, help="Do not show what the change changes.")


@command(name="edit")
@click.argument("schedule_id", metavar="ID", type=StoredId("schedule"), help="The id of the schedule.")
@_editor
@_no_preview
@dry_run_option
def schedule(common: Common, schedule_id: str, editor: str | None, no_preview: bool, dry_run: bool) -> int:
    """Change a schedule in an editor.

    What is wrong is shown on top and the editor opened again; an unchanged or emptied text cancels. Where somebody saved
    meanwhile nothing is changed, and your text is kept beside theirs. The exit status is 1 where nothing was saved.

    Of a blocked schedule the file is opened as it stands, with what is wrong on top; one that is gone is put back.
    """
    from wfctl.cli.schedule import replayed, said_of_change
    from wfctl.operations import mending
    from wfctl.operations.schedules import FIELDS

    with common.open() as store:
        current = store.get_schedule(schedule_id=schedule_id)
        if (broken := mending.broken_file(store.context, "schedule", schedule_id)) is not None:
            if not _mend(common, store, "schedule", schedule_id, broken, SCHEDULE_HELP, editor, dry_run):
                return 1
            mended = store.get_schedule(schedule_id=schedule_id)
            said_of_change(common, current, mended)
            render.item(common, mended, details=lambda paint: preview.card(mended, paint, common.now()), name=mended.id)
            preview.say(common, preview.warning_lines(mended, common.now()))
            return 0

        def save(fields: dict[str, Any], unset: list[str], is_dry: bool) -> Any:
            asked.update(fields)
            if "deployment" in fields:
                fields["deployment_id"] = fields.pop("deployment")
            return store.update_schedule(
                schedule_id=schedule_id, expected_revision=current.revision or 0, unset=unset, dry_run=is_dry, **fields
            )

        asked: dict[str, Any] = {}
        edit = _Edit(common, store, "schedule", schedule_id, current, FIELDS, SCHEDULE_HELP, editor, save)
        view = edit.run(dry_run)
        if view is None:
            return 1
        if common.is_human and not no_preview:
            said_of_change(common, current, view, replayed(store, current, asked, common.now()))
    render.item(
        common,
        view,
        details=lambda paint: preview.card(view, paint, common.now()),
        name=view.id,
    )
    preview.say(common, preview.warning_lines(view, common.now()))
    _say_dry(common, dry_run)
    return 0


@command(name="edit")
@click.argument("deployment_id", metavar="ID", type=StoredId("deployment"), help="The id of the deployment.")
@_editor
@_no_preview
@dry_run_option
def deployment(common: Common, deployment_id: str, editor: str | None, no_preview: bool, dry_run: bool) -> int:
    """Change a deployment in an editor.

    What is wrong is shown on top and the editor opened again; an unchanged or emptied text cancels. Where somebody saved
    meanwhile nothing is changed, and your text is kept beside theirs. The exit status is 1 where nothing was saved.
    """
    from wfctl.cli.deployment import headline
    from wfctl.operations import mending
    from wfctl.operations.deployments import FIELDS

    with common.open() as store:
        current = store.get_deployment(deployment_id=deployment_id)
        if (broken := mending.broken_file(store.context, "deployment", deployment_id)) is not None:
            if not _mend(common, store, "deployment", deployment_id, broken, DEPLOYMENT_HELP, editor, dry_run):
                return 1
            mended = store.get_deployment(deployment_id=deployment_id)
            render.item(common, mended, details=lambda paint: headline(mended, paint), name=mended.id)
            return 0

        def save(fields: dict[str, Any], unset: list[str], is_dry: bool) -> Any:
            replaced = {"steps"} if "command" in fields else {"command", "retries", "retry_delay", "timeout"}
            kept = [name for name in unset if name not in replaced or not {"steps", "command"} & set(fields)]
            return store.update_deployment(
                deployment_id=deployment_id, expected_revision=current.revision or 0, unset=kept, dry_run=is_dry, **fields
            )

        view = _Edit(common, store, "deployment", deployment_id, current, FIELDS, DEPLOYMENT_HELP, editor, save).run(dry_run)
    if view is None:
        return 1
    if common.is_human and not no_preview and not common.quiet:
        streams.talk(f"revision {current.revision} -> {view.revision}")
        for line in difference.field_lines(current.definition or {}, view.definition or {}):
            streams.talk(f"  {line}")
    render.item(common, view, details=lambda paint: headline(view, paint), name=view.id)
    _say_dry(common, dry_run)
    return 0


class _Edit:
    """One edit of one definition: the loop, the change it comes to, and what is kept where somebody was faster."""

    def __init__(
        self,
        common: Common,
        store: Store,
        kind: str,
        name: str,
        current: Any,
        fields: tuple[str, ...],
        help: Mapping[str, str],
        editor: str | None,
        save: Callable[[dict[str, Any], list[str], bool], Any],
    ) -> None:
        self._common = common
        self._store = store
        self._kind, self._name, self._fields, self._save = kind, name, fields, save
        self._before = _set_fields(current.definition or {})
        self._revision: int = current.revision or 0
        self._loop = EditLoop(
            common=common,
            subject=Subject(kind, name, _as_text(self._before)),
            help=help,
            editor=editing.editor_of(common.environ, editor),
            check=self._check,
        )

    def run(self, dry_run: bool) -> Any:
        """Edit and save; return the new view, or None when nothing is to be saved. Raise what the operation raises."""
        try:
            edited = self._loop.run()
        except Given as given:
            editing.say_given(self._common, given)
            return None
        try:
            return self._apply(edited.plain, is_dry=dry_run)
        except RevisionConflict as error:
            raise self._loop.keep(self._three_way(edited.text, error), error) from error

    def _check(self, plain: Mapping[str, Any], text: str) -> None:
        """Raise for what is wrong with a text, and with what it would make of the definition in this store."""
        from wfctl.store.definitions import deployment_from_toml, schedule_from_toml

        read = schedule_from_toml if self._kind == "schedule" else deployment_from_toml
        read(text.encode("utf-8", "surrogateescape"), f"{self._kind} {self._name}")
        try:
            self._apply(plain, is_dry=True)
        except RevisionConflict as error:
            raise type(error)(error.message, {**error.data, "text": self._three_way(text, error)}) from error

    def _apply(self, plain: Mapping[str, Any], *, is_dry: bool) -> Any:
        fields, unset = editing.patch_of(self._fields, self._before, plain)
        return self._save(fields, unset, is_dry)

    def _three_way(self, yours: str, error: RevisionConflict) -> str:
        get = self._store.get_schedule if self._kind == "schedule" else self._store.get_deployment
        theirs = get(**{f"{self._kind}_id": self._name})
        text = _as_text(_set_fields(theirs.definition or {}))
        return editing.three_way(_as_text(self._before), text, yours, (self._revision, theirs.revision or 0))


def _mend(
    common: Common, store: Store, kind: Literal["schedule", "deployment"], name: str, broken: BrokenFile,
    help: Mapping[str, str], editor: str | None, dry_run: bool,
) -> bool:  # fmt: skip
    """Edit a file that blocks its definition, errors on top, until it can be taken up; return whether it was."""
    from wfctl.operations import mending

    def check(plain: Mapping[str, Any], text: str) -> None:
        mending.mend(store.context, kind, name, broken, text.encode("utf-8", "surrogateescape"), dry_run=True)

    subject = Subject(kind, name, broken.text, broken.error, broken.is_gone)
    loop = EditLoop(common=common, subject=subject, help=help, editor=editing.editor_of(common.environ, editor), check=check)
    try:
        edited = loop.run()
    except Given as given:
        editing.say_given(common, given)
        return False
    try:
        content = edited.text.encode("utf-8", "surrogateescape")
        mending.mend(store.context, kind, name, broken, content, dry_run=dry_run)
    except RevisionConflict as error:
        raise loop.keep(edited.text, error) from error
    _say_dry(common, dry_run)
    return True


def _set_fields(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in definition.items() if value is not None}


def _as_text(definition: Mapping[str, Any]) -> str:
    from wfctl.store.definitions import to_toml

    return to_toml(definition).decode()


def _say_dry(common: Common, dry_run: bool) -> None:
    if dry_run and not common.quiet:
        streams.talk("dry run: nothing was changed")
