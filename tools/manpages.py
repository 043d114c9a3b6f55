"""Manual pages of commands, from what the commands say of themselves and from man/examples.toml.

`click`'s help is the source of NAME, SYNOPSIS, DESCRIPTION and OPTIONS; the file of examples adds what no command knows of
itself. A paragraph of a help text that is a command line is its first example.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from wfctl import __version__
from wfctl.cli.app import root
from wfctl.cli.base import COMMON_OPTIONS, Group
from wfctl.cli.help_codes import DIAGNOSTICS, REASONS, STATES, STATUSES, contradictions
from wfctl.cli.help_texts import ADVICE, TOPICS, WARNINGS
from wfctl.errors import BY_CODE

MAN = Path(__file__).parents[1] / "man"
BY_HAND = {"supervise"}  #: commands whose page is written by hand, in section 8
NOTICE = '.\\" Written by `python -m tools.generate`; change the help of the command, or man/examples.toml.'
_WIDTH = 70  #: of a line of an example
_MARKS = ('.\\" Commands, by `python -m tools.generate`:', '.\\" So far.')


@dataclass(frozen=True)
class Page:
    """What the page of one command is made of."""

    words: str  #: such as `schedule add`
    command: click.Command
    extra: Mapping[str, Any]  #: its table in man/examples.toml

    @property
    def name(self) -> str:
        """The name of the page."""
        return f"wfctl-{self.words.replace(' ', '-')}"

    @property
    def summary(self) -> str:
        """The first line of the help."""
        return (self.command.help or "").strip().splitlines()[0]

    def paragraphs(self) -> list[str]:
        """Return the rest of the help without its command lines."""
        return [each for each in _paragraphs(self.command) if not _is_line(each)]

    def examples(self) -> list[dict[str, Any]]:
        """Return the examples in the order of the page, each with `line` and perhaps `text`, `status` and `how`."""
        own = [{"line": _broken(each), **self.extra.get("own", {})} for each in _paragraphs(self.command) if _is_line(each)]
        return [*own, *({**each, "line": each["line"].strip()} for each in self.extra.get("examples", []))]


def pages() -> list[Page]:
    """Return the pages of all commands that are no group, in the order of the tree; those written by hand included."""
    extras = tomllib.loads((MAN / "examples.toml").read_text("utf-8"))
    return [Page(words, command, extras.get(words, {})) for words, command in _commands(root)]


def _commands(group: Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.entries:
        found = group.get_command(click.Context(group), name)
        assert found is not None
        words = f"{above} {name}".strip()
        if isinstance(found, Group):
            yield from _commands(found, words)
        else:
            yield words, found


def _paragraphs(command: click.Command) -> list[str]:
    _, _, rest = (command.help or "").strip().partition("\n")
    return [" ".join(each.split()) for each in rest.split("\n\n") if each.strip()]


def _is_line(paragraph: str) -> bool:
    """Whether a paragraph of a help text is a command line."""
    return paragraph.startswith("wfctl ") or " | wfctl " in paragraph


_TOKEN = r"""(?:[^\s'"]|'[^']*'|"[^"]*")+"""


def _broken(line: str) -> str:
    """Break a long command line between its parts, so that a page of 80 columns shows it as it is."""
    rows = [""]
    for part in re.findall(rf" ?--?[a-z]\S*(?: (?!-){_TOKEN})?| ?{_TOKEN}", line):
        if rows[-1] and len(rows[-1] + part) > _WIDTH:
            rows.append(f"    {part.lstrip()}")
        else:
            rows[-1] += part
    return " \\\n".join(rows)


# roff -------------------------------------------------------------------------------------------------------------------

_GLYPHS = {"\\": r"\e", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq", "-": r"\-"}


def literal(text: str) -> str:
    """Return text to be read, and copied, letter by letter."""
    escaped = "".join(_GLYPHS.get(letter, letter) for letter in text)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def _prose(text: str) -> str:
    """Return text for reading, a sentence a line; what stands in backticks is quoted."""
    parts = re.split(r"`([^`]+)`", " ".join(text.split()))
    written = "".join(rf"\(oq{literal(part)}\(cq" if number % 2 else _words(part) for number, part in enumerate(parts))
    sentences = re.sub(r"(?<=[.?])(?<!\be\.g\.) (?=[A-Z\\])", "\n", written)
    return "\n".join(rf"\&{line}" if line[:1] in (".", "'") else line for line in sentences.splitlines())


def _words(text: str) -> str:
    """Escape prose: options and quotes as they are typed, hyphens within words as they are."""
    return re.sub(r"\S+", lambda found: literal(found[0]) if _is_typed(found[0]) else found[0].replace("\\", r"\e"), text)


def _is_typed(word: str) -> bool:
    return word.lstrip("('\"").startswith("-") or any(letter in word for letter in "'\"^~=`@/[")


def _metavar(text: str) -> str:
    """Return a metavar with its words as arguments and everything else as it is typed."""
    return re.sub(r"[A-Z][A-Z=@]*", r"\\fI\g<0>\\fP", literal(text).replace("...", r"\&..."))


# Sections ---------------------------------------------------------------------------------------------------------------


def page_text(page: Page, statuses: Mapping[int, str], date: str, siblings: list[str]) -> str:
    """Return the page of one command. `statuses` are the meanings of exit statuses, as wfctl(1) has them."""
    lines = [NOTICE, f".Dd {date}", f".Dt {page.name.upper()} 1", f".Os wfctl {__version__}"]
    does = page.summary[:1].lower() + page.summary[1:].rstrip(".").replace("`", "")
    lines += [".Sh NAME", f".Nm {page.name}", f".Nd {_words(does)}"]
    lines += [".Sh SYNOPSIS", f'.Nm "wfctl {page.words}"', *_synopsis(page.command)]
    lines += [".Sh DESCRIPTION", *_description(page)]
    lines += [".Sh OPTIONS", *_options(page)]
    lines += _tagged("ENVIRONMENT", _environment(page), "Ev")
    lines += _tagged("FILES", page.extra.get("files", {}), "Pa")
    lines += [".Sh EXIT STATUS", *_exit_status(page, statuses)]
    lines += [".Sh EXAMPLES", *_examples(page)]
    lines += [".Sh SEE ALSO", *_see_also(page, siblings)]
    return "\n".join(lines) + "\n"


def _own(command: click.Command) -> list[click.Parameter]:
    return [param for param in command.params if param not in COMMON_OPTIONS]


def _synopsis(command: click.Command) -> Iterator[str]:
    for param in _own(command):
        if isinstance(param, click.Option) and not param.hidden:
            shown = min(param.opts, key=lambda name: (name.startswith("--"), len(name)))
            taken = "" if param.is_flag else f" Ar {literal(param.make_metavar(click.Context(command)))}"
            again = " ..." if param.multiple else ""
            yield f".Op Fl {literal(shown[1:])}{taken}{again}"
    yield ".Op Ar common options"
    for param in _own(command):
        if isinstance(param, click.Argument):
            yield _metavar(param.metavar or param.human_readable_name)


def _description(page: Page) -> Iterator[str]:
    yield _prose(page.summary)
    for paragraph in page.paragraphs():
        yield ".Pp"
        yield _prose(paragraph)
    for paragraph in page.extra.get("more", []):
        yield ".Pp"
        yield _prose(paragraph)


def _options(page: Page) -> Iterator[str]:
    own = [param for param in _own(page.command) if not getattr(param, "hidden", False)]
    if own:
        yield ".Bl -tag -width Ds"
    for param in own:
        if isinstance(param, click.Option):
            names = " , ".join(f"Fl {literal(name[1:])}" for name in param.opts)
            taken = "" if param.is_flag else f" Ar {literal(param.make_metavar(click.Context(page.command)))}"
            yield f".It {names}{taken}"
        else:
            yield f".It Xo\n{_metavar(_argument(param))}\n.Xc"
        yield _prose(param.help or "")
        yield from map(_prose, _bounds(param))
    if own:
        yield ".El\n.Pp"
    yield "The common options are those of\n.Xr wfctl 1 ."


def _argument(param: click.Parameter) -> str:
    """Return the metavar of an argument without the brackets that say that it may be absent."""
    return re.sub(r"^\[(.*)\](\.\.\.)?$", r"\1\2", param.metavar or param.human_readable_name)


def _bounds(param: click.Parameter) -> Iterator[str]:
    """Say what the help of a parameter does not: its range and its default."""
    said = getattr(param, "help", None) or ""
    if isinstance(param.type, click.IntRange | click.FloatRange):
        lowest, highest = param.type.min, param.type.max
        if highest is not None:
            yield f"From {lowest} to {highest}."
        elif lowest is not None:
            yield f"At least {lowest}."
    given = isinstance(param.default, str | int | float) and not isinstance(param.default, bool)
    if given and isinstance(param, click.Option) and not param.count and f"{param.default}" not in said:
        yield f"Default: {param.default}."


def _needs_store(page: Page) -> bool:
    return bool(page.extra.get("store", True))


def _environment(page: Page) -> dict[str, str]:
    named = {"WFCTL_STORE": "The store, where `--store` is absent."} if _needs_store(page) else {}
    return {**named, **page.extra.get("environment", {})}


def _tagged(title: str, items: Mapping[str, str], macro: str) -> Iterator[str]:
    if items:
        yield f".Sh {title}\n.Bl -tag -width Ds"
        for name, text in items.items():
            yield f".It {macro} {literal(name)}\n{_prose(text)}"
        yield ".El"


def exit_statuses(page: Page) -> list[int]:
    """Return the exit statuses that the page of a command lists."""
    standing = [0, 2, *([66, 77] if _needs_store(page) else [])]
    return sorted({*standing, *map(int, page.extra.get("exit", {}))})


def _exit_status(page: Page, statuses: Mapping[int, str]) -> Iterator[str]:
    yield ".Bl -tag -width 130"
    for status in exit_statuses(page):
        yield f".It {status}\n{_prose(page.extra.get('exit', {}).get(str(status)) or '') or statuses[status]}"
    yield ".El\n.Pp\nWhat else any command may end with is in\n.Xr wfctl 1 ."


def _examples(page: Page) -> Iterator[str]:
    for number, example in enumerate(page.examples()):
        if number:
            yield ".Pp"
        if text := example.get("text"):
            yield _prose(text.rstrip(".:") + ":")
        yield ".Bd -literal -offset 2n"
        yield from map(literal, example["line"].splitlines())
        yield ".Ed"
        if status := example.get("status"):
            yield f"The exit status is {status}."


def _see_also(page: Page, siblings: list[str]) -> Iterator[str]:
    wanted = {("1", "wfctl"), *(("1", name) for name in siblings if name != page.name)}
    for reference in page.extra.get("see", []):
        name, _, section = reference.rstrip(")").partition("(")
        wanted.add((section, name))
    rows = [f".Xr {literal(name)} {section}" for section, name in sorted(wanted)]
    return iter([*(f"{row} ," for row in rows[:-1]), rows[-1]])


# Files ------------------------------------------------------------------------------------------------------------------


def files() -> dict[str, str]:
    """Return the name and text of every file below man/ that is generated, or generated in part."""
    overview = (MAN / "wfctl.1").read_text("utf-8")
    date = re.search(r"^\.Dd (.*)$", overview, re.MULTILINE)
    assert date, "man/wfctl.1 has no date"
    statuses = known_statuses(overview)
    made: dict[str, str] = {}
    every = pages()
    for page in every:
        if page.words not in BY_HAND:
            made[f"{page.name}.1"] = page_text(page, statuses, date[1], _siblings(page, every))
    made["wfctl-codes.7"] = _codes(date[1])
    made["wfctl-topics.7"] = _topics(date[1])
    for path in MAN.glob("*.[1-8]"):
        if path.name not in made and not path.read_text("utf-8").startswith(NOTICE):
            made[path.name] = re.sub(r"^\.Os.*$", f".Os wfctl {__version__}", path.read_text("utf-8"), flags=re.MULTILINE)
    head, _, rest = made["wfctl.1"].partition(_MARKS[0])
    _, _, tail = rest.partition(_MARKS[1])
    made["wfctl.1"] = "\n".join([head + _MARKS[0], *_listed(every), _MARKS[1] + tail])
    return made


def known_statuses(overview: str) -> dict[int, str]:
    """Return the meanings of exit statuses, as roff, from the text of wfctl(1)."""
    section = overview.partition(".Sh EXIT STATUS\n")[2].partition("\n.El")[0]
    rows = re.findall(r"^\.It (\d+)\n((?:(?!\.It).*\n?)+)", section, re.MULTILINE)
    return {int(number): text.strip() for number, text in rows}


def _siblings(page: Page, every: list[Page]) -> list[str]:
    """Return the names of the pages about the same noun, its list included."""
    noun = page.words.split()[0].removesuffix("s")
    return [other.name for other in every if other.words.split()[0] in (noun, f"{noun}s") and other.words not in BY_HAND]


def _listed(every: list[Page]) -> Iterator[str]:
    """Give the commands of each section of the tree, a line each."""
    sections: dict[str, list[Page]] = {}
    for page in every:
        sections.setdefault(root.entries[page.words.split()[0]].section, []).append(page)
    for title, rows in sections.items():
        yield f".Ss {title}\n.Bl -tag -width Ds -compact"
        for page in rows:
            yield f".It Cm {literal(page.words)}\n{_prose(page.summary)}"
        yield ".El"


def _head(name: str, about: str, date: str) -> list[str]:
    """Return how a page of section 7 begins, up to its description."""
    return [
        '.\\" Written by `python -m tools.generate`; change wfctl/cli/help_texts.py or wfctl/errors.py.',
        f".Dd {date}", f".Dt {name.upper()} 7", f".Os wfctl {__version__}",
        ".Sh NAME", f".Nm {name}", f".Nd {about}",
        ".Sh DESCRIPTION",
    ]  # fmt: skip


def _codes(date: str) -> str:
    """Return wfctl-codes(7): what `wfctl help CODE` says of every word."""
    lines = _head("wfctl-codes", "the words for errors, warnings, statuses and reasons of wfctl", date)
    lines += [
        "What wfctl tells of has a word, the same on the command line, in Python and over JSON\\-RPC.",
        "Words are only added; none changes its meaning.",
        "\\(oqwfctl help\\(cq with a word says what stands here.",
        ".Ss Errors",
        ".Bl -tag -width Ds",
    ]
    for code, error in sorted(BY_CODE.items()):
        number = literal(str(error.rpc_number))
        lines += [f".It Sy {literal(code)}", f"Exit status {error.exit_status}, JSON\\-RPC error {number}."]
        lines += [_prose(error.__doc__ or ""), _prose(ADVICE[code])]
    remedies = {code: f"`wfctl store verify --fix {code}` {said}." for code, said in contradictions().items()}
    for title, texts in (
        ("Warnings", WARNINGS), ("Statuses of occurrences and runs", STATUSES), ("States of schedules", STATES),
        ("Reasons", REASONS), ("Diagnostics", DIAGNOSTICS), ("Records that contradict each other", remedies),
    ):  # fmt: skip
        lines += [".El", f".Ss {title}", ".Bl -tag -width Ds"]
        for code, text in sorted(texts.items()):
            lines += [f".It Sy {literal(code)}", _prose(text)]
    return "\n".join([*lines, ".El", ".Sh SEE ALSO", ".Xr wfctl 1 ,", ".Xr wfctl-topics 7"]) + "\n"


def _topics(date: str) -> str:
    """Return wfctl-topics(7): what `wfctl help TOPIC` says."""
    lines = _head("wfctl-topics", "short texts on wfctl", date)
    lines.append("\\(oqwfctl help\\(cq with a topic says what stands here.")
    for topic, text in TOPICS.items():
        blocks = "\n\n".join(_folded(block) for block in text.strip().split("\n\n"))
        lines += [f".Ss {literal(topic)}", ".Bd -literal", *map(literal, blocks.splitlines()), ".Ed"]
    return "\n".join([*lines, ".Sh SEE ALSO", ".Xr wfctl 1 ,", ".Xr wfctl-codes 7 ,", ".Xr wfctl-occurrences 7"]) + "\n"


def _folded(block: str) -> str:
    """Fold a block that is too wide for a page of 80 columns: prose anew, rows of a table under their text."""
    if re.search("^ ", block, re.MULTILINE):
        return block
    if not re.search(r"\S  +\S", block):
        return textwrap.fill(" ".join(block.split()), 74)
    rows = []
    for line in block.splitlines():
        begins = re.match(r"\S.*?  +", line)
        rows += textwrap.wrap(line, 74, subsequent_indent=" " * (begins.end() if begins else 0))
    return "\n".join(rows)
