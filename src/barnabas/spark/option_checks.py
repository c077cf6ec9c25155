"""Checks of options that several sources and sinks share. InvalidConfig names the option and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnabas.config.definition import InvalidSetting, UnknownSetting
from barnabas.errors import InvalidConfig


def unknown_option(
    spelled: str, *, what: str, known: Mapping[str, str], hints: Mapping[str, str], available: str
) -> InvalidConfig:
    """The error for an option that `what` does not have; `known` has the names by their lower case."""
    from difflib import get_close_matches

    hint = hints.get(spelled.lower())
    if hint is None:
        near = get_close_matches(spelled.lower(), known, n=1, cutoff=0.6)
        hint = f"did you mean {known[near[0]]}?" if near else f"there are {available}"
    return InvalidConfig(f"{what} has no option {spelled!r}; {hint}")


def check_client_settings(
    settings: Mapping[str, str],
    check: Callable[[Mapping[str, str]], object],
    *,
    kind: str,
    known: Sequence[str],
    forbidden: Mapping[str, str],
) -> None:
    """Checks the `kafka.*` options of a client; `check` raises for wrong settings, `forbidden` has reasons."""
    for name, why in forbidden.items():
        if name in settings:
            raise InvalidConfig(f"kafka.{name} cannot be set here: {why}")
    if "bootstrap.servers" not in settings:
        raise InvalidConfig(
            "kafka.bootstrap.servers is missing: name at least one broker, such as localhost:9092"
        )
    try:
        check(settings)
    except UnknownSetting:
        raise _unknown_setting(settings, kind, known, forbidden) from None
    except InvalidSetting as error:
        raise error.under("kafka.") from None
    except InvalidConfig as error:
        raise InvalidConfig(f"kafka.{error}") from None


def _unknown_setting(
    settings: Mapping[str, str], kind: str, known: Sequence[str], forbidden: Mapping[str, str]
) -> InvalidConfig:
    from difflib import get_close_matches

    name = next(each for each in settings if each not in known)
    allowed = [each for each in known if each not in forbidden]
    near = get_close_matches(name, allowed, n=1, cutoff=0.6)
    hint = f"did you mean kafka.{near[0]}?" if near else f"see the documentation of the {kind}"
    return InvalidConfig(f"a {kind} has no setting {name!r}, which kafka.{name} gives; {hint}")


def check_write_mode(mode: str, keys: Sequence[str]) -> None:
    """A table is appended to, or rows with the same keys are replaced."""
    if mode not in ("append", "upsert"):
        raise InvalidConfig(f"mode: {mode!r} is neither append nor upsert")
    if (mode == "upsert") != bool(keys):
        raise InvalidConfig(
            "keys: an upsert needs the columns by which rows are the same"
            if mode == "upsert"
            else "keys: rows are appended, whatever their keys; for mode upsert only"
        )
