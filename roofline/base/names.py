"""Names as people type them: what one means among the known names of a kind.

The names are ids on a shelf or members of an enum; ``data/<kind>.aliases.yaml`` says how else they
are written. It is read only where a name is not known as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roofline.base import resources
from roofline.base.errors import InputError, Option, close_names, did_you_mean

if TYPE_CHECKING:
    from roofline.base.naming import NameRules

__all__ = [
    "Meaning",
    "bundled_id",
    "completing",
    "family",
    "meaning",
    "name_rules",
    "namesakes",
    "normal_form",
    "on_shelf",
    "plain_name",
    "similar",
    "spec_file",
    "unknown",
]

#: Which command lists a shelf.
LISTINGS = {"model_specs": "models", "hardware_profiles": "hardware", "acceptance": "acceptance"}
#: What to do where something is not bundled, beyond listing the shelf.
UNBUNDLED = {
    "model_specs": ", or write a YAML spec: docs/how-to/own.md",
    "hardware_profiles": ", or write a YAML profile: docs/how-to/own.md",
}


class Meaning(NamedTuple):
    """What a name means: one known name, or one of several where ``id`` is None."""

    id: str | None
    #: The known names that it may mean; where one is taken, it and the others of its family.
    candidates: tuple[str, ...]
    #: Whether it is the name of a family, of which one part was taken.
    family: bool = False
    #: The format of the weights that the name ends with.
    storage: str | None = None


@cache
def name_rules(kind: str) -> NameRules:
    """Return the rules for names of a kind; none where it has no file."""
    from roofline.base.naming import (
        NameRules,  # a schema takes longer to make than an answer's names
    )

    file = resources.data_file(f"{kind}.aliases.yaml")
    return NameRules.load(file) if file.is_file() else NameRules(schema=1)


#: Where models are published; behind owner and name may stand a revision, and a file in it.
_SITE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_REVISION = re.compile(r"/(?:tree|blob|resolve|raw)/[^/]+")
#: The end of a GGUF file's name, with the number of the part where it is in several; and what
#: llama.cpp's older cache puts before the name.
_GGUF_END = re.compile(r"(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)
_GGUF_START = re.compile(r"^.*-GGUF_(?=.)", re.IGNORECASE | re.DOTALL)


def plain_name(reference: str) -> str:
    """Return a name without what copying it leaves around it: an address, slashes, a file's ending.

    >>> plain_name("https://huggingface.co/Qwen/Qwen3-8B/tree/main"), plain_name("Qwen/Qwen3-8B/")
    ('Qwen/Qwen3-8B', 'Qwen/Qwen3-8B')
    >>> plain_name("Qwen3-8B-Q4_K_M-00001-of-00002.gguf"), plain_name("hf.co/a/b-GGUF:Q8_0")
    ('Qwen3-8B-Q4_K_M', 'a/b-GGUF:Q8_0')
    """
    name, site = reference.strip(), _SITE.match(reference.strip())
    if site is not None:
        name = _REVISION.sub("", name[site.end() :].partition("?")[0], count=1)
    name = name.rstrip("/") or name
    ending = _GGUF_END.search(name)
    return name if ending is None else _GGUF_START.sub("", name[: ending.start()])


def _words(name: str) -> list[str]:
    """Return the words of a name without its owner; a dot is kept between digits only.

    >>> _words("meta-llama/Llama-3.1-8B"), _words("llama.cpp")
    (['llama', '3.1', '8b'], ['llamacpp'])
    """
    bare = re.sub(r"(?<!\d)\.|\.(?!\d)", "", name.lower().rsplit("/", 1)[-1])
    return re.findall(r"[a-z0-9.]+", bare)


def _without_leading(words: list[str], leading: Iterable[str]) -> list[str]:
    """Return the words behind the leading ones; at least one stays."""
    known = set(leading)
    while len(words) > 1 and words[0] in known:
        words = words[1:]
    return words


def family(name: str, kind: str) -> str:
    """Return the word that a name begins with, behind the leading ones: that of its family.

    >>> family("meta-llama-3.1-405b-instruct-fp8", "model_specs")
    'llama'
    """
    return next(iter(_without_leading(_words(name), name_rules(kind).leading)), "")


def normal_form(name: str, leading: Iterable[str] = ()) -> str:
    """Return a name without owner, leading words, case and punctuation; digits stay apart.

    >>> normal_form("NVIDIA GeForce RTX 4090", ["nvidia", "geforce", "rtx"])
    '4090'
    >>> normal_form("Qwen/Qwen3-14B"), normal_form("qwen3.1-4b")
    ('qwen3-14b', 'qwen3.1-4b')
    """
    return _form(_words(name), leading)


def _form(words: Iterable[str], leading: Iterable[str]) -> str:
    form = ""
    for word in words:
        form += f"-{word}" if form[-1:].isdigit() and word[:1].isdigit() else word
    stripped = True
    while stripped:  # the words may be written together: rtx4090
        stripped = False
        for word in leading:
            if form.startswith(word) and form != word:
                form, stripped = form[len(word) :].lstrip("-"), True
    return form


def _without_trailing(words: list[str], trailing: Iterable[str]) -> list[str]:
    known = set(trailing)
    while len(words) > 1 and words[-1] in known:
        words = words[:-1]
    return words


class _Index(NamedTuple):
    """The known names and aliases of a kind, by what is compared."""

    forms: dict[str, tuple[str, ...]]  # by normal form
    bare: dict[str, tuple[str, ...]]  # the same without trailing words
    words: tuple[tuple[frozenset[str], str], ...]  # of each name, and what it means


@cache
def _index(kind: str, known: tuple[str, ...]) -> _Index:
    rules = name_rules(kind)
    entries: list[tuple[str, tuple[str, ...]]] = [(name, (name,)) for name in known]
    for alias, means in rules.aliases.items():
        entries.append((alias, (means,) if isinstance(means, str) else means))
    forms: dict[str, tuple[str, ...]] = {}
    bare: dict[str, tuple[str, ...]] = {}
    words = []
    for name, means in entries:
        every = _words(name)
        form = _form(every, rules.leading)
        forms.setdefault(form, means)
        ends = _without_trailing(every, rules.trailing)
        short = form if len(ends) == len(every) else _form(ends, rules.leading)
        bare[short] = tuple(dict.fromkeys((*bare.get(short, ()), *means)))
        if rules.variants and len(means) == 1:
            words.append((frozenset(_without_leading(every, rules.leading)), means[0]))
    return _Index(forms, bare, tuple(words))


def meaning(
    reference: str,
    kind: str,
    known: tuple[str, ...],
    *,
    storage: Callable[[str], str | None] | None = None,
) -> Meaning | None:
    """Return what a name means among the ``known`` ones; None where it is not known.

    ``storage`` returns the format that an ending of the name says, where it may have one.
    """
    reference = plain_name(reference)
    found = _plain_meaning(reference, kind, known)
    if found is not None or storage is None:
        return found
    for rest, ending in _endings(reference):
        dtype = storage(ending)
        found = _plain_meaning(rest, kind, known) if dtype is not None else None
        if found is not None:
            return found._replace(storage=dtype)
    return None


def _plain_meaning(reference: str, kind: str, known: tuple[str, ...]) -> Meaning | None:
    name = reference.lower().rsplit("/", 1)[-1]
    if name in known:
        return Meaning(id=name, candidates=(name,))
    rules, index = name_rules(kind), _index(kind, known)
    words = _words(reference)
    if not words:
        return None
    short = normal_form("-".join(_without_trailing(words, rules.trailing)), rules.leading)
    means = index.forms.get(normal_form(reference, rules.leading)) or index.bare.get(short)
    if means is not None and len(means) == 1:
        return Meaning(id=means[0], candidates=means)
    if means is not None:
        return _usual(means, rules)
    return _of_family(frozenset(_without_leading(words, rules.leading)), rules, index)


def _of_family(asked: frozenset[str], rules: NameRules, index: _Index) -> Meaning | None:
    """Return the part of the family with these words: the usual one, else the only one."""
    variants = {*rules.variants, *rules.trailing}
    parts = dict.fromkeys(
        means for words, means in index.words if asked <= words and words - asked <= variants
    )
    if not parts or asked <= variants:
        return None
    return _usual(tuple(parts), rules)


def _usual(parts: tuple[str, ...], rules: NameRules) -> Meaning:
    """Return the usual one of the parts that a name may mean; none where none is usual."""
    usual = list(parts)
    for group in rules.usual:
        usual = [part for part in usual if set(_words(part)) & set(group)] or usual
    taken = usual[0] if len(usual) == 1 else None
    return Meaning(id=taken, candidates=tuple(dict.fromkeys((*usual, *parts))), family=True)


#: What a repository of GGUF files is called after, beside the format of one of them.
_CONTAINER = "gguf"
_LONGEST_ENDING = 3  # words: UD-Q4_K_XL, GPTQ-Int4
#: What stands before a word of an ending; a dot does before a letter (X.Q4_K_M).
_BEFORE_ENDING = re.compile(r"[-:\s]+|\.(?=[A-Za-z])")


def _endings(reference: str) -> Iterator[tuple[str, str]]:
    """Yield each way to cut a format off the end of a name, the longest ending first.

    >>> [ending for _, ending in _endings("qwen3-8b-gptq-int4")][:2]
    ['8b-gptq-int4', 'gptq-int4']
    >>> next(_endings("Llama-3.1-8B.Q4_K_M"))
    ('Llama', '3.1-8b-q4_k_m')
    """
    cuts = list(_BEFORE_ENDING.finditer(reference))
    for cut in cuts[-_LONGEST_ENDING:]:
        rest, ending = reference[: cut.start()], reference[cut.end() :].lower()
        words = _BEFORE_ENDING.split(ending)
        if len(words) > 1 and words[-1] == _CONTAINER:
            words = words[:-1]
        if rest.lower().endswith(f"-{_CONTAINER}"):
            rest = rest[: -1 - len(_CONTAINER)]
        if rest:
            yield rest, "-".join(words)


def namesakes(name: str, shelf: str, storage: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return the ids that differ from a bundled one only in what may be left out of its name.

    These are the words that change nothing at its end, and the format of the weights.
    """
    rules, index = name_rules(shelf), _index(shelf, tuple(resources.bundled_names(shelf)))
    rests = [name, *(rest for rest, ending in _endings(name) if storage(ending) is not None)]
    found: dict[str, None] = {}
    for rest in rests:
        words = _without_trailing(_words(rest), rules.trailing)
        found |= dict.fromkeys(index.bare.get(normal_form("-".join(words), rules.leading), ()))
    return tuple(other for other in found if other != name)


