"""Passwords among the settings at run time: in the store they are encrypted, as in Apache Kafka 3.9.

The secret is `password.encoder.secret`, the same on all brokers. A broker with ZooKeeper stores no password without it,
as Kafka. A broker of its own then stores them as they are, in files that only its user can read. After a change of the
secret, `password.encoder.old.secret` has the last one, and the broker encrypts its passwords again when it starts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache, lru_cache

from barnabas.config.broker_config import BrokerConfig, validate_dynamic
from barnabas.config.broker_settings import UpdateMode, broker_settings
from barnabas.errors import InvalidConfig
from barnabas.security.password_encoder import CannotDecode, PasswordEncoder, is_encoded

log = logging.getLogger(__name__)


@cache
def _password_settings() -> tuple[str, ...]:
    return tuple(
        name
        for name, row in broker_settings().items()
        if row.is_sensitive and row.update_mode is not UpdateMode.READ_ONLY
    )


def is_password(name: str) -> bool:
    """Also for a name with the prefix of a listener and a mechanism."""
    return name.endswith(_password_settings())


def decoded(config: BrokerConfig, stored: Mapping[str, str]) -> dict[str, str]:
    """Settings as they are used. A password that cannot be decrypted is left out, and the log says so."""
    clear = {}
    for name, text in stored.items():
        if is_password(name):
            try:
                clear[name] = _decoded(config, text)
            except CannotDecode as error:
                log.error("The password %s is ignored: %s", name, error)
        else:
            clear[name] = text
    return clear


def usable(config: BrokerConfig, stored: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """As `decoded`, without those that may not be set at run time. The log has a line about each of them."""
    found = {}
    for name, text in decoded(config, stored).items():
        try:
            validate_dynamic({name: text}, per_broker=per_broker)
            found[name] = text
        except InvalidConfig as error:
            log.error("The setting %s, made at run time, is ignored: %s", name, error)
    return found


def encoded(config: BrokerConfig, clear: Mapping[str, str]) -> dict[str, str]:
    """Settings as they are stored. Raises InvalidConfig."""
    passwords = {name: text for name, text in clear.items() if is_password(name)}
    encoder = _encoder(config, "password.encoder.secret")
    if encoder is not None:
        return {**clear, **encoder.encode_all(passwords)}
    if passwords and config.uses_zookeeper:
        raise InvalidConfig("Password encoder secret not configured")
    return dict(clear)


def encoded_again(config: BrokerConfig, stored: Mapping[str, str]) -> Mapping[str, str]:
    """After a change of the secret, and for passwords that were stored as they are."""
    encoder = _encoder(config, "password.encoder.secret")
    if encoder is None:
        return stored
    changed = {}
    for name, text in stored.items():
        if not is_password(name):
            continue
        try:
            encoder.decode(text)
        except CannotDecode:
            changed.update(decoded(config, {name: text}))
    return {**stored, **encoder.encode_all(changed)} if changed else stored


def check_encoder(config: BrokerConfig) -> None:
    """Raises InvalidConfig if the settings cannot be used."""
    for name in ("password.encoder.secret", "password.encoder.old.secret"):
        _encoder(config, name)


def _decoded(config: BrokerConfig, text: str) -> str:
    if not is_encoded(text):
        return text
    reason = CannotDecode("password.encoder.secret is not set")
    for name in ("password.encoder.secret", "password.encoder.old.secret"):
        encoder = _encoder(config, name)
        if encoder is not None:
            try:
                return encoder.decode(text)
            except CannotDecode as error:
                reason = error
    raise reason


def _encoder(config: BrokerConfig, secret_name: str) -> PasswordEncoder | None:
    values = config.values
    secret = values[secret_name]
    if not secret:
        return None
    factory, cipher = (values[f"password.encoder.{name}.algorithm"] for name in ("keyfactory", "cipher"))
    key_bits, iterations = (values[f"password.encoder.{name}"] for name in ("key.length", "iterations"))
    assert isinstance(key_bits, int)
    assert isinstance(iterations, int)
    return _new_encoder(
        str(secret), None if factory is None else str(factory), str(cipher), key_bits, iterations
    )


@lru_cache(maxsize=8)
def _new_encoder(
    secret: str, key_factory: str | None, cipher: str, key_bits: int, iterations: int
) -> PasswordEncoder:
    """The same object for the same settings: it knows the keys that it has made."""
    return PasswordEncoder(
        secret, key_factory=key_factory, cipher=cipher, key_bits=key_bits, iterations=iterations
    )
