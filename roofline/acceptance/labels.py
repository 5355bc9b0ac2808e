"""What is known of a drafter before anyone counts it, in the words of the prior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from roofline.acceptance.domains import label_words
from roofline.acceptance.prior import Labels, acceptance_prior, bare_name, family_of

__all__ = [
    "AS_LONG_AS_TARGET",
    "MOST_OVER_TRAINED",
    "SHORT",
    "Beyond",
    "DrafterLabels",
    "counted_kinds",
    "drafter_labels",
    "prior_kind",
]

#: Kinds that the prior calls otherwise.
_KINDS = {"model": "draft_model"}
#: Kinds of which a model has one only, or none that differ.
_ONE_OF_A_MODEL = ("mtp", "ngram", "suffix")
#: Kinds that are trained on contexts as long as their target's, or not at all.
AS_LONG_AS_TARGET = ("mtp", "draft_model", "ngram", "suffix")

#: Runs that do not say how long they are have at most about so many tokens of context.
SHORT = 4096.0
#: The most trained contexts that a published run is long (a test holds it against the table).
MOST_OVER_TRAINED = 4.0


class Beyond(StrEnum):
    """In what an answer goes beyond published runs."""

    TEMPERATURE = "temperature"
    CONTEXT = "context"
    TRAINED_CONTEXT = "trained-context"
    DRAFT_LENGTH = "draft-length"
    COUNTED_LENGTH = "counted-length"  # of a count beyond every published run


@dataclass(frozen=True, kw_only=True, slots=True)
class DrafterLabels:
    """The labels of a drafter: one set for each published drafter that it may be.

    ``published`` are the names of those; ``certain`` says whether it is known to be the one,
    ``of_base`` whether those runs are all of other models of its base.
    """

    candidates: tuple[Labels, ...]
    published: tuple[str, ...] = ()
    certain: bool = False
    of_base: bool = False

    @property
    def kind(self) -> str:
        """The kind of drafter, as the prior calls it."""
        return self.candidates[0].kind

    @property
    def domain(self) -> str | None:
        """The domain of the prompts, None where unknown."""
        return self.candidates[0].domain

    @property
    def trained_context(self) -> float | None:
        """The longest context that it was trained on [tokens], None where it has no limit."""
        return self.candidates[0].trained_context

    def at_context(self, context: float) -> tuple[Labels, ...]:
        """Return the labels at a context [tokens]."""
        return tuple(replace(each, context=context) for each in self.candidates)


def prior_kind(kind: str) -> str:
    """Return what the prior calls a kind of drafter.

    >>> prior_kind("model"), prior_kind("eagle3")
    ('draft_model', 'eagle3')
    """
    return _KINDS.get(kind, kind)


def drafter_labels(
    *,
    kind: str,
    drafter: str,
    models: Sequence[str],
    repository: str | None = None,
    domain: str | None = None,
    dataset: str | None = None,
    temperature: float | None = None,
    trained_context: float | None = None,
) -> DrafterLabels | None:
    """Return the labels of a drafter, None for a kind that the prior does not know.

    ``models`` are the names of its target, ``repository`` where its weights are. A drafter whose
    weights are not named may be any published one of its kind on this model.

    >>> head = {"kind": "eagle3", "drafter": "x", "models": ["llama-3.1-8b"]}
    >>> drafter_labels(**head, repository="yuhuili/EAGLE3-LLaMA3.1-Instruct-8B").published
    ('yuhuili/EAGLE3-LLaMA3.1-Instruct-8B',)
    >>> drafter_labels(kind="medusa", drafter="x", models=["llama-3.1-8b"]) is None
    True
    """
    own = prior_kind(kind)
    if acceptance_prior().part(own) is None:
        return None
    known = Labels(
        kind=own,
        domain=domain,
        recipe=_recipe(repository or drafter),
        family=family_of(models[0]),
        dataset=dataset,
        temperature=temperature,
        trained_context=None if own in AS_LONG_AS_TARGET else trained_context,
    )
    keys, certain = _published(own, drafter, models, repository, known.recipe)
    if not keys:
        return DrafterLabels(candidates=(known,))
    here = {_model(name) for name in models}
    by_model = own in _ONE_OF_A_MODEL or not certain  # not by the repository of its weights
    return DrafterLabels(
        candidates=tuple(replace(known, drafter=key) for key in keys),
        published=_names(keys),
        certain=certain,
        of_base=by_model and not any(key.split("|")[1] in here for key in keys),
    )


def counted_kinds(models: Iterable[str]) -> set[str]:
    """Return the kinds of drafter of which public runs on one of these models are known.

    >>> sorted(counted_kinds(["deepseek-v3"]))
    ['mtp']
    """
    names = _equals(list(models))
    return {
        key.split("|")[0]
        for part in acceptance_prior().parts
        if part.shape == "chain"
        for key in part.drafters
        if key.split("|")[1] in names
    }


def _names(keys: Iterable[str]) -> tuple[str, ...]:
    """Return how published drafters are called.

    >>> _names(["mtp|glm5.2|production", "eagle3|kimik2.5|EAGLE-3"])
    ('mtp', 'EAGLE-3')
    """
    named = [key.split("|") for key in keys]
    return tuple(kind if kind in _ONE_OF_A_MODEL else rest[0] for kind, _, *rest in named)


def _published(
    kind: str, drafter: str, models: Sequence[str], repository: str | None, recipe: str | None
) -> tuple[list[str], bool]:
    """Return the keys of the published drafters that this one is or may be, and whether it is."""
    part = acceptance_prior().part(kind)
    every = [key for key in (part.drafters if part else ()) if key.startswith(f"{kind}|")]
    if repository is not None:
        own = [key for key in every if repository.lower() in key.lower().split("|")[2:3]]
        if own:
            return own, True
    at = {key: key.split("|") for key in every}
    exact = {_model(name) for name in models}
    for names in (exact, _equals(models)):
        there = [key for key, words in at.items() if words[1] in names]
        if kind == "draft_model":
            return [key for key in there if bare_name(at[key][2]) == bare_name(drafter)], True
        if kind in _ONE_OF_A_MODEL and there:
            return there, True
        if repository is not None:  # a drafter of its own, which nobody counted
            continue
        alike = [key for key in there if recipe is None or recipe in at[key][2:]]
        if alike:
            return alike, False
    return [], False


def _equals(models: Iterable[str]) -> set[str]:
    """Return the models' names in the prior, and those of models of the same base and shape."""
    names = {_model(name) for name in models}
    groups = [{_model(name) for name in group} for group in label_words().same]
    return names.union(*(group for group in groups if group & names))


def _model(name: str) -> str:
    """Return how the prior calls a model.

    >>> _model("Qwen/Qwen3-30B-A3B-Instruct-2507")
    'qwen330ba3b2507'
    """
    return bare_name(name).replace("instruct", "")


def _recipe(name: str) -> str | None:
    """Return who trained a drafter, by its name; None where that does not say.

    >>> _recipe("lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge"), _recipe("z-lab/Qwen3-8B")
    ('SpecForge', 'z-lab')
    """
    recipes, low = label_words().recipes, name.lower()
    found = next((recipe for word, recipe in recipes.words.items() if word in low), None)
    owner, slash, _ = low.partition("/")
    return found or (recipes.owners.get(owner) if slash else None)
