"""A wfctl of the next keeper protocol: the same code under another number, as a later release will be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.processes import Supervisor, clean_environment
from wfctl.keeper.protocol import PROTOCOL as OURS

PROTOCOL = OURS + 1
_NUMBER = """
import wfctl.keeper.protocol as protocol
protocol.PROTOCOL = {number}
protocol.SOCKET_NAME = protocol.socket_name({number})
protocol.LOCK_NAME = "keeper.{number}.lock"
"""
_KEEPER = """
import sys
sys.path.insert(0, {project!r})
{number}
from wfctl.keeper.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
_COMMAND = """
import sys
{number}
import wfctl.keeper.client as client
from pathlib import Path
client._MAIN = Path({keeper!r})
from wfctl.__main__ import main
sys.exit(main())
"""


class NewerSupervisor(Supervisor):
    """A `wfctl supervise` whose keeper speaks the next protocol."""

    def __init__(self, store: Path, shims: Path, *arguments: str) -> None:
        project = str(Path(__file__).parents[2])
        number = _NUMBER.format(number=PROTOCOL)
        keeper = shims / "keeper" / "__main__.py"
        keeper.parent.mkdir(parents=True, exist_ok=True)
        keeper.write_text(_KEEPER.format(project=project, number=number))
        command = shims / "newer.py"
        command.write_text(_COMMAND.format(number=number, keeper=str(keeper)))
        self.log = store.parent / "newer.log"
        self._begin = 0
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(command), "--store", str(store), "supervise", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(),
                cwd=os.sep,
            )
