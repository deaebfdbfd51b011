# What rule build_kernel and the cells of rl_kernel need to know of the kernel.

# On a CPU an edit of the CUDA kernels concerns nobody.
TARGETS = ["cpu", "cuda"] if AUDIT.config["device"] == "cuda" else ["cpu"]

# How the sources differ from those that were built. Snakemake alone would remake what follows a build even where it
# comes out as it was; and where it is told not to, by `ancient`, it overlooks all that changed besides. So a build
# for the sake of a comment makes the record of the build alone, on which no cell depends.
EDITED = library.what_changed(Path(PLACE, "kernel"), TARGETS)
CODE = f"{RESULTS}/kernel/code.json"


def kernel_sources():
    """`ancient` once they are built: then their times mean nothing."""
    files = source_files(sorted({path for target in TARGETS for path in library.sources(target)}))
    return ancient(files) if EDITED == "nothing" else files


def builds_of_comments():
    """What target all has to ask for, since no cell does."""
    wanted = EDITED == "comments" and "rl_kernel" in AUDIT.config["candidates"]
    return rules.build_kernel.output.build if wanted else []
