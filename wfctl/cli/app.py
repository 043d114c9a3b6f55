"""The command tree, and the one place where a failure becomes a message and an exit status."""

from __future__ import annotations

import sys
from typing import Any

import click

from wfctl.cli import streams
from wfctl.cli.base import Common, Entry, Group

_START, _WHAT, _LOOK, _AHEAD = "Begin", "What runs and when", "What happened", "What will happen"
_SUPERVISOR, _MORE = "The supervisor", "More"


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from wfctl import __version__

        click.echo(f"wfctl {__version__}")
        ctx.exit()


def _options() -> list[click.Parameter]:
    return [click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
                         help="Print the version.")]  # fmt: skip


DEPLOYMENT = {
    "add": Entry("deployment:add", "Add a deployment: a command, or a pipeline of commands."),
    "show": Entry("deployment:show", "Show a deployment and who uses it."),
    "set": Entry("deployment:set_fields", "Change fields of a deployment."),
    "edit": Entry("edit:deployment", "Change a deployment in an editor."),
    "check": Entry("deployment:check", "Check what a run would need, without a run."),
    "delete": Entry("deployment:delete", "Delete a deployment that no schedule uses."),
}
SCHEDULE = {
    "add": Entry("schedule:add", "Add a schedule: when to run a deployment."),
    "show": Entry("schedule:show", "Show a schedule and what comes next."),
    "set": Entry("schedule:set_fields", "Change fields of a schedule."),
    "edit": Entry("edit:schedule", "Change a schedule in an editor."),
    "pause": Entry("pausing:pause", "Stop admitting; active runs go on."),
    "resume": Entry("pausing:resume", "Admit again from now on; nothing is replayed."),
    "delete": Entry("pausing:delete", "Delete a schedule; its history stays."),
    "next": Entry("schedule:next_instants", "Show the coming instants of schedules."),
    "diff": Entry("diff:diff", "Show how two definitions differ, and what becomes of the calendar."),
    "import": Entry("app:schedule_import", "Import schedules from elsewhere."),
    "revisions": Entry("schedule:revisions", "List every saved state of a schedule."),
    "lint": Entry("lint:lint", "Find what may not be meant in schedules."),
}
IMPORT = {
    "crontab": Entry("import_crontab:crontab", "Import a crontab: a deployment and a schedule a line."),
}
OCCURRENCE = {
    "show": Entry("occurrence:show", "Show one occurrence: SCHEDULE@INSTANT."),
    "explain": Entry("explain:explain", "Say what became of any instant, past or to come, and why."),
    "audit": Entry("occurrence:audit", "Check that each instant is accounted for once."),
    "wait": Entry("wait:occurrence_wait", "Wait until an occurrence has ended: SCHEDULE@INSTANT."),
}
RUN = {
    "start": Entry("run:start", "Start a run by hand and follow it."),
    "show": Entry("run:show", "Show a run and its executions."),
    "logs": Entry("logs:logs", "Print what a run wrote."),
    "resume": Entry("run:resume", "Give input to a run that waits for it, and follow it."),
    "cancel": Entry("run:cancel", "End a run in any unfinished state."),
    "wait": Entry("wait:run_wait", "Wait until runs have ended."),
}
CRON = {
    "explain": Entry("cron:explain", "Say in English when an expression fires."),
    "next": Entry("cron:next_instants", "Show the coming instants of an expression."),
}
STORE = {
    "info": Entry("store:info", "Show what the store holds, how large it is, and who owns it."),
    "verify": Entry("store:verify", "Check that all records agree, and say what to do where they do not."),
    "backup": Entry("backup:backup", "Write everything that the store holds into one file."),
    "restore": Entry("backup:restore", "Put a backup in the place of the store, or where there is none."),
    "gc": Entry("gc:gc", "Let old history go."),
}
SYSTEMD = {
    "unit": Entry("systemd:unit", "Print the unit of the supervisor, and change nothing."),
    "install": Entry("systemd:install", "Write the unit of the supervisor, and say what to run next."),
}
RPC = {
    "serve": Entry("rpc:serve", "Serve JSON-RPC 2.0 on stdin and stdout: `ssh HOST wfctl rpc serve`."),
    "call": Entry("rpc:call", "Call one JSON-RPC method and print its result as JSON."),
    "schema": Entry("rpc:schema", "Print what can be asked as an OpenRPC document: methods, parameters, results, errors."),
}
CONFIG = {
    "show": Entry("config:show", "Show every setting and where its value comes from."),
}
COMPLETION = {
    "bash": Entry("completion:bash", "Print the completion script for bash."),
    "zsh": Entry("completion:zsh", "Print the completion script for zsh."),
    "fish": Entry("completion:fish", "Print the completion script for fish."),
}

