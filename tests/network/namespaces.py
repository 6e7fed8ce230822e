"""Real networks on one machine: hosts in racks, as network namespaces joined by shaped links, and programs under Open MPI on them.

    with Network([Rack(4, nic="200mbit", uplink="200mbit"), Rack(4, nic="200mbit", uplink="100mbit")]) as network:
        done = network.mpirun([program, "probe", "-o", path], order=[0, 4, 1, 5, 2, 6, 3, 7])
        done.code, done.out, done.err          # of mpirun
        done.sent["h3"], done.received["h3"]   # bytes that the interface of the host counted meanwhile, headers included
        done.uplink_sent["rack1"]              # and of the rack's uplink, towards the core

Host i is called h<i>, counted over the racks, and has the address 10.77.0.<i+1>. Each host is a network namespace with a UTS
namespace (a host name) of its own. One more namespace holds the switches: a bridge for each rack, and a bridge `core` that
joins them; two racks are joined without a core. The token bucket filter shapes both ends of each host's link and of each
uplink. Rates are as `tc` writes them ("200mbit", "8mbit"); an uplink without a rate is not shaped.

Nothing leaves the namespaces: they have no link to the machine's own network. Leaving the `with` block ends what still runs
in them and removes them, as do SIGTERM and SIGINT; what a killed process left behind is removed by the next one. All hosts
share the machine's cores, so that rates above about 2 Gbit/s in total measure the processors instead of the links.

why_not() says what this machine lacks (root, namespaces, the filter), or "".
"""
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PREFIX = "tessera-net"
# A shallow queue drops packets, which TCP takes for congestion: a good ring was 2.3 times as slow then.
HOST_FILTER = ["burst", "128kb", "limit", "4mb"]
UPLINK_FILTER = ["burst", "128kb", "limit", "8mb"]
OPEN_MPI = {"btl": "tcp,self", "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0", "plm_rsh_no_tree_spawn": "1",
            "hwloc_base_binding_policy": "none", "rmaps_base_oversubscribe": "1", "mpi_yield_when_idle": "1"}


@dataclasses.dataclass
class Rack:
    """Hosts below one switch. `nics` gives single hosts another rate: {1: "50mbit"}, counted in this rack."""
    hosts: int
    nic: str = "200mbit"
    uplink: str = ""
    nics: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Done:
    code: int
    out: str
    err: str
    seconds: float
    sent: dict
    received: dict
    uplink_sent: dict
    uplink_received: dict


