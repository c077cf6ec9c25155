"""A program: produces and consumes with kafka-python until a line comes on its input, then checks what became of it.

It is no test of its own process: while the broker is away the client leaves a socket and now and then a thread behind
for each attempt to connect, which would be warned of in some other test.
"""

from __future__ import annotations

import os
import sys
import threading

from tests.waiting import Deadline

WAIT_S = 60


def main(address: str, topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    is_over = threading.Event()

    def wait_for_input() -> None:
        sys.stdin.readline()
        is_over.set()

    threading.Thread(target=wait_for_input, daemon=True).start()
    producer = KafkaProducer(bootstrap_servers=address, reconnect_backoff_max_ms=200)
    consumer = KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", reconnect_backoff_max_ms=200
    )
    consumer.assign([TopicPartition(topic, 0)])
    sent = [producer.send(topic, b"0")]
    sent[0].get(WAIT_S)
    print("begun", flush=True)
    while not is_over.wait(0.005):
        sent.append(producer.send(topic, b"%d" % len(sent)))
    sent.append(producer.send(topic, b"%d" % len(sent)))
    assert [each.get(WAIT_S).offset for each in sent] == list(range(len(sent)))
    received: list[bytes] = []
    deadline = Deadline()
    while len(received) < len(sent):
        deadline.check(f"{len(received)} of {len(sent)} records")
        for records in consumer.poll(timeout_ms=1_000).values():
            received += [record.value for record in records]
    assert received == [b"%d" % number for number in range(len(sent))]
    print(f"{len(sent)} records", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(1)
    os._exit(0)
