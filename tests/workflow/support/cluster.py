"""A real SLURM of one node with two pretend GPUs, for tests. Needs root and Debian's SLURM packages."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
TOOLS = (*DAEMONS, "sbatch", "srun", "squeue", "scancel", "mknod")
ETC = Path("/etc/slurm")  # where the executor's inner srun looks, since it loses SLURM_CONF
GPUS = 2

# No cgroups: they are missing in many containers. Memory is held to by polling.
SLURM_CONF = """\
ClusterName=ci
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
GresTypes=gpu
ReturnToService=2
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.log
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SwitchType=switch/none
MinJobAge=600
DefMemPerCPU=500
KillWait=2
OverTimeLimit=0
InactiveLimit=0
Waittime=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=gpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def obstacle() -> str | None:
    """Why no cluster can be started here; None where it can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"SLURM is not installed ({', '.join(missing)})"
    if os.geteuid() != 0:
        return "a SLURM of one's own needs root"
    if (ETC / "slurm.conf").exists() and not (ETC / "slurm.conf").is_symlink():
        return "this machine belongs to a SLURM cluster already"
    return None


def node() -> str:
    """Name of the one node."""
    return socket.gethostname().partition(".")[0]


def jobs() -> list[str]:
    """`<id> <state> <comment>` of each job that is queued or runs; the comment names rule and wildcards."""
    words = ["squeue", "--noheader", "--states=PENDING,CONFIGURING,RUNNING,COMPLETING", "--format=%i %T %k"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def job_of(comment: str, timeout: float = 600) -> str:
    """Wait until a job runs whose comment holds these words; its id."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with suppress(subprocess.CalledProcessError):  # a busy controller does not always answer
            for line in jobs():
                number, state, text = (*line.split(" ", 2), "", "")[:3]
                if state == "RUNNING" and comment in text:
                    return number
        time.sleep(0.2)
    raise TimeoutError(f"no job of {comment!r} ran within {timeout} s; there are: {jobs()}")


@contextmanager
def cluster(root: Path) -> Iterator[Path]:
    """Start the cluster with its state below `root`, and stop it. Several test runs take turns."""
    with Path("/run/lock/bitwise-reuse-audit-slurm").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            _configure(root)
            _start(root)
            yield root
        finally:
            _stop(root)


def _configure(root: Path) -> None:
    for name in ("munge", "dev", "state", "spool", "log"):
        (root / name).mkdir(parents=True, mode=0o755)
    for path in (root, *root.parents):
        if path.stat().st_uid == 0 and path != Path("/") and not path.stat().st_mode & 0o1000:
            path.chmod(0o755)  # munged refuses a folder that others may write to, or not enter
    key = root / "munge" / "key"
    key.touch(mode=0o400)
    key.write_bytes(os.urandom(1024))
    for index in range(GPUS):
        subprocess.run(["mknod", str(root / "dev" / f"nvidia{index}"), "c", "1", "3"], check=True)
    host = node()
    (root / "slurm.conf").write_text(SLURM_CONF.format(host=host, root=root, gpus=GPUS))
    (root / "gres.conf").write_text(f"NodeName={host} Name=gpu File={root}/dev/nvidia[0-{GPUS - 1}]\n")
    (root / "cgroup.conf").write_text("ConstrainRAMSpace=no\n")
    ETC.mkdir(exist_ok=True)
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        (ETC / name).unlink(missing_ok=True)
        (ETC / name).symlink_to(root / name)


def _start(root: Path) -> None:
    munge = root / "munge"
    words = [f"--{name}={munge / name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    subprocess.run(["munged", "--force", f"--key-file={munge / 'key'}", *words], check=True)
    subprocess.run(["slurmctld", "-c"], check=True)
    subprocess.run(["slurmd"], check=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        seen = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False
        )
        if seen.stdout.strip() == "idle":
            return
        time.sleep(0.1)
    logs = "\n".join(path.read_text()[-2000:] for path in (root / "log").iterdir())
    raise TimeoutError(f"the node did not become idle within 30 s:\n{seen.stdout}{seen.stderr}\n{logs}")


def _stop(root: Path) -> None:
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["scancel", "--user=root", "--full"], check=False, timeout=20)
    for pid_file in (root / "slurmd.pid", root / "slurmctld.pid", root / "munge" / "pid-file"):
        with suppress(OSError, ValueError):
            pid = int(pid_file.read_text())
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.1)
            os.kill(pid, signal.SIGKILL)
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        if (ETC / name).is_symlink():
            (ETC / name).unlink()
