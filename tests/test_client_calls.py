"""docs/CLIENT_CALLS.md against the packages themselves: every public call has a row, and what a row names is there."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import importlib
import inspect
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import barnabas
import barnabas.aio
from barnabas.client.setting_hints import KERBEROS_KEYTAB, RENAMED, REPLACED, UNSECURED
from barnabas.client.settings import ADMIN, CONSUMER, PRODUCER
from barnabas.errors import ERRORS, UnknownSetting
from barnabas.security.jaas import parse_jaas

PAGE = Path(__file__).parents[1] / "docs" / "CLIENT_CALLS.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$", re.MULTILINE)
OURS = re.compile(r"(?:barnabas\.(?:aio|errors)\.)?[A-Z_]\w*(?:\.\w+)?|__version__")
QUOTED = re.compile(r"`([^`]+)`")
# A row that names nothing of ours begins with one of these, and gives the reason.
REASONS = re.compile(r"(?:None|Not needed|Not public): (?:\S+ ){2}")


class Peer(NamedTuple):
    package: str
    # Classes whose methods have rows, and those whose fields have rows too.
    clients: list[str]
    values: list[str]
    # Modules whose names are public.
    modules: list[str]
    has_constants: bool = False


PEERS = {
    "confluent-kafka": Peer(
        "confluent_kafka",
        ["Producer", "Consumer", "admin.AdminClient"],
        ["Message", "Messages", "TopicPartition", "KafkaError", "Uuid"],
        ["admin", "aio", "serialization"],
        has_constants=True,
    ),
    "kafka-python": Peer(
        "kafka", ["KafkaProducer", "KafkaConsumer", "admin.KafkaAdminClient"], [], ["admin"]
    ),
    "aiokafka": Peer(
        "aiokafka", ["AIOKafkaProducer", "AIOKafkaConsumer", "admin.AIOKafkaAdminClient"], [], ["admin"]
    ),
}
# Its registry cannot be imported without packages that nothing here needs. Its sources are enough.
REGISTRY = "schema_registry"
REGISTRY_FORMATS = ("avro", "json_schema", "protobuf")


def imported(name: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def rows_of(title: str) -> dict[str, str]:
    section = PAGE.read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = ROW.findall(section)
    assert len(dict(found)) == len(found), "a call has two rows"
    return dict(found)


def public_names(module: ModuleType) -> set[str]:
    """What a package exports: by its own list, or what it defines itself."""
    listed = getattr(module, "__all__", None)
    names = [each for each in dir(module) if not each.startswith("_")] if listed is None else listed
    found = set()
    for name in names:
        # A list may name modules that are not loaded yet.
        each = getattr(module, name, None)
        home = getattr(each, "__module__", None) or ""
        if callable(each) and (
            listed is not None or home.split(".")[0] in ("confluent_kafka", "cimpl", "builtins")
        ):
            found.add(name)
    return found


def methods_of(client: Any) -> set[str]:
    return {each for each in dir(client) if not each.startswith("_") and callable(getattr(client, each))}


def public_calls(title: str) -> set[str]:
    peer = PEERS[title]
    root = imported(peer.package)
    found = public_names(root)
    for path in peer.clients:
        home, _, name = path.rpartition(".")
        client = getattr(imported(f"{peer.package}.{home}") if home else root, name)
        assert inspect.isclass(client)
        found |= {f"{name}.{each}" for each in methods_of(client)}
    for name in peer.values:
        fields = {
            each for each in dir(getattr(root, name)) if not each.startswith("_") and not each.isupper()
        }
        # Methods of all exceptions, and of all tuples, are not theirs.
        found |= {f"{name}.{each}" for each in fields - set(dir(Exception))}
    for module in peer.modules:
        found |= {f"{module}.{each}" for each in public_names(imported(f"{peer.package}.{module}")) - found}
    if peer.has_constants:
        found |= {each for each in dir(root) if each.isupper() and not each.startswith("_")}
        found |= calls_of_the_registry(Path(inspect.getfile(root)).parent / REGISTRY)
    return found


def calls_of_the_registry(folder: Path) -> set[str]:
    """The names that the package exports, the methods of its client, and the serializers of each format."""
    tree = ast.parse((folder / "__init__.py").read_text("utf-8"))
    (listed,) = (
        each.value for each in tree.body if isinstance(each, ast.Assign) and "__all__" in ast.unparse(each)
    )
    found = {f"{REGISTRY}.{each}" for each in ast.literal_eval(listed)}
    (client,) = (
        each
        for each in ast.parse((folder / "_sync" / "schema_registry_client.py").read_text("utf-8")).body
        if isinstance(each, ast.ClassDef) and each.name == "SchemaRegistryClient"
    )
    methods = {each.name for each in client.body if isinstance(each, ast.FunctionDef)}
    found |= {f"{client.name}.{each}" for each in methods if not each.startswith("_")}
    for kind in REGISTRY_FORMATS:
        for each in ast.parse((folder / "_sync" / f"{kind}.py").read_text("utf-8")).body:
            if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
                found.add(f"{REGISTRY}.{kind}.{each.name}")
    return found


@pytest.mark.parametrize("title", PEERS)
def test_every_public_call_has_a_row(title: str) -> None:
    calls, rows = public_calls(title), set(rows_of(title))
    assert calls, "the package shows nothing"
    assert calls - rows == set(), "calls without a row"
    # A row may be about a name that a package has and does not list.
    root = imported(PEERS[title].package)
    unlisted = {each for each in rows - calls if hasattr(root, each) or each.startswith("admin.")}
    assert rows - calls - unlisted == set(), "rows of calls that are not there"


def resolved(name: str) -> Any:
    """What a name of ours stands for; None for a field that only instances have."""
    parts = name.removeprefix("barnabas.").split(".")
    found: Any = barnabas
    if parts[0] in ("aio", "errors"):
        found = imported(f"barnabas.{parts[0]}")
        parts = parts[1:]
    else:
        assert parts[0] in barnabas.__all__, name
    for part in parts:
        kind, found = found, getattr(found, part, None)
        assert found is not None or part in getattr(kind, "__annotations__", {}), name
    return found


def known_words() -> set[str]:
    """Settings, and the arguments and fields of what is public."""
    words = {setting.name for setting in (*PRODUCER, *CONSUMER, *ADMIN)}
    words |= {each.replace(".", "_") for each in words}
    for each in (getattr(barnabas, name) for name in barnabas.__all__):
        if not inspect.isclass(each):
            continue
        words |= set(getattr(each, "__annotations__", {})) | methods_of(each)
        for method in [each, *(getattr(each, name) for name in methods_of(each))]:
            with contextlib.suppress(TypeError, ValueError):
                words |= set(inspect.signature(method).parameters)
    return words | methods_of(barnabas.aio.Producer)


@pytest.mark.parametrize("title", PEERS)
def test_what_a_row_names_is_there(title: str) -> None:
    words = known_words()
    for call, text in rows_of(title).items():
        names_ours = False
        for each in QUOTED.findall(text):
            if OURS.fullmatch(each):
                resolved(each)
                names_ours = True
            elif re.fullmatch(r"[a-z][\w.]*(?:=[\w\"]+)?", each):
                is_known = each.partition("=")[0] in words or each.split(".")[0] in (
                    "barnabas",
                    "bytes",
                    "asyncio",
                )
                assert is_known or each in ("str", "serialize"), f"{call}: {each}"
                names_ours = True
            elif not each.startswith("barnabas "):
                # Words of metrics are an expression as well.
                compile(each, call, "eval")
                names_ours = True
        assert names_ours or REASONS.match(text), f"{call}: {text}"


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "Admin"])
def test_arguments_of_other_constructors_are_settings_or_have_a_hint(kind: str) -> None:
    ours = getattr(barnabas, kind)
    known = {
        setting.name.replace(".", "_")
        for setting in {"Producer": PRODUCER, "Consumer": CONSUMER}.get(kind, ADMIN)
    }
    admin = "admin." if kind == "Admin" else ""
    suffix = "AdminClient" if kind == "Admin" else kind
    theirs = set()
    for package, prefix in (("kafka", "Kafka"), ("aiokafka", "AIOKafka")):
        home = imported(f"{package}.{admin}".rstrip("."))
        client = getattr(home, prefix + suffix)
        theirs |= set(getattr(client, "DEFAULT_CONFIG", None) or inspect.signature(client).parameters)
    assert len(theirs) > 30
    missing = []
    for name in sorted(theirs - known):
        with pytest.raises(UnknownSetting) as raised:
            ours(**{"bootstrap_servers": "127.0.0.1:1", name: None})
        # The last resort, where nothing is known about a name.
        if "see the documentation" in str(raised.value):
            missing.append(name)
    assert missing == []


def properties_of_librdkafka(path: Path) -> set[tuple[str, str]]:
    """Each property with P or C for the client that has it, or * for both, as the library itself prints them."""
    root = Path(inspect.getfile(imported("confluent_kafka"))).parents[1]
    found = [
        *root.glob("confluent_kafka.libs/librdkafka*"),
        *root.glob("confluent_kafka/.dylibs/librdkafka*"),
    ]
    libraries = [ctypes.CDLL(str(each)) for each in found]
    (library,) = (each for each in libraries if hasattr(each, "rd_kafka_conf_properties_show"))
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(path).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    return set(re.findall(r"^([a-z][\w.]+) +\| +([CP*]) ", path.read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize(
    ("kind", "mark", "table"), [("Producer", "P", PRODUCER), ("Consumer", "C", CONSUMER)], ids=["P", "C"]
)
def test_properties_of_librdkafka_are_settings_or_have_a_hint(
    kind: str, mark: str, table: tuple[Any, ...], tmp_path: Path
) -> None:
    properties = properties_of_librdkafka(tmp_path / "properties")
    assert len(properties) > 150
    theirs = {name for name, whose in properties if whose in ("*", mark)}
    guessed = []
    for name in sorted(theirs - {setting.name for setting in table}):
        with pytest.raises(UnknownSetting) as raised:
            getattr(barnabas, kind)({"bootstrap.servers": "127.0.0.1:1", name: "1"})
        # A similar name is only a guess, and often a wrong one.
        if "see the documentation" in str(raised.value) or "did you mean" in str(raised.value):
            guessed.append(str(raised.value))
    assert guessed == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sasl_kerberos_domain_name", "sasl.kerberos.service.name and the host of each broker"),
        ("sasl.kerberos.name", "sasl.kerberos.service.name and the host of each broker"),
        ("sasl.kerberos.keytab", "sasl.jaas.config, .*Krb5LoginModule required .*keyTab="),
        ("sasl.kerberos.principal", "sasl.jaas.config, .*Krb5LoginModule required .*principal="),
        ("debug", r'logger "barnabas"'),
        ("log_level", r"logging.getLogger\("),
    ],
)
def test_hints_are_true(name: str, words: str) -> None:
    for client in (barnabas.Producer, barnabas.Consumer, barnabas.Admin):
        with pytest.raises(UnknownSetting, match=words) as raised:
            client({"bootstrap.servers": "127.0.0.1:1", name: "1"})
        assert "not supported" not in str(raised.value)


def test_hints_name_settings_that_exist() -> None:
    known = {setting.name for setting in (*PRODUCER, *CONSUMER, *ADMIN)}
    assert set(RENAMED.values()) <= known
    for text in REPLACED.values():
        named = set(
            re.findall(
                r"\b(?:sasl|ssl|fetch|max|metadata|retry|request|connections)\.[a-z][a-z.]+[a-z]", text
            )
        )
        assert named <= known, text
    for mechanism, text in (("GSSAPI", KERBEROS_KEYTAB), ("OAUTHBEARER", UNSECURED)):
        (entry,) = re.findall(r"'(.*;)'", text)
        assert parse_jaas("sasl.jaas.config", entry, mechanism, is_client=True).options


def test_codes_of_errors_are_exceptions() -> None:
    theirs = imported("confluent_kafka").KafkaError
    codes = {
        name: getattr(theirs, name) for name in dir(theirs) if name.isupper() and not name.startswith("_")
    }
    assert len(codes) > 100
    assert not [name for name, code in codes.items() if code not in ERRORS and code != theirs.NO_ERROR]


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_asyncio_has_the_same_calls(name: str) -> None:
    ours, theirs = methods_of(getattr(barnabas, name)), methods_of(getattr(imported("barnabas.aio"), name))
    assert ours - theirs == set()
    assert theirs - ours <= {"start", "send_and_wait"}
