"""The words of a command line, and what each of them gives: to show where a wrong value was written, and to write it anew."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

import click

from wfctl.cli import values
from wfctl.value import Value

_SECRET = frozenset({"given", "document", "environment"})  #: parameters whose values may hold what is secret
_SECRET_KEYS = ("input", "environment")  #: of KEY=VALUE
_CRON_FIELDS = 5


class Word(Value, kw_only=False):
    """One value of a command line: which parameter it gives, and where it stands."""

    #: the name of the parameter; `command` for the name of one, `option` for an option that there is not, `extra` for a value
    #: that goes nowhere
    param: str
    index: int  #: which word of the line
    start: int  #: where in that word the value begins: behind `--output=`
    text: str
    shown: str  #: as it is shown: `--timezone Europe/Paris`
    at: int  #: where in `shown` the value begins
    is_secret: bool = False


class Change(Value, kw_only=False):
    """A part of one word that is to be written anew."""

    word: Word
    start: int
    end: int
    new: str

    @property
    def value(self) -> str:
        """The whole value after the change."""
        return self.word.text[: self.start] + self.new + self.word.text[self.end :]


class Line:
    """A command line, without the `wfctl` before it."""

    def __init__(self, words: Sequence[str], command: click.Command, path: list[str]) -> None:
        """`path`: the names of the commands."""
        self.words, self.command, self.path = words, command, path
        self.values: list[Word] = []

    def of(self, *params: str) -> list[Word]:
        """Return the values given to some parameters."""
        return [word for word in self.values if word.param in params]

    def with_text(self, text: str, params: Collection[str] = ()) -> Word | None:
        """Return the value that reads so, of one of the parameters if there is any."""
        found = [word for word in self.values if word.text == text]
        named = [word for word in found if word.param in params]
        return next(iter(named or [word for word in found if word.param not in ("command", "option")]), None)

    def is_open(self) -> bool:
        """Whether the line can be repeated: nothing in it may be a secret, or is too long or too odd to be typed again."""
        fits = sum(map(len, self.words)) <= 400 and all(word.isprintable() for word in self.words)
        return fits and not any(word.is_secret for word in self.values)

    def again(self, changes: Sequence[Change]) -> str:
        """Return the line with some of its parts written anew, as a shell takes it."""
        words = list(self.words)
        for change in sorted(changes, key=lambda each: (each.word.index, each.start), reverse=True):
            word, at = words[change.word.index], change.word.start
            words[change.word.index] = word[: at + change.start] + change.new + word[at + change.end :]
        return values.command(["wfctl", *words])

    def is_cron_unquoted(self) -> bool:
        """Whether more words than the one stand where a cron expression was given."""
        return any(word.param == "extra" for word in self.values) and len(self._cron_words()) > 1

    def cron_in_quotes(self) -> list[str] | None:
        """Return the words of the line with a cron expression that was not quoted as one of them.

        Where the shell put the names of files for a `*`, the fields before and behind them are kept. Return None where it
        cannot be told what was meant.
        """
        words = self._cron_words() if self.is_cron_unquoted() else []
        first = _count_of_fields(words)
        last = _count_of_fields(list(reversed(words[first:])))
        between = words[first : len(words) - last]
        stars = _CRON_FIELDS - first - last
        if not first or (stars > 0) != bool(between) or stars < 0 or any(map(_is_cron_field, between)):
            return None
        expression = " ".join([*words[:first], *["*"] * stars, *words[len(words) - last :]])
        (given,) = self.of("expression")
        whole = self.words[given.index][: given.start] + expression
        return [*self.words[: given.index], whole, *self.words[given.index + len(words) :]]

    def _cron_words(self) -> list[str]:
        """Return the words that a cron expression and what follows it consist of, without those that the command needs."""
        if len(self.of("expression")) != 1:
            return []
        (given,) = self.of("expression")
        following = list(takewhile(lambda word: not word.startswith("-"), self.words[given.index + 1 :]))
        ends = given.index + len(following)
        plain = {each.name for each in self.command.params if isinstance(each, click.Argument)} | {"extra"}
        elsewhere = sum(word.param in plain and not given.index < word.index <= ends for word in self.values)
        needed = sum(each.nargs for each in self.command.params if isinstance(each, click.Argument) and each.nargs > 0)
        return [given.text, *following[: len(following) - max(0, needed - elsewhere)]]


def _is_cron_field(text: str) -> bool:
    return re.fullmatch(r"[0-9*?L][0-9*?L#,/-]*|(?i:[a-z]{3})([,-](?i:[a-z]{3}))*", text) is not None


def _count_of_fields(words: Sequence[str]) -> int:
    """Return how many words at the beginning are fields of a cron expression."""
    return sum(1 for _ in takewhile(_is_cron_field, words))


def read_line(words: Sequence[str]) -> Line:
    """Given the words of a command line, right or wrong, return it with the value of each of its words."""
    from wfctl.cli.app import root

    line = Line(list(words), root, [])
    context = click.Context(root, info_name="wfctl")
    rest = enumerate(words)
    for index, word in rest:
        if word == "--":
            _take_positional(line, [(number, text) for number, text in rest])
            return line
        if word.startswith("-") and len(word) > 1:
            _take_option(line, index, word, rest)
        elif isinstance(line.command, click.Group):
            line.values.append(Word("command", index, 0, word, word, 0))
            found = line.command.get_command(context, word)
            if found is None:
                return line
            line.command = found
            line.path.append(word)
        else:
            line.values.append(Word("", index, 0, word, word, 0))
    _take_positional(line, [])
    return line


def _take_option(line: Line, index: int, word: str, rest: Iterator[tuple[int, str]]) -> None:
    name, equals, _ = word.partition("=") if word.startswith("--") else (word[:2], word[2:], "")
    found = next((each for each in line.command.params if name in (*each.opts, *each.secondary_opts)), None)
    if not isinstance(found, click.Option) or found.name is None:
        line.values.append(Word("option", index, 0, name, word, 0))
        return
    if found.is_flag or found.count:
        return
    secret = found.name in _SECRET
    if equals:
        start = len(name) + (1 if word.startswith("--") else 0)
        line.values.append(Word(found.name, index, start, word[start:], word, start, secret))
        return
    if getattr(found, "_flag_needs_value", False) and (index + 1 >= len(line.words) or line.words[index + 1].startswith("-")):
        return  # an option whose value may be left out, such as --watch
    following = next(rest, None)
    if following is not None:
        line.values.append(Word(found.name, following[0], 0, following[1], f"{name} {following[1]}", len(name) + 1, secret))


def _take_positional(line: Line, behind: list[tuple[int, str]]) -> None:
    """Give the words without an option their parameters, in order, as click does; one of any number takes what is left."""
    plain = [(word.index, word.text) for word in line.values if word.param == ""] + behind
    line.values = [word for word in line.values if word.param]
    params = [each for each in line.command.params if isinstance(each, click.Argument)]
    fixed = sum(each.nargs for each in params if each.nargs > 0)
    for param in params:
        count = param.nargs if param.nargs > 0 else max(0, len(plain) - fixed)
        fixed -= param.nargs if param.nargs > 0 else 0
        taken, plain = plain[:count], plain[count:]
        line.values += [Word(param.name or "", index, 0, text, text, 0, _is_secret(param.name, text)) for index, text in taken]
    line.values += [Word("extra", index, 0, text, text, 0) for index, text in plain]


def _is_secret(param: str | None, text: str) -> bool:
    return param in _SECRET or (param == "assignments" and text.startswith(_SECRET_KEYS))
