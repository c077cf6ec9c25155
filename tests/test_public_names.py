"""What `import barnabas` gives: names, their modules, and what they cost."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re
import subprocess
import sys

import pytest

import barnabas
import barnabas.aio
import barnabas.errors
import barnabas.testing

MODULES = ["barnabas", "barnabas.aio", "barnabas.errors", "barnabas.spark", "barnabas.testing"]
# What a part of a public module needs beside the package; without it, the module is imported all the same.
EXTRAS = {"barnabas.spark": ("pyspark", "deltalake", "adbc_driver_manager")}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_there(name: str) -> None:
    module = importlib.import_module(name)
    for extra in EXTRAS.get(name, ()):
        pytest.importorskip(extra, reason=f"{extra} is needed: install barnabas[spark]")
    public = list(module.__all__)
    assert len(set(public)) == len(public)
    for each in public:
        assert getattr(module, each) is not None
    assert not hasattr(module, "nosuch")
    with pytest.raises(AttributeError, match="nosuch"):
        _ = module.nosuch


def test_dir_shows_the_public_names() -> None:
    for name in ("barnabas", "barnabas.aio", "barnabas.spark"):
        module = importlib.import_module(name)
        assert set(module.__all__) <= set(dir(module))
    assert barnabas.__all__[1:] == sorted(barnabas.__all__[1:])


def test_errors_of_clients_are_beside_the_codes_of_kafka() -> None:
    assert issubclass(barnabas.errors.SerializationError, barnabas.errors.KafkaError)
    public = importlib.import_module("barnabas.errors").__all__
    assert {each.__name__ for each in barnabas.errors.ERRORS.values()} < set(public)


def test_every_public_class_has_a_docstring() -> None:
    bare = []
    for name in ("barnabas", "barnabas.aio", "barnabas.testing"):
        module = importlib.import_module(name)
        for each in module.__all__:
            found = getattr(module, each)
            # A dataclass without one shows its fields, a named tuple too.
            if isinstance(found, type) and not (found.__doc__ or "").strip():
                bare.append(f"{name}.{each}")
    assert bare == []


def test_the_package_alone_loads_no_client() -> None:
    code = (
        "import sys, barnabas, barnabas.errors, barnabas.spark;"
        " print([m for m in sys.modules if m.startswith(('barnabas.', 'pyspark'))])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip() == "['barnabas.errors', 'barnabas.spark']"


CLIENTS = [
    *(
        getattr(module, name)
        for module in (barnabas, barnabas.aio)
        for name in ("Producer", "Consumer", "Admin")
    ),
    barnabas.AvroDeserializer,
    barnabas.AvroSerializer,
    barnabas.ConsumerRecord,
    barnabas.JsonSchemaDeserializer,
    barnabas.JsonSchemaSerializer,
    barnabas.ProtobufDeserializer,
    barnabas.ProtobufSerializer,
    barnabas.RebalanceListener,
    barnabas.SchemaDecoder,
    barnabas.SchemaRegistry,
    barnabas.SendFuture,
    barnabas.SendManyFuture,
    barnabas.testing.Broker,
    barnabas.testing.Cluster,
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_help_shows_docstrings_and_signatures(client: type) -> None:
    """Also where the class is compiled: `setup.py` adds there what mypyc leaves out."""
    assert (client.__doc__ or "").strip()
    for name in dir(client):
        method = getattr(client, name)
        if name.startswith("_") or not callable(method):
            continue
        assert inspect.getdoc(method), f"{client.__name__}.{name} has no docstring"
        assert next(iter(inspect.signature(method).parameters)) == "self" or inspect.ismethod(method)
    shown = pydoc.plain(pydoc.render_doc(client))
    assert client.__name__ in shown


def typed(method: object) -> inspect.Signature:
    """The annotated signature; that of a compiled method is the first line of its docstring."""
    if inspect.isfunction(method):
        return inspect.signature(method)
    assert inspect.ismethoddescriptor(method)
    names: dict[str, object] = {}
    exec(f"from __future__ import annotations\ndef {(method.__doc__ or '').splitlines()[0]}: ...", names)
    found = inspect.signature(names[method.__name__])  # type: ignore[arg-type]
    assert list(found.parameters) == list(inspect.signature(method).parameters)
    return found


@pytest.mark.parametrize("client", CLIENTS[:6], ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_every_parameter_of_a_client_is_annotated(client: type) -> None:
    names = [name for name in dir(client) if not name.startswith("_") and callable(getattr(client, name))]
    for name in (*names, "__init__"):
        signature = typed(getattr(client, name))
        bare = [
            each.name for each in list(signature.parameters.values())[1:] if each.annotation is each.empty
        ]
        assert not bare, f"{client.__name__}.{name} does not say what it takes: {bare}"
        assert signature.return_annotation is not signature.empty, f"{client.__name__}.{name}"
    constructor = inspect.signature(client)
    assert list(constructor.parameters) == ["settings", "keywords"]
    assert all(each.annotation is not each.empty for each in constructor.parameters.values())


def test_signatures_of_values() -> None:
    """mypyc leaves out those with a default that is no constant."""
    record = inspect.signature(barnabas.ConsumerRecord)
    assert list(record.parameters)[:4] == ["topic", "partition", "offset", "timestamp_ms"]
    assert record.parameters["timestamp_type"].default == -1
    assert record.parameters["leader_epoch"].default == -1
    for name in barnabas.__all__:
        each = getattr(barnabas, name)
        if inspect.isclass(each):
            assert inspect.signature(each) is not None


def test_help_has_types() -> None:
    shown = pydoc.plain(pydoc.render_doc(barnabas.Producer.send))
    # Annotations that are not evaluated yet are texts.
    assert re.search(r"topic: '?str", shown)
    assert "SendFuture" in shown
