# REQUIRED INPUTS:  kernels/adaln_projection
# OUTPUTS:          kernel/build.json, kernel/code.json, the libraries


# On a CPU an edit of the CUDA kernels concerns nobody.
TARGETS = ["cpu", "cuda"] if AUDIT.config["device"] == "cuda" else ["cpu"]


@cache
def only_comments_changed():
    return library.only_comments_changed(Path(PLACE, "kernel"), TARGETS)


def kernel_sources():
    return source_files(sorted({path for target in TARGETS for path in library.sources(target)}))


rule build_kernel:
    input:
        sources=kernel_sources(),
    output:
        code=f"{RESULTS}/kernel/code.json",
        build=f"{RESULTS}/kernel/build.json",
    log:
        f"{LOGS}/build_kernel.log",
    threads: 2
    resources:
        mem_mb=grows(4000),
        runtime=grows(20),
    params:
        modules=modules("build", package="kernels.adaln_projection"),
        targets="both" if len(TARGETS) > 1 else "cpu",
        folder=subpath(output.code, parent=True),
        lacking=compilers_lacking(Path(PLACE, "kernel"), TARGETS),
    shell:
        # Without a compiler the cells of rl_kernel are unavailable, with the reason; the others and the report go on.
        "python -P -m kernels.adaln_projection.build --record-missing"
        " --targets {params.targets} --out {params.folder:q} &> {log:q}"


def kernel_code(wildcards):
    """The digest of the machine code, for cells that run it; other cells do not depend on the kernel.

    A build makes Snakemake run what follows, unless its output is `ancient`, even where it comes out as it was. So
    it is that when only a comment was edited. In the next call it is an input with a checksum, like any other.
    """
    if AUDIT.implementation(wildcards.implementation).candidate != "rl_kernel":
        return []
    code = rules.build_kernel.output.code
    return ancient(code) if only_comments_changed() else code
