"""Runs several brokers on one host, each a process, and the process that has their store.

The supervisor has loaded all that a broker needs, and forks the others, so that they start fast and share its memory.
It never has a thread or an event loop: so it may fork at any time, also when it starts a process again that has died.
It does nothing but wait, for signals and for reports of its processes.

    barnabas start --brokers 2          the supervisor
        the store                       serves the embedded store to the brokers
        broker 0
        broker 1

A process that dies is started again: at once the first time, then after delays that double. After RESTARTS_MAX times in
a row the supervisor gives it up and says so. The others go on without a broker; without the store everything stops.

All of them watch one pipe, the lifeline, whose other end only the supervisor has. When the supervisor dies, the pipe
ends, and so do they: brokers flush their logs first. When the supervisor is stopped, it stops the brokers one after the
other, so that each can hand over its leaders, and those that are left after STAGGERED_S all at once; then the store. So
the time of a stop has a bound that does not grow with the number of brokers.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.errors import InvalidConfig
from barnabas.server.host.locking import HostLock, wait_for_leftovers
from barnabas.server.host.parent import Parent
from barnabas.server.host.plan import (
    NO_PORTS,
    Ports,
    broker_config,
    check_ports,
    directories_of,
    probe_ports,
    still_free,
)
from barnabas.server.host.process import SIGNALS, Process, Report

log = logging.getLogger("barnabas.server")

RESTARTS_MAX: Final = 10
# Brokers are stopped one after the other for this long. See STOP_TIMEOUT_S in process.py for each of them, and
# TimeoutStopSec in packaging/systemd/barnabas.service.
STAGGERED_S: Final = 30.0
ONE_SIGNAL_S: Final = 0.5

# Runs a broker in this process until it is stopped. It gets the configuration, the brokers' side of the door, the
# lifeline, and what to call with its ports when it is ready.
RunBroker = Callable[[BrokerConfig, socket.socket, int, Callable[[Ports], None]], None]


class Inherited:
    """What every process has from the supervisor."""

    def __init__(self) -> None:
        # The store takes connections from the first, and brokers ask for them through the second.
        self.store_door, self.broker_door = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.broker_door.setblocking(False)
        self.lifeline, self.lifeline_end = os.pipe()

    def close(self) -> None:
        self.store_door.close()
        self.broker_door.close()
        os.close(self.lifeline)
        os.close(self.lifeline_end)


class Supervisor:
    """The processes, and what happens to them."""

    def __init__(
        self,
        config: BrokerConfig,
        run_broker: RunBroker,
        label: Callable[[str], None],
        on_ready: Callable[[Report], None],
        on_other_end: Callable[[int, int], None],
        parent: Parent | None = None,
    ) -> None:
        """`label` marks the log lines of a process. `on_ready` is called when all are ready, and when one is again.

        `on_other_end` gets the pid and the exit code of another child that has ended. In a container the supervisor is
        often process 1, and inherits processes whose parents have ended. When the parent ends, everything stops.
        """
        check_ports(config)
        for index in range(config.barnabas_brokers):
            # What is impossible for one of them must not be found out when the others run.
            broker_config(config, max(config.broker_id, 0) + index, index)
        self._config = config
        self._run_broker = run_broker
        self._label = label
        self._on_ready = on_ready
        self._on_other_end = on_other_end
        self._parent = parent
        self.inherited = Inherited()
        self._store = Process("the store", self._serve_store)
        self._brokers: list[Process] = []
        self._has_started = False
        self._signals = 0
        self._signalled_s = -ONE_SIGNAL_S
        self._is_stopping = False
        self._stopping_since_s = 0.0
        self._exit_code = 0
        # Why the first start has failed.
        self._refusal = ""

    def run(self) -> int:
        """Returns the exit code of the command. Raises KafkaError if the brokers cannot start."""
        lock = self._lock()
        wakeup, wakeup_end = socket.socketpair()
        for each in (wakeup, wakeup_end):
            each.setblocking(False)
        for number in SIGNALS:
            # `nohup` has SIGHUP ignored.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(wakeup_end.fileno(), warn_on_full_buffer=False)
        # Searches for garbage would write to memory that the processes share.
        gc.collect()
        gc.freeze()
        self._start(self._store)
        while not self._is_done():
            self._wait(wakeup)
            self._reap()
            self._act()
        lock.release()
        if self._refusal:
            raise InvalidConfig(self._refusal)
        return self._exit_code

    def _lock(self) -> HostLock:
        config = self._config
        directory = directories_of(config, 0)[0]
        if not HostLock.is_left_in(directory):
            probe_ports(config)
        lock = HostLock(directory)
        if lock.is_leftover:
            indexes = range(config.barnabas_brokers)
            wait_for_leftovers([path for each in indexes for path in directories_of(config, each)])
            probe_ports(config)
        return lock

    def _on_signal(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._note_signal()

    def _note_signal(self) -> None:
        now_s = time.monotonic()
        # Who signals a process and its group means one signal.
        if now_s - self._signalled_s > ONE_SIGNAL_S:
            self._signalled_s = now_s
            self._signals += 1

    def _is_done(self) -> bool:
        return self._is_stopping and not any(each.is_running for each in self._processes)

    @property
    def _processes(self) -> list[Process]:
        return [self._store, *self._brokers]

    def _wait(self, wakeup: socket.socket) -> None:
        """Until a signal, a report, or the time to do something."""
        poll = select.poll()
        poll.register(wakeup, select.POLLIN)
        if self._parent is not None:
            poll.register(self._parent, self._parent.events)
        reporting = {each.descriptor: each for each in self._processes if each.descriptor >= 0}
        for descriptor in reporting:
            poll.register(descriptor, select.POLLIN)
        now_s = time.monotonic()
        times_s = [each.due_s for each in self._processes if each.due_s is not None]
        if self._is_stopping:
            times_s += [each.stop_deadline_s for each in self._processes if each.stop_deadline_s is not None]
            if now_s < self._stopping_since_s + STAGGERED_S:
                times_s.append(self._stopping_since_s + STAGGERED_S)
        timeout_ms = None if not times_s else max(0.0, (min(times_s) - now_s) * 1_000) + 1
        for descriptor, events in poll.poll(timeout_ms):
            if descriptor == wakeup.fileno():
                _drain(wakeup)
            elif descriptor in reporting:
                self._receive(reporting[descriptor])
            elif self._parent is not None and not self._parent.handle(events):
                self._parent = None
                self._note_signal()

    def _receive(self, process: Process) -> None:
        if not process.receive():
            return
        if process is self._store and not self._brokers:
            if not self._is_stopping:
                self._start_brokers(process.report["first_id"])
        elif process is self._store:
            log.info("The store is ready again")
            self._report()
        elif self._has_started:
            log.info("%s is ready again", process.name.capitalize())
            self._report()
        elif all(each.is_ready for each in self._brokers):
            self._has_started = True
            self._report()

    def _report(self) -> None:
        if self._has_started:
            ready = [{**each.report, "pid": each.pid} for each in self._brokers if each.is_ready]
            first = self._brokers[0].report["ports"]
            report = {"ports": first, "brokers": ready, "store_pid": self._store.pid}
            self._on_ready(report)
            if self._parent is not None:
                self._parent.send(report)

    def _reap(self) -> None:
        """Takes note of all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            process = next((each for each in self._processes if each.pid == pid), None)
            if process is not None:
                self._note_end(process, code)
            elif not self._is_stopping and not self._signals:
                self._on_other_end(pid, code)

    def _note_end(self, process: Process, code: int | None) -> None:
        """None: it could not be started."""
        delay_s = process.note_end()
        if code is None:
            how = "could not be started"
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if process.error:
            how += f" ({process.error})"
        if self._is_stopping:
            if code != 0 and self._has_started:
                log.error("%s %s", process.name.capitalize(), how)
            self._exit_code = self._exit_code or int(code != 0)
            if process is self._store and any(each.is_running for each in self._brokers):
                # The brokers need it to the end.
                process.due_s = time.monotonic() + delay_s
            return
        if not self._has_started:
            self._refusal = process.error or f"{process.name} {how}"
            if process.error and process is not self._store:
                self._refusal = f"{process.name}: {process.error}"
            self._fail()
        elif process.failures > RESTARTS_MAX:
            process.is_given_up = True
            log.critical(
                "%s %s. It has been started %d times in a row, and is not started again",
                process.name.capitalize(),
                how,
                process.failures,
            )
            self._exit_code = 1
            if process is self._store or all(each.is_given_up for each in self._brokers):
                self._fail()
        else:
            log.error(
                "%s %s. It is started again%s",
                process.name.capitalize(),
                how,
                f" in {delay_s:g} s" if delay_s else "",
            )
            process.due_s = time.monotonic() + delay_s

    def _fail(self) -> None:
        self._exit_code = 1
        self._begin_stop()

    def _act(self) -> None:
        if self._signals and not self._is_stopping:
            self._signals -= 1
            log.info("Stopping")
            self._begin_stop()
        if self._is_stopping:
            self._continue_stop()
        for process in self._processes:
            if process.due_s is not None and process.due_s <= time.monotonic():
                self._start(process)

    def _begin_stop(self) -> None:
        self._is_stopping = True
        self._stopping_since_s = time.monotonic()
        for broker in self._brokers:
            broker.due_s = None

    def _continue_stop(self) -> None:
        running = [each for each in self._processes if each.is_running]
        if self._signals:
            # A second signal ends everything at once.
            for process in running:
                os.kill(process.pid, signal.SIGKILL)
            self._exit_code = 1
            return
        brokers = [each for each in reversed(running) if each is not self._store]
        is_staggered = time.monotonic() < self._stopping_since_s + STAGGERED_S
        # A broker that is still starting may wait for others that are not there. It has promised nothing yet.
        number = signal.SIGTERM if self._has_started else signal.SIGKILL
        for broker in brokers[:1] if is_staggered else brokers:
            broker.stop(number)
        if running and not brokers:
            self._store.stop(signal.SIGTERM)

    def _start_brokers(self, first_id: int) -> None:
        for index in range(self._config.barnabas_brokers):
            self._brokers.append(self._broker(first_id + index, index))
        for broker in self._brokers:
            self._start(broker)

    def _broker(self, broker_id: int, index: int) -> Process:
        def run(report: Callable[[Report], None]) -> None:
            self._label(f"broker {broker_id}")
            last = process.report
            ports = Ports(last["ports"], last["metrics_port"]) if last else NO_PORTS
            config = broker_config(self._config, broker_id, index, still_free(self._config, ports))

            def on_ready(ports: Ports) -> None:
                report({"id": broker_id, "ports": dict(ports.listeners), "metrics_port": ports.metrics})

            inherited = self.inherited
            self._run_broker(config, inherited.broker_door, inherited.lifeline, on_ready)

        process = Process(f"broker {broker_id}", run)
        return process

    def _serve_store(self, report: Callable[[Report], None]) -> None:
        from barnabas.server.host.store_process import serve_store

        self._label("store")
        inherited = self.inherited
        serve_store(
            self._config,
            inherited.store_door,
            inherited.lifeline,
            lambda first_id: report({"first_id": first_id}),
            is_first=not self._brokers,
        )

    def _start(self, process: Process) -> None:
        def prepare() -> None:
            os.close(self.inherited.lifeline_end)
            for other in self._processes:
                if other is not process and other.descriptor >= 0:
                    os.close(other.descriptor)

        try:
            process.start(prepare)
        except OSError as error:
            # Of memory, processes or descriptors nothing is left now. The others go on.
            process.error = f"the system made no process: {error.strerror or error}"
            self._note_end(process, None)


def _drain(wakeup: socket.socket) -> None:
    try:
        while wakeup.recv(4096):
            pass
    except BlockingIOError:
        pass
