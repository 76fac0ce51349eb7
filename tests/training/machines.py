"""Two machines on one: network namespaces joined by a cable where the system allows it, else the loopback interface."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TOOLS = ("unshare", "nsenter", "ip")
_LONG = "600"  # seconds after which a namespace is given up, whatever happens to the tests


@dataclass(frozen=True)
class Machine:
    """A place to start processes, with an address of its own where namespaces are allowed."""

    prefix: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    interface: str = "lo"

    def start(self, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        """Start a command there; its two outputs come as one."""
        return subprocess.Popen(
            [*self.prefix, *command],
            env={**environment, "GLOO_SOCKET_IFNAME": self.interface},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> None:
        subprocess.run([*self.prefix, *command], check=True, capture_output=True, timeout=20)


def free_port() -> int:
    """Return a port that nobody listens on, here and now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Make two machines that reach each other, and take them down."""
    holders: list[subprocess.Popen[bytes]] = []  # a namespace lives as long as a process in it
    try:
        try:
            machines = _namespaces(holders)
        except (OSError, subprocess.SubprocessError):  # the system does not let us
            machines = Machine(), Machine()
        yield machines
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def _namespaces(holders: list[subprocess.Popen[bytes]]) -> tuple[Machine, Machine]:
    if not all(map(shutil.which, _TOOLS)):
        raise OSError("no tools for namespaces")
    prefix: tuple[str, ...] = ()
    machines = []
    for address, create in (("10.77.0.1", ("unshare", "-r", "-n")), ("10.77.0.2", ("unshare", "-n"))):
        holders.append(subprocess.Popen([*prefix, *create, "sleep", _LONG]))
        _wait_for_sleep(holders[-1])
        prefix = ("nsenter", "-t", str(holders[-1].pid), "-U", "-n", "--preserve-credentials")
        machines.append(Machine(prefix, address, "veth0"))
    first, second = machines
    first.run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", str(holders[1].pid))
    for machine in machines:
        machine.run("ip", "addr", "add", f"{machine.address}/24", "dev", "veth0")
        machine.run("ip", "link", "set", "lo", "up")
        machine.run("ip", "link", "set", "veth0", "up")
    return first, second


def _wait_for_sleep(holder: subprocess.Popen[bytes]) -> None:
    """Wait until the process has its namespace, which is when it has become `sleep`."""
    until = time.monotonic() + 10
    while time.monotonic() < until and holder.poll() is None:
        if Path(f"/proc/{holder.pid}/comm").read_text().strip() == "sleep":
            return
        time.sleep(0.01)
    raise OSError("no namespace")
