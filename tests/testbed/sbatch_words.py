"""Words for sbatch: what sites give, what attackers do, and the names of all of its options."""

from __future__ import annotations

SBATCH = (
    "array", "account", "bb", "bbf", "begin", "comment", "cpu-freq", "cpus-per-task", "dependency",
    "deadline", "delay-boot", "chdir", "error", "export", "export-file", "get-user-env", "gid", "gres",
    "gres-flags", "hold", "ignore-pbs", "input", "job-name", "no-kill", "licenses", "clusters", "container",
    "distribution", "mail-type", "mail-user", "mcs-label", "ntasks", "nice", "no-requeue", "ntasks-per-node",
    "nodes", "output", "overcommit", "partition", "parsable", "power", "priority", "profile", "propagate",
    "qos", "quiet", "reboot", "requeue", "oversubscribe", "core-spec", "signal", "spread-job", "switches",
    "thread-spec", "time", "time-min", "uid", "use-min-nodes", "verbose", "wait", "wckey", "wrap",
    "cluster-constraint", "contiguous", "constraint", "nodefile", "mem", "mincpus", "reservation", "tmp",
    "nodelist", "exclude", "exclusive", "mem-per-cpu", "sockets-per-node", "cores-per-socket",
    "threads-per-core", "extra-node-info", "ntasks-per-core", "ntasks-per-socket", "cpus-per-gpu", "gpus",
    "gpu-bind", "gpu-freq", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "mem-per-gpu", "help",
    "usage", "version", "test-only", "acctg-freq", "batch", "burst-buffer", "network", "mem-bind", "hint",
    "open-mode", "wait-all-nodes", "umask",
)  # fmt: skip
"""As `sbatch --help` and its manual name them, and some that only other versions have."""
ALLOWED = (
    "--mail-type=FAIL", "--mail-type=BEGIN,END", "--mail-user=ada@example.org", "--mem-per-gpu=40G",
    "--mem-per-cpu=500M",
    "--mem=64GB", "--mem=4g", "--time=UNLIMITED",
    "--mem=0", "--licenses=matlab@srv:2", "--nice", "--nice=100", "--tmp=10G", "--gpus-per-node=a100:2",
    "--gpus-per-task=1", "--cpus-per-gpu=8", "--switches=1@10:00", "--exclude=n1,n[4-7]", "--nodelist=n0",
    "--constraint=a100&nvlink", "--constraint=[rack1*2&rack2*4]", "--time-min=30", "--begin=now+1hour", "--wckey=x",
    "--hint=nomultithread", "--threads-per-core=1", "--distribution=block:cyclic", "--core-spec=2", "--exclusive",
    "--exclusive=user", "--gres=tmpfs:10G", "--contiguous", "--account=lab", "--qos=high", "--partition=gpu,long",
    "--time=1-12:00:00", "--reservation=course", "--network=ib", "--profile=task", "--acctg-freq=task=30",
)  # fmt: skip
HOSTILE = (
    # sbatch takes it for its script
    "/home/ben/evil.sh", "evil.sh", "", " ", "-", "--", ":", "/dev/stdin", " --mem=1G", "\u2014-mem=1G",
    # abbreviations, as GNU programs take them
    "--export-f=/root/secret", "--wra=id", "--outp=/etc/cron.d/x", "--ui=0", "--arra=0-3", "--job-na=x", "--expo=ALL",
    "--depend=afterok:1", "--prio=1", "--clust=all", "--nodef=/etc/shadow", "--com=x", "--err=/x", "--inp=/etc/shadow",
    "--chd=/", "--gi=0", "--prop=ALL", "--get-user", "--tes", "--wai", "--req", "--reb", "--mem-per-g=1",
    # short ones, and several of them in one word
    "-vJx", "-n4", "-o/x", "-o", "-J", "-Aa", "-a0-3", "-D/", "-e/x", "-i/etc/shadow", "-F/etc/shadow", "-Mall", "-HJx",
    "-W", "-h", "-V", "-Q", "-p", "-x", "-w/etc/shadow",
    # what decides whose it is, what it runs, which files are opened, where it is found
    "--uid=0", "--gid=0", "--uid", "--array=0-3", "--job-name=x", "--comment=x", "--dependency=afterok:1", "--wrap=id",
    "--output=/x", "--error=/x", "--input=/etc/shadow", "--chdir=/", "--export=ALL", "--export-file=/root/secret",
    "--export-file=3", "--bb=x", "--bbf=/etc/shadow", "--nodefile=/etc/shadow", "--nodelist=/etc/shadow",
    "--exclude=./x", "--nodelist=../x", "--clusters=all", "--cluster-constraint=x", "--container=/x", "--propagate=ALL",
    "--get-user-env", "--priority=4294967294", "--nice=-100", "--nice=-0", "--batch=x", "--requeue", "--reboot",
    "--wait",
    "--hold", "--deadline=now", "--signal=KILL", "--no-kill", "--parsable", "--test-only", "--help", "--usage",
    "--version", "--quiet", "--verbose", "--ignore-pbs", "--distribution=arbitrary", "--umask=0",
    # more GPUs than slots
    "--gres=gpu:8", "--gres=GPU:8", "--gres=tmpfs:1,gpu:8", "--gres=gres/gpu:8", "--gres=gres:gpu:8",
    "--gres=tmpfs:1,gres:gpu:8", "--gres=gres:gpu", "--gres=gres", "--gres=shard:4", "--gres=mps:50",
    "--gres=gpu", "--gpus=8", "--gpus-per-socket=8", "--gpus-per-node=0", "--tres-per-task=gres/gpu:8",
    # values that are none
    "--mem", "--mem=", "--mem 40G", "--mem=40G --uid=0", "--mem=40G\n--uid=0", "--mem=40G\x00", "--mem=\u0664",
    "--qos=a,b", "--account=a b", "--account=-x", "--account=$(id)", "--mail-user=-x", "--mail-user=a b",
    "--mail-user=a;id", "--mail-type=x", "--constraint=a b", "--constraint=a;b", "--partition=a,,b", "--exclusive=x",
    "--contiguous=x", "--begin=now; id", "--MEM=1G", "--Mem=1G", "--mem=1GiB", "--gpu-bind=map_gpu:0",
)  # fmt: skip
