"""What a broker takes from outside: time, randomness, disks. A test or a simulation passes its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random, SystemRandom

from barnabas.clock import Clock, SystemClock
from barnabas.log.file_system import DiskFileSystem, FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    clock: Clock = field(default_factory=SystemClock)
    rng: Random = field(default_factory=SystemRandom)
    fs: FileSystem = field(default_factory=DiskFileSystem)
