"""Several hosts on one machine: `cluster.py` runs a command with `mpiexec` going over them.

    python tests/hosts/cluster.py 2 1 -- mpiexec -n 3 python program.py

makes two hosts, h1 for two ranks and h2 for one, and removes them when the command has ended. A
host is a set of namespaces: it has its own name, network, processes, `/dev/shm` and `/tmp`, and
shares one directory with the others, as a parallel file system would. The command runs on a
further host, `login`, from which `launch.sh` starts ranks as ssh would. `login` is a PID namespace
with all others inside it, so that nothing of it stays, whatever is killed: when its first process
ends, the kernel ends all others, and then removes networks and mounts.

The last host has one processor only: hosts may differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
LAUNCHER = Path(__file__).with_name("launch.sh")
TOOLS = ("unshare", "nsenter", "mount", "ip", "taskset")
NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--mount", "--fork", "--kill-child")
PRIVATE = ("/dev/shm", "/tmp")
"""Directories that each host has for itself, empty but for what all must see."""
NEEDS = (
    "ip link add bridge0 type bridge && ip link add one type veth peer name two && "
    "mount -t proc proc /proc && mount -t tmpfs tmpfs /tmp"
)
"""What the kernel must allow, as a command to try it."""
NOT_ALLOWED = 77
"""The exit code where hosts cannot be made."""
BRIDGE, NETWORK = "hosts0", "10.203.77"


def as_root() -> tuple[str, ...]:
    """What `unshare` needs of somebody who is not root: a user namespace in which they are."""
    return () if os.geteuid() == 0 else ("--user", "--map-root-user")


def why_not() -> str | None:
    """Why hosts cannot be made here; None if they can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} missing (Debian: iproute2, util-linux)"
    attempt = ["unshare", *as_root(), *NAMESPACES, "sh", "-c", NEEDS]
    done = subprocess.run(attempt, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return f"namespaces with a network and mounts of their own are not allowed: {words[-1]}"


def command_on_hosts(slots: list[int], directory: Path, command: list[str]) -> list[str]:
    """A command that makes hosts for `slots` ranks each, and runs `command` on `login`. The hosts
    share `directory/shared`."""
    inside = [sys.executable, __file__, "--login", str(directory), *map(str, slots), "--", *command]
    return ["unshare", *as_root(), *NAMESPACES, "--mount-proc", *inside]


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


# -------------------------------------------------------------------------------------------------
# The host `login`
# -------------------------------------------------------------------------------------------------


def log_in(slots: list[int], directory: Path, command: list[str]) -> int:
    """Makes the hosts and runs the command, as the first process of `login`: its exit code."""
    shared, state = directory / "shared", directory / "state"
    for made in (shared / "tmp", state / "stage"):
        made.mkdir(parents=True, exist_ok=True)
    names = {f"h{number}": f"{NETWORK}.{number}" for number in range(1, len(slots) + 1)}
    addresses = {"localhost": "127.0.0.1", "login": f"{NETWORK}.254", **names}
    (state / "hosts").write_text("".join(f"{ip} {name}\n" for name, ip in addresses.items()))
    machines = zip(names, slots, strict=True)
    (state / "machines").write_text("".join(f"{name}:{count}\n" for name, count in machines))
    socket.sethostname("login")
    run("mount", "--bind", state / "hosts", "/etc/hosts")
    # What one host mounts in the shared directory, all see there.
    run("mount", "--bind", shared, shared)
    run("mount", "--make-shared", shared)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{addresses['login']}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    processors = sorted(os.sched_getaffinity(0))
    for name, address in names.items():
        process = start_host(name, directory)
        connect(name, address, process)
        is_last = name == f"h{len(slots)}"
        allowed = processors[:1] if is_last else processors
        (state / name).write_text(f"{process} {','.join(map(str, allowed))}\n")
    return subprocess.run(command, env=os.environ | environment(directory), check=False).returncode


def environment(directory: Path) -> dict[str, str]:
    """With these variables `mpiexec` goes over the hosts, and tests use the shared directory."""
    return {
        "HYDRA_HOST_FILE": str(directory / "state" / "machines"),
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(LAUNCHER),
        "HYDRA_IFACE": BRIDGE,
        "PENSTOCK_HOSTS": str(directory / "state"),
        "PENSTOCK_TEST_DIRECTORY": str(directory / "shared"),
        "TMPDIR": str(directory / "shared" / "tmp"),
    }


def start_host(name: str, directory: Path) -> int:
    """The process whose namespaces are those of the new host."""
    command = ["unshare", *NAMESPACES, "--propagation", "unchanged", sys.executable, __file__]
    host = subprocess.Popen(
        [*command, "--host", name, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert host.stdout is not None
    if host.stdout.readline() != "ready\n":
        raise RuntimeError(f"host {name} does not start")
    return host.pid


def connect(name: str, address: str, process: int) -> None:
    """Gives a host its network: `eth0`, on the bridge."""
    peer = ("peer", "name", "eth0", "netns", str(process))
    run("ip", "link", "add", f"to-{name}", "type", "veth", *peer)
    run("ip", "link", "set", f"to-{name}", "master", BRIDGE, "up")
    inside = ("nsenter", "--target", str(process), "--net", "ip")
    run(*inside, "address", "add", f"{address}/24", "dev", "eth0")
    run(*inside, "link", "set", "eth0", "up")
    run(*inside, "link", "set", "lo", "up")


# -------------------------------------------------------------------------------------------------
# The other hosts
# -------------------------------------------------------------------------------------------------


def be_host(name: str, directory: Path) -> None:
    """Sets up a host, as its first process, and keeps it until it is killed."""
    socket.sethostname(name)
    run("mount", "-t", "proc", "proc", "/proc")
    shared, stage = directory / "shared", directory / "state" / "stage"
    # The one in which the stage is comes last: then it is no longer seen.
    for private in sorted(PRIVATE, key=stage.is_relative_to):
        make_private(Path(private), stage, shared)
    # The kernel takes away what is left of processes whose parents have gone.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        signal.pause()


def make_private(directory: Path, stage: Path, shared: Path) -> None:
    """Replaces a directory by an empty one, in which only the checkout, Python and the shared
    directory are still seen, if they are there."""
    visible = {CHECKOUT, Path(sys.prefix), Path(sys.base_prefix), shared}
    run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", stage)
    for path in sorted(path for path in visible if path.is_relative_to(directory)):
        point = stage / path.relative_to(directory)
        point.mkdir(parents=True, exist_ok=True)
        run("mount", "--rbind", path, point)
    run("mount", "--no-mtab", "--move", stage, directory)


# -------------------------------------------------------------------------------------------------
# From outside
# -------------------------------------------------------------------------------------------------


def main() -> int:
    """See the head of this file. `--login` and `--host` are for its own use."""
    if sys.argv[1:2] == ["--host"]:
        be_host(sys.argv[2], Path(sys.argv[3]))
    inside = sys.argv[2] if sys.argv[1:2] == ["--login"] else None
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="only say why it cannot be done")
    parser.add_argument("slots", type=int, nargs="*", help="ranks of each host")
    words = sys.argv[3:] if inside else sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    given, command = parser.parse_args(words[:end]), words[end + 1 :]
    if inside:
        return log_in(given.slots, Path(inside), command)
    reason = why_not()
    if reason is not None:
        print(reason)
        return NOT_ALLOWED
    if given.check:
        return 0
    with tempfile.TemporaryDirectory(prefix="penstock-hosts-") as directory:
        made = command_on_hosts(given.slots, Path(directory), command)
        return subprocess.run(made, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
