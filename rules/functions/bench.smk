# Resources and parameters of the rules of target bench.


def latency_modules(wildcards):
    return modules("launch", "latency", *AUDIT.plugins(AUDIT.implementation(wildcards.implementation)))


def whole_gpu():
    """All slots of one GPU; a scheduler deals out whole GPUs itself."""
    if AUDIT.config["device"] == "cpu":
        return 0
    return 1 if CLUSTER else CELLS_PER_GPU


def latency_threads():
    """On a CPU all that Snakemake has, so that nothing else runs at the time."""
    if AUDIT.config["device"] == "cuda":
        return AUDIT.config["cores_per_cell"]
    return AUDIT.config["threads"] if CLUSTER else max(AUDIT.config["threads"], os.cpu_count())
