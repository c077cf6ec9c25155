"""Reference pages of settings, from the tables in the code. Each setting is a section with its name as anchor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.broker.settings.group_configs import GROUP_SETTINGS
from barnabas.client.settings import ADMIN, CONSUMER, PRODUCER
from barnabas.config.broker_config import ALLOW_WITHOUT_ACL, SUPER_USERS
from barnabas.config.broker_settings import TOPIC_SYNONYMS, UpdateMode, broker_settings
from barnabas.config.definition import Setting, SettingType, SettingValue, to_text
from barnabas.config.log_config import LONG_MAX, TOPIC_SETTINGS
from barnabas.config.meanings import (
    broker_meaning,
    client_meaning,
    group_meaning,
    meanings,
    topic_meaning,
)

BROKER: Final = "reference/broker-settings.md"
IDLE: Final = "reference/settings-without-effect.md"
TOPIC: Final = "reference/topic-settings.md"
CLIENT: Final = "reference/client-settings.md"

INT_MAX: Final = (1 << 31) - 1
UPDATE_MODES: Final = {
    UpdateMode.READ_ONLY: "with a restart",
    UpdateMode.PER_BROKER: "at run time, for one broker",
    UpdateMode.CLUSTER_WIDE: "at run time, for one broker or all",
}
# Settings of the authorizer, which are not in Kafka's table of broker settings.
OF_AUTHORIZERS: Final = (
    Setting(ALLOW_WITHOUT_ACL, SettingType.BOOLEAN, False),
    Setting(SUPER_USERS, SettingType.STRING, ""),
)
_DURATIONS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def pages() -> dict[str, str]:
    """Markdown by the path of the page in the site."""
    return {BROKER: _broker_page(), IDLE: _idle_page(), TOPIC: _topic_page(), CLIENT: _client_page()}


def is_effective(name: str) -> bool:
    """Whether a broker setting has a meaning here, of its own or as the default of a topic setting."""
    synonyms = {each.name for group in TOPIC_SYNONYMS.values() for each in group}
    return name in meanings()["broker"] or name in synonyms


def _broker_page() -> str:
    rows = [
        (row.setting, UPDATE_MODES[row.update_mode], row.releases)
        for name, row in broker_settings().items()
        if is_effective(name)
    ]
    rows += [(setting, UPDATE_MODES[UpdateMode.READ_ONLY], ("3.9", "4.3")) for setting in OF_AUTHORIZERS]
    sections = [
        _section(
            setting,
            broker_meaning(setting.name),
            f"Change: {change}",
            f"Known to: Apache Kafka {' and '.join(releases)}" if releases else "Known to: Barnabas only",
        )
        for setting, change, releases in sorted(rows, key=lambda row: row[0].name)
    ]
    return _page(
        "Broker settings",
        "The settings of a `server.properties`, and of `barnabas start --override NAME=VALUE`. The names, types and"
        " defaults are those of Apache Kafka. A listener may have its own value of many settings:"
        " `listener.name.NAME.SETTING`. Change a setting at run time with"
        " [`barnabas configs alter`](commands/configs.md).\n\nThe broker also knows"
        " [settings that have no effect](settings-without-effect.md), so that files of Apache Kafka work.",
        sections,
    )


def _idle_page() -> str:
    sections = [
        _section(row.setting, broker_meaning(name))
        for name, row in sorted(broker_settings().items())
        if not is_effective(name)
    ]
    return _page(
        "Settings without effect",
        "The broker accepts these settings of Apache Kafka, and logs a warning if a file has them. A security setting"
        " that is not supported stops the start instead.",
        sections,
    )


def _topic_page() -> str:
    sections = []
    for name, setting in sorted(TOPIC_SETTINGS.items()):
        synonyms = " or ".join(
            f"[{each.name}](broker-settings.md#{each.name})" for each in TOPIC_SYNONYMS.get(name, ())
        )
        sections.append(
            _section(
                setting,
                topic_meaning(name),
                f"Default for all topics: {synonyms}" if synonyms else "",
                heading="###",
            )
        )
    groups = []
    for name, broker_name in sorted(GROUP_SETTINGS.items()):
        setting = broker_settings()[broker_name].setting._replace(name=name)
        default = f"Default for all groups: [{broker_name}](broker-settings.md#{broker_name})"
        groups.append(_section(setting, group_meaning(name), default, heading="###"))
    return _page(
        "Topic and group settings",
        "Set them when you create a topic (`barnabas topics create NAME --config NAME=VALUE`), or later, without a"
        " restart, with [`barnabas configs alter topic NAME`](commands/configs.md).",
        [
            "## Topics\n",
            *sections,
            "## Groups\n\n`barnabas configs alter group NAME` sets them, for groups of the consumer protocol.\n",
            *groups,
        ],
    )


def _client_page() -> str:
    tables = {"producer": PRODUCER, "consumer": CONSUMER, "admin": ADMIN}
    names = sorted({setting.name for table in tables.values() for setting in table})
    sections = []
    for name in names:
        owners = {
            kind: setting for kind, table in tables.items() for setting in table if setting.name == name
        }
        kinds = "all clients" if len(owners) == len(tables) else " and ".join(owners)
        sections.append(_section(next(iter(owners.values())), client_meaning(name), f"Clients: {kinds}"))
    return _page(
        "Client settings",
        'A setting is a keyword with underscores, `Producer(linger_ms=20)`, or a key with dots, `Producer({"linger.ms":'
        " 20})`. The names and defaults are those of Apache Kafka 4.3. Commands take them in a file"
        " (`--client-config`), and pipelines in the table `[kafka]`.",
        sections,
    )


def _page(title: str, introduction: str, sections: Iterable[str]) -> str:
    return f"# {title}\n\n{introduction}\n\n" + "\n".join(sections)


def _section(setting: Setting, meaning: str | None, *more: str, heading: str = "##") -> str:
    assert meaning, f"{setting.name} has no meaning: add it to src/barnabas/config/meanings.json"
    facts = [f"Type: {setting.type}", f"Default: {default_of(setting)}", f"Values: {_values(setting)}"]
    lines = "\n".join(f"- {fact}" for fact in (*facts, *filter(None, more)))
    return f"{heading} `{setting.name}` {{#{setting.name}}}\n\n{meaning}\n\n{lines}\n"


def _values(setting: Setting) -> str:
    text = setting.describe_allowed()
    if setting.type is SettingType.CLASS:
        text = "the name of a class" if setting.name.endswith(".name") else "see above"
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").replace(">=", "at least ")


def default_of(setting: Setting) -> str:
    value = setting.default
    text = to_text(value)
    if text is None or text == "":
        return "none"
    return f"`{text}`{_in_words(setting.name, value)}"


def _in_words(name: str, value: SettingValue) -> str:
    """A large number once more, with a unit that people use."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return ""
    if value in (LONG_MAX, INT_MAX):
        return " (no bound)"
    units = _DURATIONS if name.endswith(".ms") else _SIZES if name.endswith((".bytes", ".size")) else ()
    for unit, word in units:
        if value >= unit and value % unit == 0:
            count = value // unit
            plural = "s" if count > 1 and unit != 1 and units is _DURATIONS else ""
            return f" ({count} {word}{plural})"
    return ""
