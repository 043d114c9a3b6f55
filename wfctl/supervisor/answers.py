"""Where each request is answered, so that none delays an admission (contract 9.2).

What only reads is answered beside the loop. What changes something is done in it, one after another. A change whose definition
must be checked is tried out beside the loop first: a large one takes long to check, and what was once found valid is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wfctl.operations.context import Tried
from wfctl.operations.store import Store
from wfctl.rpc.methods import BY_NAME, check_params, dispatch
from wfctl.supervisor.asides import Asides

#: Read, but answered by the desk itself: they are about the supervisor, too.
OWN = frozenset({"server_status", "watch", "audit_schedule", "explain_occurrence"})
TRIED = frozenset({"create_schedule", "update_schedule", "create_deployment", "update_deployment"})


class Answers:
    """Answers the requests of a server by the operations of `desk`, whose store is that of the loop."""

    def __init__(self, desk: Store, asides: Asides) -> None:
        self._desk = desk
        self._asides = asides

    def __call__(self, method: str, params: Mapping[str, Any]) -> Any:
        """Return the result of a request, or where it will be. Raise what the operation raises."""
        known = BY_NAME.get(method)
        operation = getattr(self._desk, known.operation, None) if known is not None else None
        is_read = known is not None and known.kind == "read" and known.operation not in OWN
        if known is None or operation is None or not (is_read or known.operation in TRIED):
            return dispatch(self._desk, method, params)
        check_params(operation, known, params)
        if is_read:
            return self._asides.ask(lambda store: dispatch(store, method, params))
        return self._asides.ask(
            lambda store: try_out(store, known.operation, params), then=lambda _: dispatch(self._desk, method, params)
        )


def try_out(store: Store, operation: str, params: Mapping[str, Any]) -> None:
    """Find out whether a change of a definition is valid; nothing is written. Raise what the operation raises."""
    store.context.is_trial = True
    try:
        getattr(store, operation)(**params)
    except Tried:
        return
    finally:
        store.context.is_trial = False