def completing(text: str, kind: str, known: tuple[str, ...]) -> list[str]:
    """Return the known names that begin with a text, however either is written.

    >>> completing("RTX 40", "hardware_profiles", ("rtx-4090", "rtx-5090"))
    ['rtx-4090']
    """
    rules = name_rules(kind)
    begun = normal_form(text, rules.leading)
    return [name for name in known if begun and normal_form(name, rules.leading).startswith(begun)]


def similar(reference: str, kind: str, known: tuple[str, ...]) -> list[str]:
    """Return the known names that an unknown one may stand for, by their normal forms.

    They are those that it begins, in order of their numbers; else up to three that are alike.
    """
    rules, asked = name_rules(kind), normal_form(reference, name_rules(kind).leading)
    means: dict[str, str] = {}
    for alias, taken in rules.aliases.items():
        if isinstance(taken, str) and taken in known:
            means[normal_form(alias, rules.leading)] = taken
    means |= {normal_form(name, rules.leading): name for name in known}
    begun = sorted(form for form in means if _begins(asked, form))
    shortest = list[str]()  # not the copies and heads of a model that is offered
    for form in begun:
        if not any(_begins(other, form) for other in shortest):
            shortest.append(form)
    if shortest:
        return sorted({means[form] for form in shortest}, key=_numbers)
    return list(dict.fromkeys(means[form] for form in close_names(asked, means)))


