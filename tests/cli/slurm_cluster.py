"""A real Slurm with emulated nodes on this machine, in a folder of its own: 16 nodes of 4 GPUs, which are files.

    cluster = SlurmCluster(folder)   # sets SLURM_CONF for the programs of Slurm that are started with cluster.environment
    cluster.stop()

Needs root (devices are made with mknod) and Debian's slurm-wlm (scripts/setup --slurm); why_not() says what is missing. Ports
are drawn, so that several such clusters can run beside one another; processes are ended by their ids.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

NODES, GPUS = 16, 4
CONFIG = """ClusterName=tessera
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/completed
KillWait=2
BatchStartTimeout=1
NodeName=n[0-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] CPUs={gpus} RealMemory=1000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """What keeps this machine from running such a cluster; "" if nothing does."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} on this machine; to get it: scripts/setup --slurm"
    return "" if os.geteuid() == 0 else "emulated nodes of Slurm need root"


def free_ports(count):
    """The first of `count` ports in a row that nobody listens on."""
    for first in range(17000 + os.getpid() % 997 * 20, 60000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + i))
            return first
        except OSError:
            pass
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no free ports")


def processes_of(folder, job=None):
    """The processes of the cluster in the folder: all, or what a job has started and what starts it for the agent."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = file.read().split(b"\0")
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue  # it has ended meanwhile
        is_of_job = job is None or f"SLURM_JOB_ID={job}".encode() in variables or words.startswith(f"slurmstepd: [{job}.".encode())
        if is_of_job and f"SLURM_CONF={folder}/slurm.conf".encode() in variables:
            yield int(entry)


def kill_processes_of(folder, job=None):
    victims = list(processes_of(folder, job))
    for victim in victims:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(victims)


def guard(folder):
    """Waits until the test has ended, however that was, and kills what it has left."""
    sys.stdin.read()
    while kill_processes_of(folder):
        pass


class SlurmCluster:
    def __init__(self, folder):
        self.folder = os.path.join(folder, "slurm")
        self.processes = {}
        self.environment = {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf"}
        os.makedirs(f"{self.folder}/state")
        self.guard = subprocess.Popen([sys.executable, __file__, self.folder], stdin=subprocess.PIPE, start_new_session=True)
        for gpu in range(GPUS):
            os.mknod(f"{self.folder}/nvidia{gpu}", 0o20666, os.makedev(1, 3))
        port = free_ports(NODES + 1)
        self.write("slurm.conf", CONFIG.format(host=socket.gethostname(), folder=self.folder, port=port, first_port=port + 1,
                                               last_port=port + NODES, last=NODES - 1, gpus=GPUS))
        self.write("gres.conf", f"AutoDetect=off\nNodeName=n[0-{NODES - 1}] Name=gpu File={self.folder}/nvidia[0-{GPUS - 1}]\n")
        self.start("slurmctld", "slurmctld", "-D")
        for node in range(NODES):
            self.start_node(node)
        self.heal()

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def start(self, name, *words):
        with open(f"{self.folder}/{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                    start_new_session=True)

    def start_node(self, node):
        self.start(f"n{node}", "slurmd", "-D", "-N", f"n{node}")

    def kill(self, name):
        """Kills slurmctld or the agent of a node, as "n3"."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def run(self, *words):
        """What a program of Slurm prints; "" if it fails."""
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, timeout=60).stdout

    def resume(self):
        """Brings nodes back that Slurm has drained. Returns the states of all."""
        nodes = [line.split() for line in self.run("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()]
        for name, state in nodes:
            if state.startswith("drain") or state.startswith("down"):
                self.run("scontrol", "update", f"nodename={name}", "state=resume")
        return [state for _, state in nodes]

    def heal(self):
        """Waits until all nodes are idle."""
        self.wait_for("idle nodes", lambda: self.resume() == ["idle"] * NODES)

    def jobs(self):
        """The jobs that wait or run: a list of (id, node or "", state, comment)."""
        lines = self.run("squeue", "--noheader", "--format=%A|%N|%T|%k").splitlines()
        return [tuple(line.split("|")) for line in lines]

    @staticmethod
    def wait_for(what, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds} s for {what}")
            time.sleep(0.05)

    def stop(self):
        self.run("scancel", "--signal=KILL", "--full", "--me")
        self.run("scancel", "--me")
        if "slurmctld" in self.processes:
            try:
                self.wait_for("the end of all jobs", lambda: not self.jobs(), 20)
            except AssertionError as left:
                print(f"slurm: {left}")
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.guard.stdin.close()
        self.guard.wait()


if __name__ == "__main__":
    guard(sys.argv[1])