def call(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done


def why_not():
    """What keeps this machine from having such a network; "" if nothing does."""
    missing = [name for name in ("ip", "tc", "mpirun", "unshare") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} on this machine (Debian: iproute2, openmpi-bin, util-linux)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"{PREFIX}-{os.getpid()}-try"
    try:
        call("ip", "netns", "add", name)
        call("ip", "-n", name, "link", "add", "dev", "veth0", "type", "veth", "peer", "name", "veth1")
        call("ip", "-n", name, "link", "add", "dev", "bridge0", "type", "bridge")
        call("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "veth0", "root", "tbf", "rate", "8mbit", *HOST_FILTER)
    except RuntimeError as error:
        return f"this machine cannot emulate a network: {error}"
    finally:
        call("ip", "netns", "del", name, check=False)
    return ""


def remove(namespace):
    """Ends what runs in a namespace, and removes it."""
    for _ in range(50):
        pids = call("ip", "netns", "pids", namespace, check=False).stdout.split()
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not pids:
            break
        time.sleep(0.02)
    call("ip", "netns", "del", namespace, check=False)


def remove_leftovers():
    """Removes the namespaces of test processes that no longer exist."""
    for line in call("ip", "netns", "list", check=False).stdout.splitlines():
        name = line.split()[0]
        owner = name.removeprefix(PREFIX + "-").split("-")[0]
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{owner}"):
            remove(name)


class Network:
    def __init__(self, racks):
        self.racks = racks
        self.tag = f"{PREFIX}-{os.getpid()}"
        self.rack_of = [number for number, rack in enumerate(racks) for _ in range(rack.hosts)]
        self.size = len(self.rack_of)
        self.switches = f"{self.tag}-sw"
        self.folder = None
        self.handlers = {}

    def host(self, number):
        return f"{self.tag}-h{number}"

    @staticmethod
    def address(number):
        return f"10.77.0.{number + 1}"

    def __enter__(self):
        remove_leftovers()
        self.folder = tempfile.TemporaryDirectory(prefix="tessera_network_")
        for number in (signal.SIGTERM, signal.SIGINT):
            self.handlers[number] = signal.signal(number, self.stop)
        try:
            self.build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def stop(self, number, _):
        self.close()
        sys.exit(128 + number)

    def close(self):
        for name in [self.host(i) for i in range(self.size)] + [self.switches]:
            remove(name)
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.handlers = {}
        if self.folder is not None:
            self.folder.cleanup()
            self.folder = None

    def shape(self, namespace, device, rate, limits):
        if rate:
            call("ip", "netns", "exec", namespace, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, *limits)

    def bridge(self, name):
        call("ip", "-n", self.switches, "link", "add", name, "type", "bridge")
        call("ip", "-n", self.switches, "link", "set", name, "up")

    def join(self, lower, upper, rate):
        """Joins two bridges by a link whose ends are shaped; the lower end is called after the lower bridge."""
        ends = (f"{lower}-up", f"{lower}-down")
        call("ip", "-n", self.switches, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for end, bridge in zip(ends, (lower, upper)):
            call("ip", "-n", self.switches, "link", "set", end, "master", bridge, "up")
            self.shape(self.switches, end, rate, UPLINK_FILTER)

    def build(self):
        call("ip", "netns", "add", self.switches)
        for number, rack in enumerate(self.racks):
            self.bridge(f"rack{number}")
        if len(self.racks) > 1:
            self.bridge("core")
            for number, rack in enumerate(self.racks):
                self.join(f"rack{number}", "core", rack.uplink)
        host = 0
        for number, rack in enumerate(self.racks):
            for local in range(rack.hosts):
                self.add_host(host, f"rack{number}", rack.nics.get(local, rack.nic))
                host += 1

    def add_host(self, number, bridge, rate):
        name = self.host(number)
        call("ip", "netns", "add", name)
        call("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{number}", "netns", self.switches)
        call("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        call("ip", "-n", name, "link", "set", "lo", "up")
        call("ip", "-n", name, "link", "set", "eth0", "up")
        call("ip", "-n", self.switches, "link", "set", f"p{number}", "master", bridge, "up")
        self.shape(name, "eth0", rate, HOST_FILTER)
        self.shape(self.switches, f"p{number}", rate, HOST_FILTER)

    def count(self, namespace, device, direction):
        path = f"/sys/class/net/{device}/statistics/{direction}_bytes"
        return int(call("ip", "netns", "exec", namespace, "cat", path).stdout)

    def counters(self):
        hosts = {f"h{i}": (self.host(i), "eth0") for i in range(self.size)}
        uplinks = {f"rack{r}": (self.switches, f"rack{r}-up") for r in range(len(self.racks)) if len(self.racks) > 1}
        return [{name: self.count(*place, direction) for name, place in places.items()}
                for places in (hosts, uplinks) for direction in ("tx", "rx")]

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def inside(self, number):
        """The words that run a program on a host, under its name."""
        return ["ip", "netns", "exec", self.host(number), "unshare", "--uts", "sh", "-c", f'hostname h{number}; exec "$@"', "sh"]

    def run(self, host, words, timeout=120, env=None):
        """Runs a program on one host."""
        return subprocess.run([*self.inside(host), *words], capture_output=True, text=True, check=False, timeout=timeout,
                              env={**os.environ, **(env or {})})

    def mpirun(self, words, order=None, ranks_per_host=1, options=(), env=None, timeout=120, cwd=None):
        """Runs a program under mpirun: rank k is on host order[k // ranks_per_host]. `options` are more words of mpirun."""
        order = list(range(self.size)) if order is None else list(order)
        agent = self.write("agent", "#!/bin/sh\n"
                           "n=$(($(echo \"$1\" | cut -d. -f4) - 1)); shift\n"
                           f"exec ip netns exec {self.tag}-h$n unshare --uts sh -c \"hostname h$n; $*\"\n", 0o755)
        hosts = self.write("hosts", "".join(f"{self.address(h)} slots={ranks_per_host}\n" for h in sorted(order)))
        ranks = self.write("ranks", "".join(f"rank {k}={self.address(order[k // ranks_per_host])} slot={k % ranks_per_host}\n"
                                            for k in range(len(order) * ranks_per_host)))
        settings = {**OPEN_MPI, "plm_rsh_agent": agent}
        mpi = ["mpirun", "--allow-run-as-root", "-n", str(len(order) * ranks_per_host), "--hostfile", hosts, "--rankfile", ranks]
        for name, value in settings.items():
            mpi += ["--mca", name, value]
        before = self.counters()
        start = time.monotonic()
        first = self.inside(order[0])
        # A session of its own, as Open MPI gives its daemons on the other hosts: Linux gives each session an equal share of the
        # processors (autogroup), and the ranks beside mpirun would share theirs with whatever the caller's terminal runs.
        with subprocess.Popen([*first, *mpi, *options, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                              env={**os.environ, **(env or {})}, start_new_session=True) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += f"\nstopped: mpirun ran for more than {timeout} s\n"
        seconds = time.monotonic() - start
        moved = [{name: after[name] - earlier[name] for name in after} for earlier, after in zip(before, self.counters())]
        return Done(process.returncode, out, err, seconds, *moved)
