# What rule build_kernel and the cells of rl_kernel need to know of the kernel.


@cache
def only_comments_changed():
    return library.only_comments_changed(Path(PLACE, "kernel"), TARGETS)


def kernel_sources():
    return source_files(sorted({path for target in TARGETS for path in library.sources(target)}))


def kernel_code(wildcards):
    """The digest of the machine code, for cells that run it; other cells do not depend on the kernel.

    A build makes Snakemake run what follows, unless its output is `ancient`, even where it comes out as it was. So
    it is that when only a comment was edited. In the next call it is an input with a checksum, like any other.
    """
    if AUDIT.implementation(wildcards.implementation).candidate != "rl_kernel":
        return []
    code = rules.build_kernel.output.code
    return ancient(code) if only_comments_changed() else code
