# REQUIRED INPUTS:  kernels/adaln_projection
# OUTPUTS:          kernel/build.json, kernel/code.json, the libraries


include: "functions/kernel.smk"


rule build_kernel:
    input:
        sources=kernel_sources(),
    output:
        code=[] if EDITED == "comments" else CODE,
        build=f"{RESULTS}/kernel/build.json",
    log:
        f"{LOGS}/build_kernel.log",
    conda:
        own_conda
    threads: 2
    resources:
        mem_mb=grows(4000),
        runtime=grows(20),
    params:
        modules=modules("build", package="kernels.adaln_projection"),
        targets="both" if len(TARGETS) > 1 else "cpu",
        folder=subpath(output.build, parent=True),
        lacking=compilers_lacking(Path(PLACE, "kernel"), TARGETS),
    shell:
        # Without a compiler the cells of rl_kernel are unavailable, with the reason; the others and the report go on.
        "python -P -m kernels.adaln_projection.build --record-missing"
        " --targets {params.targets} --out {params.folder:q} &> {log:q}"
