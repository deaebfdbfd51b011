# REQUIRED INPUTS:  kernels/adaln_projection
# OUTPUTS:          kernel/build.json, kernel/code.json, the libraries


checkpoint build_kernel:
    # A checkpoint, so that an edit which leaves the machine code as it was (a comment) stops here: see docs.
    input:
        sources=sorted(map(str, (SOURCE / "kernels/adaln_projection").glob("*.c*")))
        + sorted(map(str, (SOURCE / "kernels/adaln_projection").glob("*.h"))),
        modules=closure(SOURCE, ["kernels.adaln_projection.build"]),
    output:
        code=f"{RESULTS}/kernel/code.json",
        build=f"{RESULTS}/kernel/build.json",
    log:
        f"{LOGS}/build_kernel.log",
    params:
        targets="both" if AUDIT.config["device"] == "cuda" else "cpu",
        folder=subpath(output.code, parent=True),
    threads: 2
    resources:
        mem_mb=4000,
        runtime=20,
    shell:
        "python -P -m kernels.adaln_projection.build"
        " --targets {params.targets} --out {params.folder:q} &> {log:q}"


def kernel_code(wildcards):
    """The digest of the machine code, for cells that run it; other cells do not depend on the kernel."""
    if AUDIT.implementation(wildcards.implementation).candidate != "rl_kernel":
        return []
    return checkpoints.build_kernel.get().output.code
