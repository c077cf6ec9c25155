"""Reads and writes ApiVersionsResponse, versions 0-4.

Written by `make messages` from schemas/ApiVersionsResponse.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_count,
    read_string,
    read_tag,
    read_tag_count,
    read_tags,
    write_bool,
    write_count,
    write_string,
    write_tags,
    write_unknown_tags,
)


def read_api_version(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[ApiVersion, i64]:
    flexible = version >= 3
    api_key = read_i16_be(data, pos)
    min_version = read_i16_be(data, pos + 2)
    max_version = read_i16_be(data, pos + 4)
    pos += 6
    item = ApiVersion(api_key=api_key, min_version=min_version, max_version=max_version)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_api_version(out: BytesWriter, item: ApiVersion, version: i64) -> None:
    flexible = version >= 3
    write_i16_be(out, item.api_key)
    write_i16_be(out, item.min_version)
    write_i16_be(out, item.max_version)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_supported_feature_key(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[SupportedFeatureKey, i64]:
    name, pos = read_string(data, pos, True)
    min_version = read_i16_be(data, pos)
    max_version = read_i16_be(data, pos + 2)
    pos += 4
    item = SupportedFeatureKey(name=name, min_version=min_version, max_version=max_version)
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_supported_feature_key(out: BytesWriter, item: SupportedFeatureKey, version: i64) -> None:
    write_string(out, item.name, True)
    write_i16_be(out, item.min_version)
    write_i16_be(out, item.max_version)
    write_unknown_tags(out, item.unknown_tagged_fields)


def read_finalized_feature_key(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[FinalizedFeatureKey, i64]:
    name, pos = read_string(data, pos, True)
    max_version_level = read_i16_be(data, pos)
    min_version_level = read_i16_be(data, pos + 2)
    pos += 4
    item = FinalizedFeatureKey(
        name=name, max_version_level=max_version_level, min_version_level=min_version_level
    )
    if data[pos] == 0:
        pos += 1
    else:
        item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_finalized_feature_key(out: BytesWriter, item: FinalizedFeatureKey, version: i64) -> None:
    write_string(out, item.name, True)
    write_i16_be(out, item.max_version_level)
    write_i16_be(out, item.min_version_level)
    write_unknown_tags(out, item.unknown_tagged_fields)


def read_api_versions_response(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[ApiVersionsResponse, i64]:
    flexible = version >= 3
    error_code = read_i16_be(data, pos)
    pos += 2
    count, pos = read_count(data, pos, flexible, budget)
    api_keys = []
    for _ in range(count):
        api_keys_item, pos = read_api_version(data, pos, version, budget)
        api_keys.append(api_keys_item)
    throttle_time_ms: i32 = 0
    if version >= 1:
        throttle_time_ms = read_i32_be(data, pos)
        pos += 4
    item = ApiVersionsResponse(error_code=error_code, api_keys=api_keys, throttle_time_ms=throttle_time_ms)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            pos = read_api_versions_response_tags(item, data, pos, version, budget)
    return item, pos


def read_api_versions_response_tags(
    item: ApiVersionsResponse, data: bytes, pos: i64, version: i64, budget: Budget
) -> i64:
    unknown: list[tuple[int, bytes]] = []
    last: i64 = -1
    tag_count, pos = read_tag_count(data, pos, budget)
    for _ in range(tag_count):
        tag, pos, stop = read_tag(data, pos, last)
        last = tag
        if tag == 0:
            count, pos = read_count(data, pos, True, budget)
            supported_features = []
            for _ in range(count):
                supported_features_item, pos = read_supported_feature_key(data, pos, version, budget)
                supported_features.append(supported_features_item)
            item.supported_features = supported_features
        elif tag == 1:
            finalized_features_epoch = read_i64_be(data, pos)
            pos += 8
            item.finalized_features_epoch = finalized_features_epoch
        elif tag == 2:
            count, pos = read_count(data, pos, True, budget)
            finalized_features = []
            for _ in range(count):
                finalized_features_item, pos = read_finalized_feature_key(data, pos, version, budget)
                finalized_features.append(finalized_features_item)
            item.finalized_features = finalized_features
        elif tag == 3:
            zk_migration_ready = data[pos] != 0
            pos += 1
            item.zk_migration_ready = zk_migration_ready
        else:
            unknown.append((tag, data[pos:stop]))
            pos = stop
        if pos != stop:
            raise Malformed
    item.unknown_tagged_fields = tuple(unknown)
    return pos


def write_api_versions_response(out: BytesWriter, item: ApiVersionsResponse, version: i64) -> None:
    flexible = version >= 3
    write_i16_be(out, item.error_code)
    api_keys = item.api_keys
    write_count(out, len(api_keys), flexible)
    for api_keys_item in api_keys:
        write_api_version(out, api_keys_item, version)
    if version >= 1:
        write_i32_be(out, item.throttle_time_ms)
    if flexible:
        write_api_versions_response_tags(out, item, version)
    elif item.unknown_tagged_fields:
        raise Malformed


def write_api_versions_response_tags(out: BytesWriter, item: ApiVersionsResponse, version: i64) -> None:
    known: list[tuple[int, bytes]] = []
    if item.supported_features:
        part = BytesWriter()
        supported_features = item.supported_features
        write_count(part, len(supported_features), True)
        for supported_features_item in supported_features:
            write_supported_feature_key(part, supported_features_item, version)
        known.append((0, part.getvalue()))
    if item.finalized_features_epoch != -1:
        part = BytesWriter()
        write_i64_be(part, item.finalized_features_epoch)
        known.append((1, part.getvalue()))
    if item.finalized_features:
        part = BytesWriter()
        finalized_features = item.finalized_features
        write_count(part, len(finalized_features), True)
        for finalized_features_item in finalized_features:
            write_finalized_feature_key(part, finalized_features_item, version)
        known.append((2, part.getvalue()))
    if item.zk_migration_ready:
        part = BytesWriter()
        write_bool(part, item.zk_migration_ready)
        known.append((3, part.getvalue()))
    write_tags(out, known, item.unknown_tagged_fields, 4)


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[ApiVersionsResponse, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_api_versions_response(data, position, version, Budget(elements_max))


def encode(version: i64, message: ApiVersionsResponse, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_api_versions_response(out, message, version)
    return out.getvalue()