deployment = Group("deployment", "Work on one deployment: what to run.", DEPLOYMENT)
schedule_import = Group("import", "Import schedules from elsewhere.", IMPORT)
schedule = Group("schedule", "Work on one schedule: when to run it.", SCHEDULE)
occurrence = Group("occurrence", "Look at one occurrence: what became of an instant.", OCCURRENCE)
run_group = Group("run", "Work on one run.", RUN)
cron = Group("cron", "Read cron expressions; no store is needed.", CRON)
store = Group("store", "Look after the store itself.", STORE)
systemd = Group("systemd", "Run the supervisor as a service of systemd.", SYSTEMD)
rpc = Group("rpc", "Talk to a store as programs do: JSON-RPC 2.0.", RPC)
config = Group("config", "Look at the settings.", CONFIG)
completion = Group("completion", "Print a completion script for a shell.", COMPLETION)

ROOT = {
    "demo": Entry("demo:demo", "See it work once, in a throw-away store.", _START),
    "init": Entry("init:init", "Make the store.", _START),
    "deployment": Entry("app:deployment", "Work on one deployment: what to run.", _WHAT),
    "deployments": Entry("deployment:deployments", "List the deployments.", _WHAT),
    "schedule": Entry("app:schedule", "Work on one schedule: when to run it.", _WHAT),
    "schedules": Entry("schedules:schedules", "List the schedules.", _WHAT),
    "cron": Entry("app:cron", "Read cron expressions; no store is needed.", _WHAT),
    "occurrence": Entry("app:occurrence", "Look at one occurrence: what became of an instant.", _LOOK),
    "occurrences": Entry("occurrence:occurrences", "List occurrences, oldest first.", _LOOK),
    "run": Entry("app:run_group", "Work on one run.", _LOOK),
    "runs": Entry("runs:runs", "List the runs, oldest first.", _LOOK),
    "timeline": Entry("timeline:timeline", "Draw what happened, what goes on and what is expected.", _LOOK),
    "simulate": Entry("simulate:simulate", "Play the schedules ahead of time and count what would happen.", _AHEAD),
    "load": Entry("load:load", "Show how many slots the coming days want, hour by hour.", _AHEAD),
    "supervise": Entry("supervise:supervise", "Run what comes due, in the foreground.", _SUPERVISOR),
    "status": Entry("server:status", "Show the running supervisor at a glance.", _SUPERVISOR),
    "drain": Entry("server:drain", "Stop admission and refuse resumes, without ending the supervisor.", _SUPERVISOR),
    "reload": Entry("server:reload", "Read settings and definitions again now.", _SUPERVISOR),
    "systemd": Entry("app:systemd", "Run the supervisor as a service of systemd.", _SUPERVISOR),
    "store": Entry("app:store", "Look after the store itself.", _MORE),
    "rpc": Entry("app:rpc", "Talk to a store as programs do: JSON-RPC 2.0.", _MORE),
    "config": Entry("app:config", "Look at the settings.", _MORE),
    "doctor": Entry("doctor:doctor", "Examine what wfctl needs: machine, place and store.", _MORE),
    "completion": Entry("app:completion", "Print a completion script for a shell.", _MORE),
    "help": Entry("help:help_", "Explain a command, an error code or a topic.", _MORE),
    "version": Entry("version:version", "Print the versions of wfctl and what it stands on.", _MORE),
}
ROOT_HELP = """A cron that can prove what it did.

Deployments say what to run, schedules say when; every calendar instant ends as one durable occurrence that says what
happened and why. `wfctl demo` shows it in a few seconds."""

root = Group("wfctl", ROOT_HELP, ROOT, params=_options())


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit status. Every failure is reported here, on stderr."""
    streams.prepare()
    if streams.is_completion():
        from wfctl.cli.shells import register

        register()
    status = _invoke(sys.argv[1:] if arguments is None else arguments, Common())
    return streams.finish(status)


def _invoke(arguments: list[str], common: Common) -> int:
    try:
        result: Any = root.main(arguments, prog_name="wfctl", standalone_mode=False, obj=common)
    except streams.ClosedPipe:
        return streams.CLOSED_PIPE
    except SystemExit as end:  # click's answer to completion, and, with status 1, to a pipe that closed under its help
        if streams.is_completion() or end.code != 1:
            return int(end.code or 0)
        return streams.CLOSED_PIPE
    except KeyboardInterrupt:
        return streams.INTERRUPTED
    except Exception as error:
        from wfctl.cli.failure import report

        return report(error, common, arguments)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0
