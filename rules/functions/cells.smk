# What a cell depends on, from its wildcards.


def cell_code(wildcards):
    """The digest of the kernel's machine code for cells that run it; the file of a callable on its candidate's path."""
    candidate = AUDIT.implementation(wildcards.implementation).candidate
    kernel = [CODE] if candidate == "rl_kernel" else []
    return kernel + callable_files(AUDIT.config["candidates"][candidate])


def cell_spec(wildcards):
    implementation = AUDIT.implementation(wildcards.implementation)
    return json.dumps(AUDIT.cell(implementation, int(wildcards.case)))


def cell_mode(key):
    return AUDIT.mode(AUDIT.implementation(key))


def cell_process(wildcards):
    """Options of launch: variables, interpreter and packages of the cell's process."""
    implementation = AUDIT.implementation(wildcards.implementation)
    interpreter = cell_mode(wildcards.implementation)["python"]
    options = ["--variables", json.dumps(AUDIT.variables(implementation))]
    options += ["--python", interpreter] if interpreter else []
    return options + [word for folder in AUDIT.path(implementation) for word in ("--path", folder)]


def cell_needs(wildcards):
    """What makes a cell stale besides its inputs: our modules, its libraries and what this machine lacks."""
    key = wildcards.implementation
    return [cell_modules(key), cell_libraries(key), cell_lacks(key, wildcards.case)]


def cell_modules(key):
    return modules("launch", "run_cell", *AUDIT.plugins(AUDIT.implementation(key)))


@cache
def cell_libraries(key):
    """Versions of what the cell uses: an upgrade makes it stale."""
    mode = cell_mode(key)
    if CONDA and mode["conda"]:
        return mode["conda"]  # Snakemake itself looks at the file's content
    folders = AUDIT.path(AUDIT.implementation(key))
    return library_versions(mode["needs"]["libraries"], mode["python"], folders)


def cell_lacks(key, case):
    """What this machine is known to lack: a cell that was unavailable elsewhere is made again where it is not."""
    if CLUSTER:
        return []
    needed = cell_mode(key)["needs"]["instruction_sets"]
    return lacking_here(AUDIT.config["device"], needed, Path(PLACE, "cells", key, case, "manifest.json"))


def cell_conda(wildcards):
    file = cell_mode(wildcards.implementation)["conda"]
    return str(SOURCE / file) if file else None
