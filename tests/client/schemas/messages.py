"""Protobuf messages of tests, made without protoc: a file with nested messages, one that imports it, known types."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

Field = descriptor_pb2.FieldDescriptorProto


def _build() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    place = descriptor_pb2.FileDescriptorProto(name="shop/place.proto", package="shop", syntax="proto3")
    address = place.message_type.add(name="Address")
    address.field.add(name="street", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    pool.Add(place)
    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["shop/place.proto", "google/protobuf/timestamp.proto"])
    order.message_type.add(name="Other")
    main = order.message_type.add(name="Order")
    main.field.add(name="id", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    main.field.add(
        name="to", number=2, type=Field.TYPE_MESSAGE, type_name=".shop.Address", label=Field.LABEL_OPTIONAL
    )
    main.field.add(
        name="at",
        number=3,
        type=Field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=Field.LABEL_OPTIONAL,
    )
    main.nested_type.add(name="First")
    line = main.nested_type.add(name="Line")
    line.field.add(name="item", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    pool.Add(order)
    names = ["shop.Address", "shop.Other", "shop.Order", "shop.Order.Line"]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


CLASSES = _build()
Address, Other, Order, Line = CLASSES.values()
