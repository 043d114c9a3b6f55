"""Frozen values without generated code, for what many modules define and few commands use: rows of the ledger, and views.

`dataclass` writes and compiles half a dozen methods for each class, which takes about half a millisecond; a command that lists
something loads a hundred classes to make values of five. A `Value` is declared in the same way, costs nothing to define, and
less to make. `dataclasses.fields`, `replace` and `is_dataclass` take it as one of theirs.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, dataclass_transform


def _refuse(message: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(message)


class _Frozen:
    """What `dataclasses` wants to know of a base."""

    frozen = True


class _Fields:
    """The fields of a class as `dataclasses` has them, worked out when they are asked for."""

    def __init__(self) -> None:
        self._known: dict[type[Value], dict[str, Any]] = {}

    def __get__(self, value: object, owner: type[Value]) -> dict[str, Any]:
        found = self._known.get(owner)
        if found is None:
            from dataclasses import make_dataclass

            twin: Any = make_dataclass(owner.__name__, [(name, Any) for name in owner._names])
            found = twin.__dataclass_fields__
            for name, default in owner._defaults.items():
                found[name].default = default
            self._known[owner] = found
        return found


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Value:
    """Base of values whose fields are the annotations of their class: never changed, and equal by what they hold.

    They are given by name, with `kw_only=False` also in their order. A default must be a value that never changes itself.
    """

    __dataclass_fields__: ClassVar[Any] = _Fields()
    __dataclass_params__: ClassVar[Any] = _Frozen
    _names: ClassVar[tuple[str, ...]] = ()  #: of the fields, in the order of declaration
    _keys: ClassVar[frozenset[str]] = frozenset()
    _defaults: ClassVar[dict[str, Any]] = {}
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        super().__init_subclass__()
        own = [name for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")]  # they are kept as text
        cls._names = tuple(dict.fromkeys((*cls._names, *own)))
        cls._keys = frozenset(cls._names)
        cls._defaults = {**cls._defaults, **{name: vars(cls)[name] for name in own if name in vars(cls)}}
        cls.__match_args__ = () if kw_only else cls._names  # type: ignore[misc]

    def __init__(self, *ordered: Any, **values: Any) -> None:
        if ordered or values.keys() != self._keys:
            values = self._completed(ordered, values)
        object.__setattr__(self, "__dict__", values)

    @classmethod
    def _completed(cls, ordered: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
        """Return what was given with the defaults. Raise TypeError where it is too much or too little."""
        taken = cls.__match_args__[: len(ordered)]
        made = {**cls._defaults, **dict(zip(taken, ordered, strict=False)), **values}
        if made.keys() == cls._keys and len(taken) == len(ordered) and not any(name in values for name in taken):
            return made
        wrong = ["takes fewer values in order"] if len(ordered) > len(taken) else []
        wrong += [f"has no {name}" for name in values if name not in cls._keys]
        wrong += [f"was given {name} twice" for name in values if name in taken]
        wrong += [f"lacks {name}" for name in cls._names if name not in made]
        raise TypeError(f"{cls.__name__} {', '.join(wrong)}")

    @classmethod
    def of_all(cls, values: dict[str, Any]) -> Self:
        """Return a value of all its fields by name, which nobody else changes; they are not checked: where many are made."""
        value = cls.__new__(cls)
        object.__setattr__(value, "__dict__", values)
        return value

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names of the fields, in the order of declaration."""
        return cls._names

    def __setattr__(self, name: str, value: object) -> NoReturn:
        _refuse(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        _refuse(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(map(self.__dict__.__getitem__, self._names)))

    def __repr__(self) -> str:
        held = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names)
        return f"{type(self).__qualname__}({held})"