def _begins(asked: str, form: str) -> bool:
    """Return whether a normal form goes on after the asked one, not inside one of its numbers.

    >>> _begins("qwen3", "qwen3-8b"), _begins("qwen3", "qwen3.5-9b")
    (True, False)
    """
    rest = form[len(asked) :]
    cut = asked[-1:].isdigit() and (rest[:1] == "." or rest[:1].isdigit())
    return len(asked) > 1 and bool(rest) and form.startswith(asked) and not cut


def _numbers(name: str) -> list[tuple[bool, float, str]]:
    """Return what puts names in the order of their numbers: 8b before 70b.

    >>> sorted(["llama-3.1-405b", "llama-3.1-8b", "llama-3.1-70b"], key=_numbers)
    ['llama-3.1-8b', 'llama-3.1-70b', 'llama-3.1-405b']
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)|([^\d.-]+)", name)
    return [(not number, float(number or 0), word) for number, word in parts]


#: Names that a refusal offers.
MOST_OFFERED = 8


#: A number of something in front of its name: 4x H100.
_COUNTED = re.compile(r"(?P<count>[0-9]+) *[x\u00d7*] *(?P<rest>.+)", re.IGNORECASE)


def unknown(
    reference: str, kind: str, known: tuple[str, ...], *, what: str, of: str = "", more: str = ""
) -> InputError:
    """Return the refusal of a name that is not known, that may mean several, or that is a list.

    ``of`` follows the name, and ``more`` the remedy where no known name is close.
    """
    if "," in reference:
        return InputError(f"{what} '{reference}': one kind only; sweep takes several")
    counted = _COUNTED.fullmatch(reference)
    if counted is not None and (
        counted["rest"][0].isalpha() or _plain_meaning(counted["rest"], kind, known)
    ):
        rest = f"{what} '{reference}': name the {what} alone"
        return InputError(f"{rest}, and their number as {Option('tp', counted['count'])}")
    found = _plain_meaning(reference, kind, known)
    if found is not None:
        *others, last = found.candidates
        return InputError(f"{what} '{reference}' may be {', '.join(others)} or {last}; name one")
    near = similar(reference, kind, known)
    hint = did_you_mean(reference, known) + more
    if near:
        *others, last = (f"'{name}'" for name in near[:MOST_OFFERED])
        hint = f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
    if len(near) > MOST_OFFERED:
        listing = f": 'roofline {LISTINGS[kind]} list'" if kind in LISTINGS else ""
        hint += f" ({len(near) - MOST_OFFERED} more{listing})"
    if reference.lower().endswith(_CONTAINER):
        hint = f"such a repository holds several formats; add one: {reference}:Q4_K_M"
    return InputError(f"unknown {what} '{reference}'{of}: {hint}")


def on_shelf(
    reference: str, shelf: str, *, storage: Callable[[str], str | None] | None = None
) -> Meaning | None:
    """Return what a name means on a shelf; None where it is not known."""
    return meaning(reference, shelf, tuple(resources.bundled_names(shelf)), storage=storage)


def bundled_id(reference: str, shelf: str) -> str | None:
    """Return the one bundled id that a reference names, however it is written; else None.

    >>> bundled_id("NVIDIA H100 80GB HBM3", "hardware_profiles")
    'h100-sxm'
    """
    found = on_shelf(reference, shelf)
    return None if found is None else found.id


def spec_file(
    reference: str,
    shelf: str,
    what: str,
    *,
    storage: Callable[[str], str | None] | None = None,
    kind: str | None = None,
) -> Traversable | Path:
    """Return the file that ``reference`` names: a bundled id, however it is written, or a path.

    ``storage`` returns the format that an ending of the name says, where it may have one. Names
    are offered of this ``kind`` alone, where one is given.
    """
    if reference.endswith((".yaml", ".yml")):
        path = Path(reference)
        if not path.is_file():
            raise InputError(f"{what} '{reference}': no such file; give a path or a bundled id")
        return path
    found = on_shelf(reference, shelf, storage=storage)
    if found is None or found.id is None:
        listing = LISTINGS.get(shelf)
        more = f"; see 'roofline {listing} list'{UNBUNDLED.get(shelf, '')}" if listing else ""
        known = tuple(resources.bundled_names(shelf, kind=kind))
        raise unknown(reference, shelf, known, what=what, more=more)
    return resources.shelf(shelf) / f"{found.id}.yaml"
